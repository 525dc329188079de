#!/usr/bin/env bash
# Broken input: one clear line, the documented exit code, nothing that looks like success.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ATOLL_CACHE=$work/cache OMP_NUM_THREADS=1
atoll=$ATOLL_BIN/atoll
model=$ATOLL_SOURCE/examples/digits.graph
digits=$ATOLL_SOURCE/examples/data/digits.csv.gz
failed=0

# refused CODE PATTERN COMMAND...
refused() {
    local code=$1 pattern=$2 found
    shift 2
    "$@" >"$work/out" 2>"$work/err"
    found=$?
    if [ $found -ne "$code" ] || [ "$(wc -l <"$work/err")" -ne 1 ] || ! grep -qE -- "$pattern" "$work/err"; then
        echo "exit $found (expected $code), expected one line like '$pattern', found: $(cat "$work/err") [${*:2}]"
        failed=1
    fi
}
flip() { # FILE OFFSET: the byte there, inverted
    local byte
    byte=$(od -An -tu1 -j"$2" -N1 "$1")
    printf "\\$(printf %03o $((255 - byte)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

"$atoll" compile "$model" -o "$work/good.plan" >/dev/null || failed=1
size=$(wc -c <"$work/good.plan")
head -c $((size / 2)) "$work/good.plan" >"$work/cut.plan"
refused 3 'cut.plan: .*(truncated|size|bytes)' "$atoll" train "$work/cut.plan" --data "$digits"
for at in 0 20 100 400 2000 $((size - 40)); do
    cp "$work/good.plan" "$work/flip.plan"
    flip "$work/flip.plan" "$at"
    refused 3 'flip.plan' "$atoll" train "$work/flip.plan" --data "$digits"
done
cp "$work/good.plan" "$work/newer.plan"
printf '\377' | dd of="$work/newer.plan" bs=1 seek=8 conv=notrunc 2>/dev/null
refused 3 'newer.plan: .*format' "$atoll" inspect "$work/newer.plan"

echo 'graph @g(%x: f32[2] input) { %y = expp(%x) return y=%y }' >"$work/bad.graph"
refused 3 'bad.graph:1:[0-9]+: found .expp.' "$atoll" compile "$work/bad.graph" -o "$work/x.plan"
echo 'graph @g(%x: f32[2] input, %w: f32[3] param) { %y = add(%x, %w) return y=%y }' >"$work/shape.graph"
refused 3 'do not broadcast' "$atoll" compile "$work/shape.graph" -o "$work/x.plan"
[ ! -e "$work/x.plan" ] || { echo "a refused compile left a plan"; failed=1; }

printf '1,2,0\n3,abc,1\n' >"$work/cell.csv"
refused 3 'cell.csv:2, column 2: found "abc", expected' "$atoll" train "$model" --data "$work/cell.csv"
printf '1,2,0\n3,1\n' >"$work/short.csv"
refused 3 'short.csv:2' "$atoll" train "$model" --data "$work/short.csv"
printf '1,2,0\n3,4,nan\n' >"$work/label.csv"
refused 3 'label.csv:2, column 3: found "nan"' "$atoll" train "$model" --data "$work/label.csv"
zcat "$digits" | head -8 | sed '3s/[0-9]*$/17/' >"$work/class.csv"
refused 3 'label 17, but the model has classes 0 to 9' "$atoll" train "$model" --data "$work/class.csv" --holdout 0
refused 3 'no column|has columns|columns' "$atoll" train "$model" --data "$digits" --label 99
refused 3 'No such file' "$atoll" train "$model" --data "$work/none.csv"
refused 3 'No such file' "$atoll" train "$work/none.graph" --data "$digits"

refused 2 'unknown option --batsh' "$atoll" train "$model" --batsh 3
refused 2 "no policy 'bf17'" "$atoll" train "$model" --data "$digits" --policy bf17
refused 2 'expected a number' "$atoll" train "$model" --data "$digits" --batch many
refused 2 'unknown command' "$atoll" trane
refused 4 "cannot be started" env ATOLL_CC=/nonexistent "$atoll" compile "$model" --policy bf16 -o "$work/x.plan"
refused 3 'x.plan: cannot be written: No such file' "$atoll" compile "$model" -o /proc/no_such_directory/x.plan

# A cache that cannot be used costs time only, and is warned of once.
warned() { # PATTERN
    if [ "$(wc -l <"$work/err")" -ne 1 ] || ! grep -qE -- "$1" "$work/err"; then
        echo "expected one warning like '$1', found: $(cat "$work/err")"
        failed=1
    fi
}
ATOLL_CACHE=/proc/none "$atoll" compile "$model" --policy bf16 -o "$work/y.plan" >/dev/null 2>"$work/err" || failed=1
warned 'warning: cache /proc/none: .*: cannot be written'
ATOLL_CACHE=/proc/none "$atoll" compare "$model" --data "$digits" --policies fp32,bf16 --epochs 1 >/dev/null 2>"$work/err" || failed=1
warned 'warning: cache /proc/none: .*: cannot be written'
for entry in "$work"/cache/*.kernels; do
    flip "$entry" 300
done
"$atoll" compile "$model" -o "$work/z.plan" >/dev/null 2>"$work/err" || failed=1
warned 'warning: cache entry .*kernels: .*; compiled again'
cmp "$work/good.plan" "$work/z.plan" || failed=1
[ $failed -eq 0 ] && echo "every broken input got its line and its exit code"
exit $failed
