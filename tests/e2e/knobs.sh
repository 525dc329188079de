#!/usr/bin/env bash
# The environment's knobs: help, dumps that parse again, logs by category, passes left out, checks of fused launches against eager
# with a compiler that miscompiles on purpose, and what compare says of the same.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ATOLL_CACHE=${ATOLL_TEST_CACHE:-$work/cache} OMP_NUM_THREADS=1
atoll=$ATOLL_BIN/atoll
model=$ATOLL_SOURCE/examples/digits.graph
run=("$atoll" train "$model" --data "$ATOLL_SOURCE/examples/data/digits.csv.gz" --scale 0.0625 --policy bf16 --steps 4)
failed=0
wrong() {
    echo "$1"
    failed=1
}
has() { # FILE PATTERN
    grep -qE -- "$2" "$1" || wrong "no line like '$2' in: $(head -c 600 "$1")"
}

# ATOLL_HELP lists every row of env.def.
ATOLL_HELP=1 "$atoll" >"$work/help" || wrong "ATOLL_HELP fails"
rows=$(grep -oE '^X\([A-Z_]+' "$ATOLL_SOURCE/frontend/env.def" | cut -c3-)
for name in $rows; do
    has "$work/help" "^$name "
done
[ "$(echo "$rows" | wc -l)" -ge 11 ] || wrong "env.def has fewer rows than it had"

# ATOLL_DUMP: numbered stages; every graph parses again, and what it parses to prints the same text.
ATOLL_DUMP=$work/dump "${run[@]}" >"$work/out" || wrong "a dumping run fails"
stages=$(cd "$work/dump" && echo *)
[ "$stages" = "00_capture.graph 01_simplify.graph 02_index_checks.graph 03_autocast.graph 04_islands.graph 05_lint.graph 06_train_step.graph 07_decompose.graph 08_simplify.graph 09_recompute.graph 10_kernels.c" ] ||
    wrong "dumped: $stages"
for graph in "$work"/dump/*.graph; do
    ATOLL_DUMP=$work/again "$atoll" inspect "$graph" --forward >"$work/out" 2>&1 || wrong "$graph: $(cat "$work/out")"
    cmp "$graph" "$work/again/00_capture.graph" || wrong "$graph: printed otherwise after parsing"
done
ATOLL_DUMP=/proc/none "${run[@]}" >"$work/out" 2>"$work/err" && wrong "a dump that cannot be written is no error"
has "$work/err" 'ATOLL_DUMP: /proc/none'

# ATOLL_LOG: only what was asked for; an unknown category is named once.
ATOLL_LOG=fusion,memory "${run[@]}" >"$work/out" 2>"$work/err" || wrong "a logging run fails"
has "$work/err" '^atoll: fusion: group 0, '
has "$work/err" '^atoll: memory: peak [0-9]+ bytes'
has "$work/err" '^atoll: memory: [0-9]+ of [0-9]+ updates in place'
! grep -vE '^atoll: (fusion|memory): ' "$work/err" || wrong "other categories were logged"
ATOLL_LOG=kernels,precision,fussion "${run[@]}" >"$work/out" 2>"$work/err" || wrong "a misspelt category stops the run"
has "$work/err" '^atoll: kernels: [0-9]+ kernels for [0-9]+ groups, '
has "$work/err" '^atoll: precision: (autocast|islands): '
[ "$(grep -c "no category 'fussion'; there are fusion, precision, memory, kernels" "$work/err")" -eq 1 ] || wrong "no warning of a misspelt category"
"${run[@]}" >"$work/out" 2>"$work/err"
[ ! -s "$work/err" ] || wrong "without ATOLL_LOG: $(head -1 "$work/err")"

# ATOLL_DISABLE, ATOLL_STOP_AFTER: what is left out is left out, and the step runs all the same.
groups() { grep -oE 'for [0-9]+ groups' | grep -oE '[0-9]+'; }
all=$(ATOLL_LOG=kernels "${run[@]}" 2>&1 >"$work/out" | groups)
apart=$(ATOLL_LOG=kernels ATOLL_DISABLE=fuse "${run[@]}" 2>&1 >"$work/out2" | groups)
[ "$apart" -gt $((2 * all)) ] || wrong "unfused: $apart groups, fused: $all"
[ "$(grep -o 'loss [0-9.]*' "$work/out" | tail -1)" = "$(grep -o 'loss [0-9.]*' "$work/out2" | tail -1)" ] || wrong "fusion changes the loss"
ATOLL_DUMP=$work/few ATOLL_DISABLE=islands,simplify,lint,recompute "${run[@]}" >"$work/out" || wrong "without islands and simplify"
[ "$(cd "$work/few" && echo *.graph)" = "00_capture.graph 01_index_checks.graph 02_autocast.graph 03_train_step.graph 04_decompose.graph" ] ||
    wrong "left out islands, simplify: $(ls "$work/few")"
ATOLL_DUMP=$work/stop ATOLL_STOP_AFTER=autocast "${run[@]}" >"$work/out" || wrong "stopped after autocast"
[ "$(cd "$work/stop" && echo *.graph)" = "00_capture.graph 01_simplify.graph 02_index_checks.graph 03_autocast.graph 04_train_step.graph 05_decompose.graph" ] ||
    wrong "stopped after autocast: $(ls "$work/stop")"
for bad in "ATOLL_DISABLE=decompose|decompose cannot be left out" "ATOLL_DISABLE=fuze|no pass 'fuze'" "ATOLL_STOP_AFTER=no|no pass 'no'"; do
    env "${bad%%|*}" "${run[@]}" >"$work/out" 2>"$work/err"
    [ $? -ge 2 ] || wrong "${bad%%|*}: not refused"
    has "$work/err" "${bad##*|}"
done

# Why neighbours are not one kernel: by group, under the groups.
"$atoll" inspect "$model" --groups >"$work/out" || wrong "inspect --groups"
has "$work/out" '^fuse: %h1: groups [0-9]+ and [0-9]+: a linear is a library call'

# ATOLL_CHECK: silent over sound kernels. A compiler that turns the tanh of generated code into a minus is caught at its launch.
echo 'graph @g(%x: f32[n,3] input, %y: i64[n] input, %w: f32[4,3] param {init="normal:0.5"}) {
  %h = linear(%x, %w)
  %t = tanh(%h)
  %s = mul(%t, 0.5)
  %loss = cross_entropy(%s, %y)
  return loss=%loss, logits=%s
}' >"$work/m.graph"
for i in $(seq 40); do echo "0.$i,-0.$((i * 7 % 40)),1.$((i * 3 % 17)),$((i % 4))"; done >"$work/m.csv"
small=(train "$work/m.graph" --data "$work/m.csv" --batch 8 --epochs 1)
ATOLL_CHECK=1 "$atoll" "${small[@]}" >"$work/out" 2>"$work/err" || wrong "sound kernels: $(cat "$work/err")"
ATOLL_CHECK=1 "${run[@]}" >"$work/out" 2>"$work/err" || wrong "sound kernels: $(cat "$work/err")"
export ATOLL_CACHE=$work/cache # what a wrong compiler makes is for nobody else
cat >"$work/cc" <<'CC'
#!/usr/bin/env bash
for file in "$@"; do
    case $file in
    *.c) sed -i 's/op_tanh_f32(\(v[0-9]*\))/(-\1)/' "$file" ;;
    esac
done
exec cc "$@"
CC
chmod +x "$work/cc"
ATOLL_CC=$work/cc "$atoll" "${small[@]}" >"$work/out" 2>"$work/err"
[ ! -s "$work/err" ] || wrong "the planted compiler does not compile: $(cat "$work/err")"
ATOLL_CC=$work/cc ATOLL_CHECK=1 "$atoll" "${small[@]}" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] || wrong "a miscompiled kernel passes ATOLL_CHECK"
has "$work/err" 'a fused launch differs from eager: %(t|s) \((tanh|mul)[^)]*\)\[0,0\]: eager [-0-9.e]+, fused [-0-9.e]+, in launch [0-9]+ \(k[0-9]+_tanh'
compare=(compare "$work/m.graph" --data "$work/m.csv" --batch 8 --epochs 2)
ATOLL_CC=$work/cc "$atoll" "${compare[@]}" --policies fp32 >"$work/out" 2>"$work/err"
[ $? -eq 1 ] || wrong "compare does not fail over a miscompiled kernel"
has "$work/out" '^fp32: fused and eager part at %(t|s) \((tanh|mul)[^)]*\)\[0,0\]: eager '
has "$work/err" 'fused differs from eager, first at fp32: %(t|s) '

# compare over sound kernels: relaxed rounding parts by itself and is no failure; a tolerance of 0 names the first rounded value.
"$atoll" "${compare[@]}" --policies fp32 >"$work/out" 2>"$work/err" || wrong "compare: $(cat "$work/err")"
! grep -q 'fused and eager part' "$work/out" || wrong "a parting of equal runs"
"$atoll" "${compare[@]}" --policies bf16 --rounding relaxed >"$work/out" 2>"$work/err" || wrong "relaxed: $(cat "$work/err")"
has "$work/out" '^bf16: fused and eager part at %'
"$atoll" "${compare[@]}" --policies bf16 --part 0 --json >"$work/out" || wrong "compare --part 0"
has "$work/out" '"parting": "reference", "at": "%h \(linear[^)]*\)\[[0-9],[0-9]\]: [-0-9.]+, reference '
[ $failed -eq 0 ] && echo "knobs do what they say"
exit $failed
