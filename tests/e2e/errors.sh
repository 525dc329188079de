#!/usr/bin/env bash
# Broken input: one clear line, the documented exit code, nothing that looks like success.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernels=${ATOLL_TEST_CACHE:-$work/kernels}
export ATOLL_CACHE=$kernels OMP_NUM_THREADS=1
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

refused 2 "'bf16' is no way to keep parameters; expected f32, bf16-stochastic" "$atoll" train "$model" --data "$digits" --params bf16
refused 2 'the data has 1438 training rows' "$atoll" bench "$model" --data "$digits" --batch 2000
refused 2 "policy 'fp64' is unknown|fp64" "$atoll" bench "$model" --data "$digits" --policies fp32,fp64
refused 3 'none/x.html: cannot be written' "$atoll" bench "$model" --data "$digits" --html "$work/none/x.html"
explain=("$atoll" explain "$model" --forward)
refused 2 'shapes is missing' "${explain[@]}"
refused 2 "found 'n=', expected SYMBOL=N" "${explain[@]}" --shapes n=
refused 2 'found an empty call' "${explain[@]}" --shapes n=4,,n=5
refused 2 'no symbol .k.' "${explain[@]}" --shapes k=4
refused 2 'expected SYMBOL=N' "${explain[@]}" --shapes n=4:m=5
refused 2 'limit 0: expected a whole number' "${explain[@]}" --shapes n=4 --limit 0
refused 2 'capacity x: expected' "${explain[@]}" --shapes n=4 --capacity x
refused 2 'found a plan, expected a model' "$atoll" explain "$work/good.plan" --shapes n=4
refused 2 'expected one MODEL with --shapes, or --ledger FILE' "$atoll" explain
refused 2 'policy: a ledger is a record' "$atoll" explain --ledger x.json --policy bf16
refused 3 'none.json: .*No such file' "$atoll" explain --ledger "$work/none.json"
refused 3 'cannot be written' "${explain[@]}" --shapes n=4 --html "$work/none/page.html"
echo '[' >"$work/bad.json"
refused 3 'bad.json:[0-9]+:[0-9]+: no JSON' "$atoll" explain --ledger "$work/bad.json"
refused 2 'ledger and --resume' "$atoll" train "$model" --data "$digits" --ledger "$work/l.json" --resume "$work/none.safetensors"
refused 2 'ledger: found no step to record' "$atoll" train "$model" --data "$digits" --ledger "$work/l.json" --steps 0
refused 2 'ledger: a plan is compiled already' "$atoll" train "$work/good.plan" --data "$digits" --ledger "$work/l.json"

refused 2 'unknown option --batsh' "$atoll" train "$model" --batsh 3
refused 2 "no policy 'bf17'" "$atoll" train "$model" --data "$digits" --policy bf17
refused 2 'expected a whole number' "$atoll" train "$model" --data "$digits" --batch many
refused 2 'unknown command' "$atoll" trane
refused 4 "cannot be started" env ATOLL_CC=/nonexistent "$atoll" compile "$model" --policy bf16 -o "$work/x.plan"
refused 3 'x.plan: cannot be written: No such file' "$atoll" compile "$model" -o /proc/no_such_directory/x.plan

# The command line: what is wrong is named, with what would be right.
train=("$atoll" train "$model" --data "$digits")
refused 2 'after foo: expected a pass that runs here: simplify, index_checks, autocast, islands, lint, train_step, decompose, recompute' "$atoll" inspect "$model" --after foo
refused 2 'after train_step: expected a pass that runs here: simplify, index_checks, autocast, islands, lint, decompose' "$atoll" inspect "$model" --forward --after train_step
refused 2 "no float dtype 'f99'; there are f8e4m3, f8e5m2, f16, bf16, f32, f64" "$atoll" finfo f99
[ ! -s "$work/out" ] || { echo "finfo f99 printed on stdout: $(cat "$work/out")"; failed=1; }
refused 2 'no float dtype' "$atoll" finfo f99 --json
[ ! -s "$work/out" ] || { echo "finfo f99 --json printed on stdout: $(cat "$work/out")"; failed=1; }
refused 2 'expected one DTYPE or none' "$atoll" finfo f16 bf16
refused 2 'expected no argument' "$atoll" devices here
refused 2 'batch is given twice' "${train[@]}" --batch 64 --batch 32
refused 2 'unknown option -x' "${train[@]}" -x
refused 2 'epochs 1.5: expected a whole number' "${train[@]}" --epochs 1.5
refused 2 'epochs -1: expected a whole number' "${train[@]}" --epochs -1
refused 2 'lr is -1, expected 0 or more' "${train[@]}" --optimizer adamw,lr=-1
refused 2 'adamw: lr is given twice' "${train[@]}" --optimizer adamw,lr=1e-3,lr=1e-4
refused 2 'step: size is given twice' "${train[@]}" --schedule step,50,size=40
refused 2 'npy: found nothing' "$atoll" data "$digits" --npy ''
refused 2 "optimizer 'adagrad' is unknown" "${train[@]}" --optimizer adagrad
refused 2 'scale: found "0"' "${train[@]}" --scale 0
refused 2 'found "foo=1", expected label=, header=' "${train[@]}" --read foo=1
refused 2 'label a,b: expected one value' "${train[@]}" --label a,b
refused 2 'expected auto, on or off' "${train[@]}" --scaler maybe
refused 2 'expected strict or relaxed' "${train[@]}" --rounding loose
refused 3 'none.policy: No such file' "${train[@]}" --policy none.policy
refused 3 'fixes n=64, so %x \(f32\[n,64\]\) takes 64 rows; found a batch of 30 rows' "${train[@]}" --shape n=64 --epochs 1
refused 3 'fixes n=64, .* found a batch of 32 rows' "${train[@]}" --shape n=64 --batch 32
refused 3 'fixes n=64, .* found a batch of 30 rows' "$atoll" compare "$model" --data "$digits" --shape n=64
refused 2 "the model has no symbol 'm'; it has: n" "${train[@]}" --shape m=64
for shape in n n= n=-1 n=64, n=99999999999999999999; do
    refused 2 'expected SYMBOL=N' "${train[@]}" --shape "$shape"
done
refused 2 'symbol n is given twice' "${train[@]}" --shape n=64,n=32
sed 's/) {/) where n in [2,40] {/' "$model" >"$work/range.graph"
refused 2 'n=50 is outside the model.s range \[2, 40\]' "$atoll" compile "$work/range.graph" --shape n=50 -o "$work/x.plan"
refused 3 'symbol n = 64 is outside the range \[2, 40\]' "$atoll" train "$work/range.graph" --data "$digits"
refused 3 'symbol n = 64 is outside the range \[2, 40\]' "$atoll" train "$work/range.graph" --data "$digits" --eager

# Files: missing, directories, empty; what cannot be written is said before the work is done.
: >"$work/empty.graph" && : >"$work/empty.csv" && : >"$work/empty.plan"
refused 3 'found a directory, expected a text file' "$atoll" train "$work" --data "$digits"
refused 3 'found a directory, expected a regular file' "$atoll" train "$model" --data "$work"
refused 3 'found a directory, expected a text file' "${train[@]}" --policy "$work/"
refused 3 "empty.graph:1:1: found the end of the text, expected 'graph'" "$atoll" train "$work/empty.graph" --data "$digits"
refused 3 'empty.csv: found an empty file' "$atoll" train "$model" --data "$work/empty.csv"
refused 3 'empty.plan: found "" at its start' "$atoll" inspect "$work/empty.plan"
refused 2 'good.plan: found a plan, expected a model' "$atoll" compile "$work/good.plan"
refused 2 'good.plan: found a plan, expected a model' "$atoll" compare "$work/good.plan" --data "$digits"
refused 2 'policy: a plan is compiled already' "$atoll" train "$work/good.plan" --data "$digits" --policy bf16
refused 2 'notes: a plan is compiled already' "$atoll" inspect "$work/good.plan" --notes
refused 3 '/x.st: cannot be written: No such file' "${train[@]}" --steps 1 --save /proc/no_such_directory/x.st
[ ! -s "$work/out" ] || { echo "train began before it found that --save cannot be written"; failed=1; }
refused 2 'found a directory, expected the name of a file to write' "${train[@]}" --save "$work"
refused 2 'found nothing, expected the name of a file' "$atoll" compile "$model" --output=
refused 3 'no_such.st: cannot be read: No such file' "${train[@]}" --resume no_such.st
"${train[@]}" --steps 5 --save "$work/five.st" >/dev/null || failed=1
refused 2 'five.st is 5 steps on, this run ends after 3' "${train[@]}" --steps 3 --resume "$work/five.st"
export ATOLL_CACHE=0
refused 4 'no temporary directory can be made in /proc/none: .*hint: set TMPDIR' env TMPDIR=/proc/none "$atoll" compile "$model" -o "$work/x.plan"
refused 4 'has a name of 3000 bytes, expected at most 1000; hint: set TMPDIR' env TMPDIR="$(printf '/%.0s' {1..3000})" "$atoll" compile "$model" -o "$work/x.plan"
refused 4 'ATOLL_DUMP: /proc/none is no directory that can be written' env ATOLL_DUMP=/proc/none "${train[@]}" --steps 1
export ATOLL_CACHE=$kernels

# Models that the data cannot feed.
model_of() { echo "graph @g($1 %w: f32[10,64] param) { $2 }" >"$work/odd.graph"; }
odd=("$atoll" train "$work/odd.graph" --data "$digits")
model_of '%u: f32[n,64] input,' '%z = linear(%u, %w) %loss = sum(%z) return loss=%loss'
refused 3 'the model has no input %x' "${odd[@]}"
model_of '%x: f32[n,64] input, %c: f32[64] input,' '%h = mul(%x, %c) %z = linear(%h, %w) %loss = sum(%z) return loss=%loss'
refused 3 'the model reads input %c; found data for x and y only' "${odd[@]}"
refused 3 'the model reads input %c' "$atoll" compare "$work/odd.graph" --data "$digits"
model_of '%x: f32[n,65] input, %y: i64[n] input,' '%h = slice(%x) {axis=1, stop=64} %z = linear(%h, %w) %loss = cross_entropy(%z, %y) return loss=%loss'
refused 3 'the model reads labels %y, the data has none' "${odd[@]}" --label none
refused 3 '%x: expected f32\[n,65\], found f32\[64,64\]' "${odd[@]}"
model_of '%x: f32[n,64] input,' '%z = linear(%x, %w) return logits=%z'
refused 3 "^atoll train: train_step: graph @g: output 'logits' is f32\\[n,10\\], expected a float scalar" "${odd[@]}"

model_of '%x: f32[n,64] input,' '%z = linear(%x) return loss=%z'
refused 3 'linear: 1 operands, expected 2 to 3' "${odd[@]}"
echo 'graph @g(%x: f32[n,64] input) { %loss = sum(%x) return loss=%loss }' >"$work/odd.graph"
refused 3 'graph @g has no param' "${odd[@]}"
refused 3 'graph @g has no param' "$atoll" compile "$work/odd.graph" -o "$work/x.plan"
model_of '%x: f32[n,64] input, %b: f32[10] param {init="normal:"},' '%z = linear(%x, %w, %b) %loss = sum(%z) return loss=%loss'
refused 3 '%b: init "normal:": expected zeros, ones' "${odd[@]}"
refused 3 '%b: init "normal:": expected zeros, ones' "$atoll" compile "$work/odd.graph" -o "$work/x.plan"

# compare: a slip in the last policy shows before the first runs; no accuracy is no pass.
compare=("$atoll" compare "$model" --data "$digits" --epochs 1)
refused 2 "no policy 'foo'" "${compare[@]}" --policies fp32,foo
[ ! -s "$work/out" ] || { echo "compare ran before it found that a policy is unknown"; failed=1; }
refused 1 'no test accuracy to hold against 0.5' "${compare[@]}" --policies fp32 --holdout 0 --min-accuracy 0.5
refused 1 'test accuracy 0.[0-9]*, expected at least 1.0' "${compare[@]}" --policies fp32 --min-accuracy 1

# Figures that do not exist are left out, or null in JSON.
"$atoll" train "$work/good.plan" --data "$digits" --epochs 1 >"$work/out" 2>&1 || failed=1
grep -q 'no test accuracy (a plan holds the training step only)' "$work/out" || { cat "$work/out"; failed=1; }
"${train[@]}" --epochs 0 >>"$work/out" || failed=1
"${train[@]}" --holdout 0 --epochs 1 >>"$work/out" || failed=1
"$atoll" train "$work/good.plan" --data "$digits" --epochs 1 --json >"$work/json" || failed=1
"${train[@]}" --epochs 0 --json >>"$work/json" || failed=1
"${train[@]}" --epochs 1 --optimizer sgd,lr=1e30 --json >>"$work/json" || failed=1
"${compare[@]}" --holdout 0 --policies fp32 --json --values >>"$work/json" || failed=1
cat "$work/json" >>"$work/out"
if grep -n 'nan\|inf,\|-1\.0' "$work/out"; then
    echo "these lines hold a figure that is none"
    failed=1
fi
grep -q '"test_accuracy": null' "$work/json" || { cat "$work/json"; failed=1; }

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
export ATOLL_CACHE=$work/cache
"$atoll" compile "$model" -o "$work/good.plan" >/dev/null || failed=1
for entry in "$work"/cache/*.kernels; do
    flip "$entry" 300
done
"$atoll" compile "$model" -o "$work/z.plan" >/dev/null 2>"$work/err" || failed=1
warned 'warning: cache entry .*kernels: .*; compiled again'
cmp "$work/good.plan" "$work/z.plan" || failed=1
[ $failed -eq 0 ] && echo "every broken input got its line and its exit code"
exit $failed
