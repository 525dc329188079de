/* Random numbers: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
 * as 1, 2, 3", 2011). A draw is a function of (seed, stream, index) alone, so eager and fused code,
 * whatever their launch geometry, draw the same numbers, and a backward pass may draw them again.
 * Needs convert.h and math.h before it. */
#ifndef A_PRELUDE_PHILOX
#define A_PRELUDE_PHILOX

/* Counter c0..c3 and key k0, k1 in; returns the output word with number `word` (0..3). */
A_FN uint32_t philox4x32(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0,
                         uint32_t k1, uint32_t word)
{
#define A_ROUND                                                                                    \
    {                                                                                              \
        uint64_t p = (uint64_t)c0 * 0xD2511F53u, q = (uint64_t)c2 * 0xCD9E8D57u;                   \
        uint32_t next0 = (uint32_t)(q >> 32) ^ c1 ^ k0;                                            \
        uint32_t next2 = (uint32_t)(p >> 32) ^ c3 ^ k1;                                            \
        c1 = (uint32_t)q;                                                                          \
        c3 = (uint32_t)p;                                                                          \
        c0 = next0;                                                                                \
        c2 = next2;                                                                                \
        k0 += 0x9E3779B9u;                                                                         \
        k1 += 0xBB67AE85u;                                                                         \
    }
    A_ROUND A_ROUND A_ROUND A_ROUND A_ROUND A_ROUND A_ROUND A_ROUND A_ROUND A_ROUND
#undef A_ROUND
        uint32_t low = (word & 1u) != 0u ? c1 : c0;
    uint32_t high = (word & 1u) != 0u ? c3 : c2;
    return (word & 2u) != 0u ? high : low;
}

/* Draw `index` of a stream: word index % 4 of block index / 4. */
A_FN uint32_t random_u32(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t block = index >> 2;
    return philox4x32((uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                      (uint32_t)(stream >> 32), (uint32_t)seed, (uint32_t)(seed >> 32),
                      (uint32_t)index & 3u);
}

/* In [0, 1), a multiple of 2^-24. */
A_FN float uniform_f32(uint32_t bits)
{
    return (float)(int32_t)(bits >> 8) * 0x1p-24f;
}

/* Box and Muller, from two draws; 1 - u lies in (0, 1], so the logarithm is finite. */
A_FN float normal_f32(uint32_t a, uint32_t b)
{
    float radius = A_SQRT(-2.0f * m_log(1.0f - uniform_f32(a)));
    return radius * m_cos(6.28318531f * uniform_f32(b));
}

#endif
