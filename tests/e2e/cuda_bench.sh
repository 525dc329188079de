#!/usr/bin/env bash
# atoll bench on cuda:0 (the emulator here): rows marked as no speed, memory of the device, eager and fused the same bits,
# two runs the same but for times.
set -euo pipefail
if [ -z "${ATOLL_LIBCUDA:-}" ]; then
    echo "skipped: ATOLL_LIBCUDA names no driver"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 TMPDIR=$work ATOLL_EMULATOR_STRICT=1
cat >"$work/small.graph" <<'G'
graph @small(%x: f32[n,4] input, %y: i64[n] input, %w: f32[3,4] param, %b: f32[3] param) {
  %z = linear(%x, %w, %b)
  %loss = cross_entropy(%z, %y)
  return loss=%loss, logits=%z
}
G
for i in $(seq 40); do echo "$((i % 5)),$((i % 7)),$((i % 3)),1,$((i % 3))"; done >"$work/small.csv"
die() { echo "$1"; exit 1; }
for run in 1 2; do
    "$ATOLL_BIN/atoll" bench "$work/small.graph" --data "$work/small.csv" --scale 1/4 --policies bf16 --batch 8 --steps 3 --warmup 1 \
        --repeats 2 --device cuda:0 --json >"$work/$run.json"
    sed -E 's/"(step_us|step_us_low|step_us_high|spread_percent|samples_per_second|speedup|compile_cold_ms|compile_warm_ms|first_step_ms)": [^,]*, //g' \
        "$work/$run.json" >"$work/$run.rest"
done
diff "$work/1.rest" "$work/2.rest" || die "two runs differ in a field that is no time"
grep -q '"mode": "fused".*"same_as_eager": "yes"' "$work/1.json" || die "fused is not eager"
grep -qE '"allocated_bytes": [1-9][0-9]*, "reserved_bytes": [1-9]' "$work/1.json" || die "no memory of the device"
if grep -q '"emulated": "yes' "$work/1.json"; then
    [ "$(grep -c '"status": "emulated: not a speed"' "$work/1.json")" = 2 ] || die "rows of an emulated device look like speeds"
fi
echo "bench on $(sed -n 's/.*"device": "\([^"]*\)".*/\1/p' "$work/1.json"): ok"
