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
