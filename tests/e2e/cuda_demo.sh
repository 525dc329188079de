#!/usr/bin/env bash
# The digits demo on cuda:0 (the emulator here): fused gives the bits of one op at a time under three policies; a plan made
# for sm_90a steps with no NVRTC on the machine and gives the checkpoint of atoll train; checkpoints resume; and the
# emulator has nothing to object to.
set -euo pipefail
if [ -z "${ATOLL_LIBCUDA-}" ] || [ -z "${ATOLL_LIBCUBLASLT-}" ]; then
    echo "skipped: needs ATOLL_LIBCUDA and ATOLL_LIBCUBLASLT (the emulator's libraries)"
    exit 77
fi
if ! "$ATOLL_BIN/atoll" devices | grep '^CUDA compiler: NVRTC' >/dev/null; then
    echo "skipped: no NVRTC"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ATOLL_CACHE=${ATOLL_TEST_CACHE:-$work/cache} OMP_NUM_THREADS=1 ATOLL_EMULATOR_STRICT=1
model=$ATOLL_SOURCE/examples/digits.graph
data=(--data "$ATOLL_SOURCE/examples/data/digits.csv.gz" --scale 0.0625)
same() {
    cmp "$1" "$2" || { echo "$3: the checkpoints differ"; exit 1; }
    echo "$3: same bytes"
}
batch=64 steps=12 half=5
[ -z "${ATOLL_SANITIZED-}" ] || batch=480 steps=4 half=2 # three steps an epoch, the last one of fewer rows
"$ATOLL_BIN/atoll" compare "$model" "${data[@]}" --device cuda:0 --epochs 1 --clip 1 --batch $batch | tee "$work/compare"
grep -q ', 0 with different bits' "$work/compare"
"$ATOLL_BIN/atoll" compare "$model" "${data[@]}" --device cuda:0 --policies bf16 --epochs 1 --batch 512 \
    --params '*=bf16-stochastic,b?=bf16-remainder' | tee "$work/compare"
grep -q ', 0 with different bits' "$work/compare"

# relaxed rounding parts: compare names the same first value on the device as on the CPU
cat >"$work/parts.graph" <<'GRAPH'
graph @g(%x: f32[n,64] input, %y: i64[n] input, %w: f32[10,64] param) {
  %h = linear(%x, %w)
  %a = tanh(%h)
  %b = mul(%a, %a)
  %c = add(%b, %h)
  %loss = cross_entropy(%c, %y)
  return loss=%loss, logits=%c
}
GRAPH
for device in cpu cuda:0; do
    "$ATOLL_BIN/atoll" compare "$work/parts.graph" "${data[@]}" --device $device --policies bf16 --rounding relaxed --epochs 1 \
        --batch 1000 >"$work/parts"
    grep '^bf16: fused and eager part at %c (add[^)]*)\[[0-9]*,[0-9]*\]: eager ' "$work/parts" || {
        cat "$work/parts"
        echo "$device: compare does not name where fused and eager part"
        exit 1
    }
done

"$ATOLL_BIN/atoll" compile "$model" --policy fp16 --clip 1 --target cuda:sm_90a --target cuda:sm_90 -o "$work/step.plan"
plain=(--no-shuffle --holdout 0 --quiet --device cuda:0)
ATOLL_LIBNVRTC=/nonexistent "$ATOLL_BIN/atoll" train "$work/step.plan" "${data[@]}" "${plain[@]}" --steps $steps --save "$work/plan.st"
ATOLL_LIBNVRTC=/nonexistent "$ATOLL_BIN/atoll" train "$work/step.plan" "${data[@]}" "${plain[@]}" --steps $half --save "$work/half.st"
ATOLL_LIBNVRTC=/nonexistent "$ATOLL_BIN/atoll" train "$work/step.plan" "${data[@]}" "${plain[@]}" --steps $steps \
    --resume "$work/half.st" --save "$work/resumed.st"
same "$work/resumed.st" "$work/plan.st" "stopped after $half steps and resumed"
for mode in "" --eager; do
    "$ATOLL_BIN/atoll" train "$model" --policy fp16 --clip 1 "${data[@]}" "${plain[@]}" --steps $steps $mode --save "$work/model$mode.st"
done
same "$work/model.st" "$work/plan.st" "model and plan"
same "$work/model--eager.st" "$work/plan.st" "one op at a time and plan"
# with a ledger each batch is fed when its step comes, without one it travels while the step before runs
"$ATOLL_BIN/atoll" train "$model" --policy fp16 --clip 1 "${data[@]}" "${plain[@]}" --steps $steps --ledger "$work/ledger" --save "$work/fed.st"
same "$work/fed.st" "$work/plan.st" "fed and prefetched"
"$ATOLL_BIN/atoll" train "$work/step.plan" "${data[@]}" "${plain[@]}" --steps 4 --json |
    grep -Eq '"pinned_allocated_bytes": *33792, *"pinned_reserved_bytes": *33792[,}]' # 64 x 64 f32 and 64 i64, twice
if "$ATOLL_BIN/atoll" train "$work/step.plan" "${data[@]}" --quiet 2>"$work/error"; then
    echo "a plan without code for the CPU ran there"
    exit 1
fi
grep -q 'compile with --target cpu' "$work/error"
