#!/usr/bin/env bash
# atoll bench: every field is there; two runs agree in all that is no time; rows start alike, fused ends where eager ends;
# what cannot run says so and shows no number; the page loads nothing.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 TMPDIR=$work
model=$ATOLL_SOURCE/examples/digits.graph
bench() {
    "$ATOLL_BIN/atoll" bench "$model" --data "$ATOLL_SOURCE/examples/data/digits.csv.gz" --scale 1/16 --clip 1 --warmup 2 "$@"
}
die() { echo "$1"; exit 1; }
column() { # FILE NAME: the values of a CSV column
    awk -F, -v name="$2" 'NR == 1 {for (i = 1; i <= NF; i++) if ($i == name) at = i; next} {print $at}' "$1"
}
without_times() { # JSON: the fields that timing_fields names are taken out
    local text name
    text=$(cat "$1")
    for name in $(sed -n 's/.*"timing_fields": \[\(.*\)\].*/\1/p' "$1" | tr -d '",'); do
        text=$(sed "s/\"$name\": [^,]*, //g" <<<"$text")
    done
    echo "$text"
}
for run in 1 2; do
    bench --policies fp32,fp16,bf16 --params '*=bf16-stochastic,b?=f32' --steps 6 --repeats 2 \
        --json --csv "$work/$run.csv" --html "$work/$run.html" >"$work/$run.json"
    without_times "$work/$run.json" >"$work/$run.rest"
done
diff "$work/1.rest" "$work/2.rest" || die "two runs differ in a field that is no time"
grep -q '"step_us"' "$work/1.json" && ! grep -q '"step_us": ' "$work/1.rest" || die "no time was taken out: the comparison is void"
[ "$(column "$work/1.csv" policy | tr '\n' ' ')" = "fp32 fp32 fp16 fp16 bf16 bf16 " ] || die "rows are missing"
[ "$(column "$work/1.csv" status | sort -u)" = measured ] || die "a row was not measured"
[ "$(column "$work/1.csv" initial_hash | sort -u | wc -l)" = 1 ] || die "rows start from different parameters"
[ "$(column "$work/1.csv" state_hash | sort -u | wc -l)" = 3 ] || die "policies end alike, or eager and fused do not"
[ "$(column "$work/1.csv" same_as_eager | sort | uniq -c | tr -s ' \n' ' ')" = " 3 - 3 yes " ] || die "fused is not eager"
[ "$(column "$work/1.csv" accepted | sort -u)" = 6 ] || die "accepted steps"
for name in step_us step_us_low step_us_high spread_percent samples_per_second speedup compile_cold_ms compile_warm_ms first_step_ms \
    allocated_bytes state_bytes train_loss validation_loss validation_accuracy skipped; do
    [ "$(column "$work/1.csv" $name | grep -c '^[0-9]')" = 6 ] || die "$name: a number is missing"
done
for name in model graph parameters data x y batch training_rows validation_rows order seed steps warmup repeats optimizer schedule params \
    clip accumulate scaler rounding device emulated tf32 processor instructions threads compiler flags nvrtc contractions atoll; do
    grep -q "\"$name\": \"[^\"]" "$work/1.json" || die "setting $name is missing"
done
[ "$(column "$work/1.csv" reserved_bytes | sort -u)" = "" ] || die "the CPU has no figure of reserved memory, one is shown"
[ "$(grep -o '<svg viewBox="0 0 360' "$work/1.html" | wc -l)" -ge 5 ] || die "charts are missing"
grep -q 'width=device-width' "$work/1.html" || die "no width for phones"
! grep -qE 'https?:|src=|@import|url\(|<script' "$work/1.html" || die "the page loads something"
grep -q 'prefers-color-scheme:dark' "$work/1.html" || die "no colours for a dark screen"
[ "$(grep -o 'stroke="var(--l[0-7])" stroke-dasharray="none"' "$work/1.html" | wc -l)" = 2 ] || die "lines of the loss hide each other: one is solid, with its key"
for class in charts figures wide; do
    grep -q "class=\"[a-z ]*$class" "$work/1.html" || die "nothing on the page is of class $class"
done

# no compiler: eager is measured, fused says why it is not, without a number
ATOLL_CC=/nonexistent/cc bench --policies bf16 --steps 1 --repeats 1 --csv "$work/none.csv" --html "$work/none.html" >"$work/none"
grep -q '^bf16 *eager .* measured$' "$work/none" || die "eager was not measured"
grep -qE "^bf16 +fused( +-)+ +not run: C compiler '/nonexistent/cc'" "$work/none" || { cat "$work/none"; die "fused does not say why"; }
! grep -q 'bf16,fused,[^,]*[0-9]' "$work/none.csv" || die "a number nobody measured"
grep -q 'bf16 fused: not run: C compiler' "$work/none.html" || die "the page does not say why"
echo "bench: ok"
