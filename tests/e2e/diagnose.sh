#!/usr/bin/env bash
# The commands that diagnose, as a user runs them: exit codes, one line on stderr, the same finding eagerly and fused, JSON that names it.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ATOLL_CACHE=${ATOLL_TEST_CACHE:-$work/cache} OMP_NUM_THREADS=1
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
gives 0 '^lint: .*L030' "$atoll" inspect "$digits" --policy fp16 --scaler off --notes

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
    gives 1 '^atoll nonfinite: %e is not finite in step 1' "$atoll" nonfinite "$work/bad.graph" "${data[@]}" $how
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

# ---- ranges ----
gives 0 '^%w1 +param +f32 ' "$atoll" ranges "$digits" "${data[@]}" --policy bf16 --steps 3
grep -q '^%logits.grad ' "$work/out" || wrong "ranges has no gradient"
grep -qE '^(%lr|%eps) ' "$work/out" && wrong "ranges shows settings"
gives 0 '^over 3 steps' "$atoll" ranges "$digits" "${data[@]}" --policy bf16 --steps 3
gives 0 '"value": "h1", "op": "linear", .*"f8e5m2_saturate": 0}' "$atoll" ranges "$digits" "${data[@]}" --policy bf16 --steps 3 --json
cp "$work/out" "$work/fused"
gives 0 '"value": "h1"' "$atoll" ranges "$digits" "${data[@]}" --policy bf16 --steps 3 --json --eager
cmp "$work/out" "$work/fused" || wrong "eager and fused runs have different ranges"
gives 0 '^%w1 +param +f32 +[0-9.e+]+ +[0-9.e-]+ +- +- +[0-9.]+% ' "$atoll" ranges "$digits" "${data[@]}" --steps 2 --optimizer sgd,lr=1e9
gives 0 '"value": "", "op": ' "$atoll" ranges "$digits" "${data[@]}" --steps 1 --all --json
gives 2 '--data FILE is missing' "$atoll" ranges "$digits"

# ---- compare --bisect ----
cat >"$work/m.graph" <<'GRAPH'
graph @g(%x: f32[n,3] input, %y: i64[n] input, %w: f32[4,3] param {init="normal:0.5"}) {
  %h = linear(%x, %w)
  %t = tanh(%h)
  %s = mul(%t, 0.5)
  %loss = cross_entropy(%s, %y)
  return loss=%loss, logits=%s
}
GRAPH
for i in $(seq 40); do echo "0.$i,-0.$((i * 7 % 40)),1.$((i * 3 % 17)),$((i % 4))"; done >"$work/m.csv"
compare=("$atoll" compare "$work/m.graph" --data "$work/m.csv" --batch 8 --epochs 2 --bisect)
gives 0 'bisect: every output and gradient is within' "${compare[@]}" --policies fp32
grep -q 'bisect: .*fusion' "$work/out" && wrong "a fusion is named though nothing differs"
gives 0 '^bf16: bisect: fusion [0-9]+ of [0-9]+ .*: it takes its first [0-9]+ of [0-9]+ ops in one kernel, up to %' \
    "${compare[@]}" --policies bf16 --rounding relaxed
gives 0 '^fp16: bisect: policy decision for %h .linear, .*m.graph:2.: .* hint: node "h" f32' "${compare[@]}" --policies fp16 --part 1e-5
gives 0 '"policy": "fp16", "parting": "policy", "at": "policy decision for %h ' "${compare[@]}" --policies fp16 --part 1e-5 --json
# A compiler that spoils tanh wherever it stands, and one that does so where a mul follows in the same kernel.
planted_cc() { # NAME AWK-CONDITION
    cat >"$work/$1" <<CC
#!/usr/bin/env bash
for file in "\$@"; do
    case \$file in
    *.c) awk '/^void k/ { is_it = $2 } is_it { gsub(/op_tanh_f32/, "-op_tanh_f32") } { print }' "\$file" >"\$file.new" && mv "\$file.new" "\$file" ;;
    esac
done
exec cc "\$@"
CC
    chmod +x "$work/$1"
}
export ATOLL_CACHE=$work/cache # what a wrong compiler makes is for nobody else
planted_cc everywhere 1
planted_cc fused '/tanh_mul/'
ATOLL_CC=$work/everywhere gives 1 '^fp32: bisect: no fusion: with every op a kernel of its own the runs part at %t .tanh, .*m.graph:3.' \
    "${compare[@]}" --policies fp32
ATOLL_CC=$work/fused gives 1 '^fp32: bisect: fusion [0-9]+ of [0-9]+ .k[0-9]+_tanh_mul[^)]*.: it takes its first 2 of [0-9]+ ops in one kernel, up to %s: tanh.%t. mul.%s.; without' \
    "${compare[@]}" --policies fp32

exit $failed
