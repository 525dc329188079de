#!/usr/bin/env bash
# Links of README.md and docs/*.md lead to files of the repository and to headings that are there; every page of docs/ is linked from README.md.
set -uo pipefail
cd "$ATOLL_SOURCE" || exit 1
bad=0
slugs() { # the anchors of a page's headings
    sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}
for page in README.md docs/*.md; do
    while read -r link; do
        file=${link%%#*} anchor=${link#"${link%%#*}"}
        target=$(dirname "$page")/$file
        [ -n "$file" ] || target=$page
        if [ ! -e "$target" ]; then
            echo "$page: ($link) leads nowhere"
            bad=1
        elif [ -n "$anchor" ] && ! slugs "$target" | grep -xF -- "${anchor#\#}" >/dev/null; then
            echo "$page: ($link): no such heading in $target"
            bad=1
        fi
    done < <(grep -o '](\([^)]*\))' "$page" | sed 's/^](\(.*\))$/\1/' | grep -v '^[a-z]*://')
done
for page in docs/*.md; do
    grep -qF "($page)" README.md || { echo "$page: README.md has no link to it"; bad=1; }
done
exit $bad
