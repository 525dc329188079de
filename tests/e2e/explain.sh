#!/usr/bin/env bash
# atoll explain: a partial batch recompiles once and says so, sizes 0 and 1, limits, what changed in the kernel cache; the ledger of a
# training run with the same bits as without; the page and the JSON.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ATOLL_CACHE=$work/cache OMP_NUM_THREADS=1
atoll=$ATOLL_BIN/atoll
model=$ATOLL_SOURCE/examples/digits.graph
failed=0
wrong() {
    echo "$1"
    failed=1
}
has() { # FILE PATTERN
    grep -qE -- "$2" "$1" || wrong "no line like '$2' in: $(head -c 1500 "$1")"
}
exits() { # CODE COMMAND...
    local code=$1
    shift
    "$@" >"$work/out" 2>"$work/err"
    local found=$?
    [ $found -eq "$code" ] || wrong "exit $found, expected $code: ${*: -4}: $(head -c 300 "$work/err")"
}

# The list of the page: one recompile for 5, then none for any size from 2 on; 0 and 1 have a plan each.
cd "$ATOLL_SOURCE" || exit 1
exits 0 "$atoll" explain examples/digits.graph --policy bf16 --forward --shapes n=64,n=64,n=5,n=7,n=1,n=0,n=1 --save "$work/l.json" --html "$work/l.html"
has "$work/out" '^call 1, x f32\[64,64\], y i64\[64\]: built plan 1 in [0-9]+ ms for x f32\[64,64\], y i64\[64\]; [0-9]+ kernels compiled, 0 loaded'
has "$work/out" '^    why: the first call: there was no plan to compare with'
has "$work/out" '^call 2, x f32\[64,64\], y i64\[64\]: hit: plan 1 runs'
has "$work/out" '^call 3, x f32\[5,64\], y i64\[5\]: built plan 2 .* for x f32\[n,64\], y i64\[n\]; n >= 2'
has "$work/out" '^        \[dim\] dim 0 of x: 64 -> 5   \(argument x at examples/digits.graph:2\)'
has "$work/out" '^        \[dim\] dim 0 of y: 64 -> 5   \(argument y at examples/digits.graph:2\)'
has "$work/out" '^    advice: dim 0 of x took 64, then 5: it is a symbol from now on, 2 or more'
has "$work/out" '^call 4, x f32\[7,64\], y i64\[7\]: hit: plan 2 runs'
has "$work/out" '^call 5, .*: built plan 3 '
has "$work/out" '^        \[dim_range\] dim 0 of x: 2 or more -> 1 '
has "$work/out" '^    advice: dim 0 of x is 1: sizes 0 and 1 have a plan of their own'
has "$work/out" '^call 6, .*: built plan 4 '
has "$work/out" '^call 7, x f32\[1,64\], y i64\[1\]: hit: plan 3 runs'
has "$work/out" '^7 calls: 3 hits, 4 plans built \(3 recompiles\)'
[ "$(grep -c '^call ' "$work/out")" -eq 7 ] || wrong "not one paragraph a call"
grep -qE 'https?:|<script' "$work/l.html" && wrong "the page needs a network or a script"
for part in 'dim_range' 'class="island"' 'library call' 'bytes of intermediates alive' 'kernel sources' '&#38;' 'viewport'; do
    grep -q "$part" "$work/l.html" || wrong "the page lacks $part"
done
ATOLL_CHECK=1 exits 0 "$atoll" explain examples/digits.graph --policy bf16 --forward --shapes n=64,n=5,n=7,n=1,n=0 # every call has eager's bits
exits 0 "$atoll" explain --ledger "$work/l.json"
has "$work/out" '^call 3, x f32\[5,64\], y i64\[5\]: built plan 2 '
exits 0 "$atoll" explain --ledger "$work/l.json" --json --html "$work/again.html"
cmp "$work/out" "$work/l.json" || wrong "the ledger reads back otherwise"
cmp "$work/l.html" "$work/again.html" || wrong "the page of the ledger is another"

export ATOLL_CACHE=${ATOLL_TEST_CACHE:-$work/cache}

# A training run: batches of 64, the last of 5. One recompile in three epochs; the same bits as without a ledger.
run=("$atoll" train "$model" --data examples/data/digits.csv.gz --scale 1/16 --policy bf16 --holdout 0 --epochs 3)
exits 0 "${run[@]}" --save "$work/plain.safetensors"
exits 0 "${run[@]}" --save "$work/told.safetensors" --ledger "$work/run.json"
has "$work/out" '^ledger .*: 87 calls: 85 hits, 2 plans built \(1 recompile\)'
cmp "$work/plain.safetensors" "$work/told.safetensors" || wrong "a ledger changes the bits"
exits 0 "$atoll" explain --ledger "$work/run.json"
has "$work/out" '^call 29, x f32\[5,64\], y i64\[5\]: built plan 2 '
has "$work/out" 'dim 0 of x took 64, then 5: it is a symbol'
[ "$(grep -c ': built plan ' "$work/out")" -eq 2 ] || wrong "more builds than two"

# Learning rate, step count, loss scale and betas change at every step: no recompile in 1,000.
exits 0 "$atoll" train "$model" --data examples/data/digits.csv.gz --scale 1/16 --policy fp16 --holdout 0 --batch 3 --epochs 9 --steps 1000 \
    --schedule warmup,10+cosine,500 --clip 1 --ledger "$work/long.json"
has "$work/out" '^ledger .*: 1000 calls: 999 hits, 1 plan built \(0 recompiles\)'

# What may not be: over the limit, and any recompile at all. The message holds the history.
small=("$atoll" explain "$model" --forward --static)
exits 1 "${small[@]}" --shapes n=4,n=5,n=6 --limit 1
has "$work/err" 'call 3: over the limit of 1 recompiles: dim 0 of x 5 -> 6, .*built so far: call 1 \(first call\); call 2 \(dim 0 of x 4 -> 5'
has "$work/out" '^call 3, .*: REFUSED: '
exits 0 "${small[@]}" --shapes n=4,n=5,n=6,n=4 --limit 1 --eager-over-limit
has "$work/err" '^atoll: warning: .*over the limit of 1 recompiles'
has "$work/out" '^call 3, .*: EAGER, op by op: '
has "$work/out" '^call 4, x f32\[4,64\], y i64\[4\]: hit: plan 1 runs'
exits 1 "${small[@]}" --shapes n=4,n=5 --fail-on-recompile
has "$work/err" 'a recompile where none is allowed: dim 0 of x 4 -> 5'
exits 0 "${small[@]}" --shapes n=4,n=5,n=4,n=5 --capacity 1 --limit 9
has "$work/out" '^        \[evicted\] its plan: kept -> evicted to make room'

export ATOLL_CACHE=$work/cache

# The kernel cache names the part of the key that changed.
exits 0 "$atoll" explain "$model" --forward --shapes n=4 --policy bf16@torch-cuda
has "$work/out" '^    kernel cache: nearest of [0-9]+ entries of @digits, [0-9a-f]{16}, differs in .*policy: (bf16|fp16|fp32) strict -> bf16@torch-cuda strict'
printf '#!/bin/sh\nexec cc "$@"\n' >"$work/mycc" && chmod +x "$work/mycc"
ATOLL_CC=$work/mycc exits 0 "$atoll" explain "$model" --forward --shapes n=4 --policy bf16@torch-cuda
has "$work/out" "^    kernel cache: nearest .* differs in compiler: /.*cc of [0-9]+ bytes.* -> $work/mycc of"
exits 0 "$atoll" explain "$model" --forward --shapes n=4 --policy bf16@torch-cuda
has "$work/out" '0 kernels compiled, [1-9][0-9]* loaded from disk'
grep -q 'kernel cache' "$work/out" && wrong "a miss is told of a hit"

# The log as it happens.
ATOLL_LOG=recompiles,guards exits 0 "$atoll" explain "$model" --forward --shapes n=4,n=5
has "$work/err" '^atoll: recompiles: call 2, built: plan 2 in [0-9]+ ms: dim 0 of x 4 -> 5, dim 0 of y 4 -> 5'
has "$work/err" '^atoll: guards: plan 2: dim_range dim 0 of x is 2 or more \(argument x at'
has "$work/err" '^atoll: guards: plan 2: dim_same dim 0 of y is dim 0 of x'

# Files that are no ledger: one line.
echo '{"format": 1, "name": 3}' >"$work/bad.json"
exits 3 "$atoll" explain --ledger "$work/bad.json"
has "$work/err" 'bad.json: name: found a whole number, expected a text'
[ "$(wc -l <"$work/err")" -eq 1 ] || wrong "more than one line"
[ $failed -eq 0 ] && echo "calls are explained"
exit $failed
