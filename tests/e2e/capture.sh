#!/usr/bin/env bash
# The digits model built by C calls trains to the checkpoint of atoll train, byte for byte: three policies, fused and eager, the last partial
# batch of an epoch included. Without a compiler it says so and gives the same bytes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ATOLL_CACHE=${ATOLL_TEST_CACHE:-$work/cache} OMP_NUM_THREADS=1
data=$ATOLL_SOURCE/examples/data/digits.csv.gz
"$ATOLL_BIN/atoll" data "$data" --scale 1/16 --npy "$work/d" >"$work/out"
loop() { "$ATOLL_BIN/training_loop" "$work/d_x.npy" "$work/d_y.npy" "$@"; }
# the loop's model also says how many rows it gets right; that output changes no parameter
for policy in fp32 bf16 fp16; do
    "$ATOLL_BIN/atoll" train "$ATOLL_SOURCE/examples/digits.graph" --data "$data" --scale 1/16 --policy $policy \
        --no-shuffle --holdout 0 --epochs 2 --quiet --save "$work/cli.st" >"$work/out"
    for mode in fused eager; do
        loop $policy 2 "$work/c.st" $mode >"$work/out"
        cmp "$work/c.st" "$work/cli.st" || { echo "$policy $mode: the checkpoints differ"; exit 1; }
        grep -q "^epoch 2  step 58  loss " "$work/out" || { echo "$policy $mode: not 29 steps an epoch"; cat "$work/out"; exit 1; }
        echo "$policy $mode: same bytes, $(tail -1 "$work/out")"
    done
done
loop fp16 2 "$work/eager.st" >"$work/out" 2>"$work/err"
[ ! -s "$work/err" ] || { echo "a fused run warned: $(cat "$work/err")"; exit 1; }
ATOLL_CC=/nonexistent/cc ATOLL_CACHE=0 loop fp16 2 "$work/none.st" >"$work/out" 2>"$work/err"
grep -q "running eagerly instead, with the same bits" "$work/err" || { echo "no compiler, and nothing said"; exit 1; }
cmp "$work/none.st" "$work/cli.st"
if loop nonsense 1 "$work/x.st" >"$work/out" 2>"$work/err"; then
    echo "a policy that there is not was accepted"
    exit 1
fi
grep -q "nonsense" "$work/err"
