#!/usr/bin/env bash
# A few hundred random graphs with a fresh seed, fused against eager bit by bit. The seed is printed: atoll-fuzz --seed repeats it.
set -euo pipefail
seed=${ATOLL_FUZZ_SEED:-$((RANDOM * 32768 + RANDOM))}
case $ATOLL_BIN in
*/asan/*) graphs=30 ;;
*) graphs=200 ;;
esac
echo "seed $seed, $graphs graphs"
"$ATOLL_BIN/atoll-fuzz" --graphs "$graphs" --seed "$seed" --threads 1,2,3
# parameters kept as bf16 are among what is drawn
forms=$("$ATOLL_BIN/atoll-fuzz" --graphs 30 --seed 77 --level 0 --coverage)
for op in bf16_join bf16_rest bf16_stochastic; do
    grep -qE "^$op +[1-9]" <<<"$forms" || { echo "no graph with $op"; exit 1; }
done
