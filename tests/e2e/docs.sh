#!/usr/bin/env bash
# Every command example marked in README.md and docs/*.md runs: the ```sh run blocks of a page, in order, in one fresh directory that has
# the repository's examples/, include/, tests/ and build/release/. "sh run release" blocks link against a release build, so a sanitized one leaves
# them out.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ATOLL_CACHE=${ATOLL_TEST_CACHE:-$work/cache} OMP_NUM_THREADS=1 PATH=$ATOLL_BIN:$PATH
failed=0 blocks=0
for page in "$ATOLL_SOURCE/README.md" "$ATOLL_SOURCE"/docs/*.md; do
    name=$(basename "$page" .md)
    mkdir -p "$work/$name/build"
    ln -s "$ATOLL_SOURCE/examples" "$ATOLL_SOURCE/include" "$ATOLL_SOURCE/tests" "$work/$name/"
    ln -s "$(dirname "$ATOLL_BIN")" "$work/$name/build/release"
    awk -v plain="${ATOLL_SANITIZED:+no}" '
        /^```sh run$/ || (/^```sh run release$/ && plain != "no") {in_it = 1; n++; print "set -e"; next}
        /^```/ {in_it = 0}
        in_it
        END {print n + 0 > "/dev/stderr"}' "$page" >"$work/$name.sh" 2>"$work/n"
    blocks=$((blocks + $(cat "$work/n")))
    if ! (cd "$work/$name" && bash -x "$work/$name.sh") >"$work/log" 2>&1; then
        echo "$name.md: an example fails, last lines:"
        tail -5 "$work/log"
        failed=1
    fi
done
[ $blocks -ge 12 ] || { echo "found $blocks marked blocks, expected 12 or more"; failed=1; }
[ $failed -eq 0 ] && echo "$blocks blocks of examples ran"
exit $failed
