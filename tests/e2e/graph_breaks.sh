#!/usr/bin/env bash
# examples/graph_breaks explains each of its six situations once: the file and line, the guard, old -> new, the kind, and what to do.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ATOLL_CACHE=${ATOLL_TEST_CACHE:-$work/cache} OMP_NUM_THREADS=1
source=$ATOLL_SOURCE/examples/graph_breaks.c
failed=0
line() { grep -nF "$1" "$source" | head -1 | cut -d: -f1; }
# situation, what must stand there once (fixed text), ...
expect() {
    local name=$1
    shift
    if ! "$ATOLL_BIN/graph_breaks" "$name" >"$work/out" 2>"$work/err"; then
        echo "$name: $(cat "$work/err")"
        failed=1
    fi
    for text in "$@"; do
        n=$(grep -cF -- "$text" "$work/out")
        [ "$n" -eq 1 ] || { echo "$name: '$text' stands there $n times"; cat "$work/out"; failed=1; }
    done
    # An explanation is a paragraph (its first line is not indented) that tells of a break or of a plan that does not hold.
    n=$(awk '/^[^ ]/ { told = 0 } /graph break \(|plan [0-9]+ does not hold:/ { if (!told) n++; told = 1 } END { print n + 0 }' "$work/out")
    [ "$n" -eq 1 ] || { echo "$name: $n explanations, expected 1"; cat "$work/out"; failed=1; }
    n=$(grep -c '^    advice: ' "$work/out")
    [ "$n" -eq 1 ] || { echo "$name: $n times advice, expected 1"; cat "$work/out"; failed=1; }
}
expect "host read" "graph break (host read) at" "graph_breaks.c:$(line 'atoll_item(total)'), segment 0 ends, 2 times: atoll_item reads %total on the host: 8 (f32)" \
    "advice: read it after the call, as an output" "2 plans built (0 recompiles)"
expect "unsupported op" "graph break (host op) at" "graph_breaks.c:$(line 'atoll_host_op(h'), segment 0 ends, 2 times: no op 'sort' in the table: it runs on the host" \
    "advice: write it with the ops there are" "2 plans built (0 recompiles)"
expect "changing constant" "[constant] constant: 0.1 -> 0.05   (constant at" "graph_breaks.c:$(line 'atoll_number(t, s->constant)') changed 0.1 -> 0.05: pass it as a scalar" \
    "(1 recompile)"
expect "changing shape" "[dim] dim 0 of x: 64 -> 5   (argument x at" "advice: dim 0 of x took 64, then 5: it is a symbol from now on" \
    "graph_breaks.c:$(line 'atoll_call(f, &x'))" "(1 recompile)"
expect "changing dtype" "[dtype] x: f32 -> i32   (argument x at" "advice: x came as i32, was f32: cast it before the call" \
    "graph_breaks.c:$(line 'atoll_call(f, &x'))" "(1 recompile)"
expect "data-dependent branch" "graph_breaks.c:$(line 'if (atoll_item(mean)'), segment 0 ends, 2 times: atoll_item reads %mean on the host: 0.25 -> 2 (f32)" \
    "[read] %mean, read on the host: 0.25 -> 2   (atoll_item at" "[trace] op 3 of the trace: tanh(%x) at" "-> exp(%x) at" \
    "advice: after the host read the function took another way (exp at" "graph_breaks.c:$(line 'atoll_exp(a[0])')): choose by atoll's where instead of an if, or read it after the call" \
    "(1 recompile)"
[ $failed -eq 0 ] && echo "six situations, one explanation each"
exit $failed
