#!/usr/bin/env bash
# docs/cli.md and the program's help name the same commands, options (with the same value word) and environment variables.
set -uo pipefail
doc=$ATOLL_SOURCE/docs/cli.md
atoll=$ATOLL_BIN/atoll
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
same() { # WHAT: compares $work/help with $work/docs
    sort -u "$work/help" -o "$work/help" && sort -u "$work/docs" -o "$work/docs"
    [ -s "$work/help" ] || { echo "$1: the program lists none"; bad=1; }
    if ! diff "$work/help" "$work/docs" >"$work/diff"; then
        echo "$1: < in the help only, > in docs/cli.md only"
        grep '^[<>]' "$work/diff"
        bad=1
    fi
}
"$atoll" --help | sed -n 's/^  \([a-z][a-z-]*\)  *.*/\1/p' >"$work/help"
sed -n 's/^## atoll \(.*\)/\1/p' "$doc" >"$work/docs"
same commands
for command in $(cat "$work/help"); do
    "$atoll" "$command" --help | sed -n 's/^  \(--[a-z0-9-]*\( [^ ][^ ]*\)\{0,1\}\)  *[^ ].*/\1/p' >"$work/help"
    awk -v head="## atoll $command" '/^## /{in_it = $0 == head} in_it' "$doc" |
        sed -n 's/^| `\(--[^`]*\)` |.*/\1/p' >"$work/docs"
    same "atoll $command"
done
ATOLL_HELP=1 "$atoll" | awk '{print $1}' >"$work/help"
awk '/^## /{in_it = $0 == "## Environment"} in_it' "$doc" | sed -n 's/^| `\([A-Z_]*\)` |.*/\1/p' >"$work/docs"
same 'environment variables'
"$atoll" --help | sed -n 's/^exit codes: \(.*\); .*/\1/p' | tr ',' '\n' | awk '{print $1}' >"$work/help"
awk '/^## /{in_it = $0 == "## Exit codes"} in_it' "$doc" | sed -n 's/^| \([0-9]\) |.*/\1/p' >"$work/docs"
same 'exit codes'
exit $bad
