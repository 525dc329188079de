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
plant scratch passes/a.c '    struct arena scratch = {0};\n'
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

# test, file, sed command: the named test must fail on a copy of docs/ and the tables changed so, and pass on it unchanged
plant_docs() {
    local copy=$tree/docs_copy
    rm -rf "$copy"
    mkdir -p "$copy/ir" "$copy/include"
    cp -r "$ATOLL_SOURCE/docs" "$ATOLL_SOURCE/README.md" "$ATOLL_SOURCE/examples" "$copy/"
    mkdir -p "$copy/tests/golden" "$copy/runtime"
    cp "$ATOLL_SOURCE/tests/golden/README.md" "$copy/tests/golden/"
    cp "$ATOLL_SOURCE/runtime/container.h" "$copy/runtime/"
    cp "$ATOLL_SOURCE"/ir/*.def "$copy/ir/"
    cp -r "$ATOLL_SOURCE/include/atoll" "$copy/include/"
    mkdir -p "$copy/frontend/cli"
    cp "$ATOLL_SOURCE"/frontend/cli/{main.c,cli.h} "$copy/frontend/cli/"
    if ! ATOLL_SOURCE=$copy bash "$here/$1.sh" >/dev/null 2>&1; then
        echo "$1.sh fails on the docs as they are"
        bad=1
    fi
    sed -i "$3" "$copy/$2"
    if ATOLL_SOURCE=$copy bash "$here/$1.sh" >/dev/null 2>&1; then
        echo "$1.sh let this through in $2: $3"
        bad=1
    fi
}
plant_docs docs_ops docs/ops.md 's/| `tanh` | 1 |/| `tanh` | 2 |/'
plant_docs docs_errors docs/errors.md '/^| V023 /d'
plant_docs docs_errors docs/errors.md 's/^| `CHECKSUM` | 9 |/| `CHECKSUM` | 19 |/'
plant_docs docs_errors frontend/cli/main.c '/case ATOLL_IO:/d'
plant_docs docs_errors ir/verify.def '$aX(V099, "a new rule")'
plant_docs docs_errors include/atoll/status.def 's/"bad data"/"data are bad"/'
plant_docs docs_links docs/cli.md 's/(plan.md)/(plans.md)/'
plant_docs docs_links docs/errors.md 's/^## Verifier/## Rules/'
plant_docs docs_links README.md '/docs.plan.md/d'
plant_docs docs_cli docs/cli.md '/^| `--holdout SHARE`/d'
plant_docs docs_cli docs/cli.md 's/^| `--npy PREFIX`/| `--npz PREFIX`/'
plant_docs docs_cli docs/cli.md 's/^## atoll finfo/## atoll info/'
plant_docs docs_cli docs/cli.md 's/^| `ATOLL_DUMP`/| `ATOLL_DUMPS`/'
plant_docs docs_cli docs/cli.md 's/^| 4 | environment/| 5 | environment/'
exit $bad
