#!/usr/bin/env bash
# A plan stepped by a C program with an empty environment gives the checkpoint that atoll train gives; a run that stopped and resumed gives the
# bytes of one that did not.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ATOLL_CACHE=${ATOLL_TEST_CACHE:-$work/cache} OMP_NUM_THREADS=1
model=$ATOLL_SOURCE/examples/digits.graph
data=(--data "$ATOLL_SOURCE/examples/data/digits.csv.gz" --scale 0.0625)
same() {
    cmp "$1" "$2" || { echo "$3: the checkpoints differ"; exit 1; }
    echo "$3: same bytes"
}
"$ATOLL_BIN/atoll" compile "$model" --policy fp16 --clip 1 --schedule step,20,0.5 -o "$work/step.plan"

# the optimizer is one kernel over all six parameters, with clipping and without
"$ATOLL_BIN/atoll" compile "$model" -o "$work/plain.plan"
for plan in step plain; do
    "$ATOLL_BIN/atoll" inspect "$work/$plan.plan" | grep sqr | grep ' over 6 tensors$' || {
        echo "$plan.plan: AdamW is not one call over 6 tensors"
        exit 1
    }
done
"$ATOLL_BIN/atoll" data "$ATOLL_SOURCE/examples/data/digits.csv.gz" --scale 0.0625 --npy "$work/d" >"$work/out"
env -i PATH= "$ATOLL_BIN/step_plan" "$work/step.plan" "$work/d_x.npy" "$work/d_y.npy" 64 40 "$work/c.st" >"$work/out"
plain=(--no-shuffle --holdout 0 --quiet)
"$ATOLL_BIN/atoll" train "$work/step.plan" "${data[@]}" "${plain[@]}" --epochs 2 --steps 40 --save "$work/cli.st" >"$work/out"
same "$work/c.st" "$work/cli.st" "step_plan and atoll train"
"$ATOLL_BIN/atoll" train "$work/step.plan" "${data[@]}" "${plain[@]}" --epochs 2 --steps 15 --save "$work/half.st" >"$work/out"
"$ATOLL_BIN/atoll" train "$work/step.plan" "${data[@]}" "${plain[@]}" --epochs 2 --steps 40 --resume "$work/half.st" --save "$work/resumed.st" >"$work/out"
same "$work/resumed.st" "$work/cli.st" "stopped after 15 steps and resumed"
for mode in "" --eager; do
    "$ATOLL_BIN/atoll" train "$model" "${data[@]}" --policy bf16 --quiet --steps 30 $mode --save "$work/model$mode.st" >"$work/out"
done
same "$work/model.st" "$work/model--eager.st" "fused and eager"
