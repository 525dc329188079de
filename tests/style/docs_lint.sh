#!/usr/bin/env bash
# docs/diagnose.md has each lint rule as `atoll lint --rules` has it: code, what it finds, hint; and none besides.
set -uo pipefail
doc=$ATOLL_SOURCE/docs/diagnose.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$ATOLL_BIN/atoll" lint --rules | sed 'N;s/\n *hint: / | /;s/^\(L[0-9]*\)  /| \1 | /;s/$/ |/' >"$work/program"
grep '^| L[0-9]' "$doc" >"$work/docs"
[ -s "$work/program" ] || { echo "the program lists no rule"; exit 1; }
if ! diff "$work/program" "$work/docs" >"$work/diff"; then
    echo "< by the program, > in docs/diagnose.md"
    grep '^[<>]' "$work/diff"
    exit 1
fi
