#!/usr/bin/env bash
# The style tests themselves: each must fail on a planted mistake and pass without it.
set -uo pipefail
here=$ATOLL_SOURCE/tests/style
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
bad=0

# test, folder/file, content: the named test must fail
plant() {
    mkdir -p "$tree/ir" "$tree/$(dirname "$2")"
    printf '%b' "$3" >"$tree/$2"
    if ATOLL_SOURCE=$tree bash "$here/$1.sh" >/dev/null 2>&1; then
        echo "$1.sh let this through in $2:"
        printf '%b' "$3" | head -3
        bad=1
    fi
    rm "$tree/$2"
    if ! ATOLL_SOURCE=$tree bash "$here/$1.sh" >/dev/null 2>&1; then
        echo "$1.sh fails on an empty tree"
        bad=1
    fi
}
lines() { for ((i = 0; i < $1; i++)); do printf '    f();\\n'; done; }

plant includes ir/a.c '#include "passes/pass.h"\n'
plant includes ir/a.h '  #  include "codegen/kernel.h"\n'
plant includes passes/a.c '#include "codegen/kernel.h"\n'
plant includes codegen/a.c '#include "runtime/data.h"\n'
plant includes runtime/a.c '#include "codegen/emit.h"\n'
plant includes runtime/a.c '#include "frontend/context.h"\n'
plant includes include/atoll/a.h '#include "ir/graph.h"\n'
plant includes runtime/a.c '#include "../ir/base.h"\n'
plant getenv runtime/a.c 'char *p = getenv("HOME");\n'
plant sizes ir/a.c "void f(void)\n{\n$(lines 101)}\n"
plant sizes tests/a.h "$(lines 901)"
mkdir -p "$tree/docs" "$tree/tests/unit"
cases() { printf '| FC001 | what | %s |\n' "$1" >"$tree/docs/field_cases.md"; }
echo '"FC001"' >"$tree/tests/unit/test_a.c"
cases test_a.c
plant field_cases tests/unit/test_b.c '"FC002"\n'
for entry in test_b.c -; do
    cases "$entry"
    if ATOLL_SOURCE=$tree bash "$here/field_cases.sh" >/dev/null 2>&1; then
        echo "field_cases.sh let '$entry' through"
        bad=1
    fi
done
exit $bad
