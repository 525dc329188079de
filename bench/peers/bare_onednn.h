/* bench/: the peer of our linear, oneDNN called without Atoll. */
#ifndef ATOLL_BENCH_PEERS_BARE_ONEDNN_H
#define ATOLL_BENCH_PEERS_BARE_ONEDNN_H

#include <stdint.h>

struct bare_linear;
/* bf16 (m,k) x (n,k) transposed + (n) -> (m,n), zeros; NULL without oneDNN or bf16. */
struct bare_linear *bare_linear_create(int64_t m, int64_t k, int64_t n);
void bare_linear_run(struct bare_linear *b);
void bare_linear_destroy(struct bare_linear *b);

#endif
