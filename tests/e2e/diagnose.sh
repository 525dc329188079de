#!/usr/bin/env bash
# The commands that diagnose, as a user runs them: exit codes, one line on stderr, the same finding eagerly and fused, JSON that names it.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ATOLL_CACHE=$work/cache OMP_NUM_THREADS=1
atoll=$ATOLL_BIN/atoll
digits=$ATOLL_SOURCE/examples/digits.graph
transformer=$ATOLL_SOURCE/examples/transformer.graph
data=(--data "$ATOLL_SOURCE/examples/data/digits.csv.gz" --scale 1/16)
failed=0
wrong() {
    echo "$1"
    failed=1
}
# gives CODE PATTERN COMMAND...: the exit code, and a line like PATTERN on stdout or stderr
gives() {
    local code=$1 pattern=$2 found
    shift 2
    "$@" >"$work/out" 2>"$work/err"
    found=$?
    if [ $found -ne "$code" ] || ! grep -qE -- "$pattern" "$work/out" "$work/err"; then
        wrong "exit $found (expected $code), expected a line like '$pattern', found: $(head -c 900 "$work/out" "$work/err") [${*:2}]"
    fi
}

# ---- lint ----
for policy in fp32 bf16 fp16 bf16@torch-cuda fp16@torch-cuda bf16@torch-cpu fp16@torch-cpu; do
    gives 0 "^nothing found under $policy" "$atoll" lint "$digits" --policy $policy
    gives 0 "^nothing found under $policy" "$atoll" lint "$transformer" --policy $policy
done
cat >"$work/clip.graph" <<'GRAPH'
graph @clip(%x: f32[4] input, %w: f32[4] param, %s: f32[] state) {
  %p = mul(%x, %w)
  %l = sum(%p)
  %b = scale_loss(%l, %s)
  %g = mul(%b, %x)
  %n = global_norm(%g)
  return loss=%l, n=%n
}
GRAPH
gives 3 'V023' "$atoll" inspect "$work/clip.graph"
gives 1 'clip.graph:6: L031 %n = global_norm: %g still carries the loss scale %s; hint: unscale' "$atoll" lint "$work/clip.graph"
gives 1 '^atoll lint: 1 finding under fp32' "$atoll" lint "$work/clip.graph"
gives 1 '"code": "L031", "node": "n", "file": ".*clip.graph", "line": 6, "policy": "fp32", "what": ".*", "hint": ".*"}' "$atoll" lint "$work/clip.graph" --json
gives 1 'L030 %h1 = linear' "$atoll" lint "$digits" --policy fp16 --scaler off
gives 0 'nothing found' "$atoll" lint "$digits" --policy fp16 --scaler off --forward
gives 1 '@digits: eps=0' "$atoll" lint "$digits" --optimizer adam,eps=0
gives 2 "unknown policy|no policy" "$atoll" lint "$digits" --policy fp17
gives 3 'No such file' "$atoll" lint "$work/none.graph"
gives 2 'expected one MODEL' "$atoll" lint
gives 2 'found a plan' "$atoll" lint step.plan
"$atoll" inspect "$digits" --policy fp16 --scaler off --notes | grep '^lint: .*L030' >/dev/null || wrong "the notes lack what lint finds"

# ---- nonfinite ----
gives 0 '^all finite in 5 steps' "$atoll" nonfinite "$digits" "${data[@]}" --policy bf16 --steps 5
gives 0 '^all finite in 2 steps' "$atoll" nonfinite "$transformer" "${data[@]}" --policy fp16 --steps 2
cat >"$work/bad.graph" <<'GRAPH'
graph @bad(%x: f32[n,64] input, %y: i64[n] input, %w: f32[10,64] param {init="normal:0.01"}) {
  %z    = linear(%x, %w)
  %a    = mul(%z, 4000)
  %b    = abs(%a)
  %e    = exp(%b)
  %r    = reciprocal(%e)
  %t    = tanh(%r)
  %loss = cross_entropy(%t, %y)
  return loss=%loss, logits=%t
}
GRAPH
for how in "" --eager; do
    gives 1 '^step 1 .rows 1 to 64 of epoch 1., forward: %e .exp, .*bad.graph:5.\[[0-9]*,[0-9]*\] = inf: overflow' \
        "$atoll" nonfinite "$work/bad.graph" "${data[@]}" $how
    grep -q '^  operand %b f32: here [0-9.]*; from ' "$work/out" || wrong "no operand in $(cat "$work/out")"
    grep '^step\|operand' "$work/out" >"$work/found$how"
    gives 1 '^.atoll nonfinite: %e is not finite in step 1|^atoll nonfinite: %e is not finite in step 1' "$atoll" nonfinite "$work/bad.graph" "${data[@]}" $how
    [ "$(wc -l <"$work/err")" -eq 1 ] || wrong "more than a line on stderr: $(cat "$work/err")"
    gives 1 '^{"step": 1, "phase": "forward", "node": "e", "op": "exp", "of": "exp", .*"line": 5, "class": "overflow", "made": "inf"' \
        "$atoll" nonfinite "$work/bad.graph" "${data[@]}" --json $how
done
cmp "$work/found" "$work/found--eager" || wrong "eager and fused runs name different faults"
gives 1 'inside kernel k[0-9]*_[a-z_]*, one of its [0-9]+ ops' "$atoll" nonfinite "$work/bad.graph" "${data[@]}"

# the loss scaler's own overflows are counted, not reported
sed 's/mul(%z, 4000)/mul(%z, 40)/; s/ exp(/ neg(/; s/ reciprocal(/ mul(1000, /' "$work/bad.graph" >"$work/scaled.graph"
gives 0 'steps overflowed under the loss scale' "$atoll" nonfinite "$work/scaled.graph" "${data[@]}" --policy fp16 --steps 4
gives 1 'backward: .*: overflow' "$atoll" nonfinite "$work/scaled.graph" "${data[@]}" --policy fp16 --steps 4 --scaled
gives 1 'not finite in step' "$atoll" nonfinite "$digits" "${data[@]}" --optimizer sgd,lr=1e30
gives 2 '--data FILE is missing' "$atoll" nonfinite "$digits"
gives 2 'expected one MODEL' "$atoll" nonfinite
gives 2 '--steps 0: expected' "$atoll" nonfinite "$digits" "${data[@]}" --steps 0

exit $failed
