/* What generated CUDA C needs before the rest of the prelude: the integer names, 16-byte packs,
 * and the canonical order of reductions spelled for threads (DESIGN 1). Text only: no C file
 * includes it. A team of threads holds the 128 lanes (or fewer, for a short row), WIDTH neighbours
 * a thread; lanes combine by halving, so every spelling below gives the bits of the loops in
 * generated C. F names an operation: F::type, F::op(a, b), F::identity(). */
#ifndef A_PRELUDE_CUDA
#define A_PRELUDE_CUDA

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#define A_DEVICE static __device__ __forceinline__ __attribute__((unused))

/* N neighbouring elements, moved by one access of up to 16 bytes. */
template <class T, int N> struct __align__(sizeof(T) * N < 16 ? sizeof(T) * N : 16) a_pack
{
    T at[N];
};

/* The values of the symbols, by id. */
struct a_symbols {
    int64_t at[32];
};

/* Into lane[0]. Recursive, so that every index is a constant however little the compiler unrolls.
 */
template <class F, int WIDTH> A_DEVICE void a_fold_lanes(typename F::type *lane)
{
    if constexpr (WIDTH > 1) {
#pragma unroll
        for (int j = 0; j < WIDTH / 2; j++) {
            lane[j] = F::op(lane[j], lane[j + WIDTH / 2]);
        }
        a_fold_lanes<F, WIDTH / 2>(lane);
    }
}

/* The result of a team within one warp, in every thread of it. */
template <class F, int TEAM, int WIDTH>
A_DEVICE typename F::type a_fold(typename F::type (&lane)[WIDTH])
{
#pragma unroll
    for (int h = TEAM / 2; h > 0; h /= 2) {
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            lane[j] = F::op(lane[j], __shfl_down_sync(0xffffffffu, lane[j], h, TEAM));
        }
    }
    a_fold_lanes<F, WIDTH>(lane);
    return TEAM > 1 ? __shfl_sync(0xffffffffu, lane[0], 0, TEAM) : lane[0];
}

/* The result of 128 lanes in a block of 128 threads, in every thread. */
template <class F> A_DEVICE typename F::type a_fold_block(typename F::type x)
{
    __shared__ typename F::type lane[128];
    const int t = (int)threadIdx.x;
    __syncthreads(); /* an earlier fold has been read */
    lane[t] = x;
    __syncthreads();
    if (t < 64) {
        lane[t] = F::op(lane[t], lane[t + 64]);
    }
    __syncthreads();
    if (t < 32) {
        x = F::op(lane[t], lane[t + 32]);
#pragma unroll
        for (int h = 16; h > 0; h /= 2) {
            x = F::op(x, __shfl_down_sync(0xffffffffu, x, h, 32));
        }
        if (t == 0) {
            lane[0] = x;
        }
    }
    __syncthreads();
    return lane[0];
}

/* Chunk results of a long row, reduced as a row of their own; a block of 128 threads. */
template <class F> struct a_row {
    typename F::type first, second; /* this thread's lane of either level */
    int64_t n_first, n_second;

    __device__ __forceinline__ a_row()
        : first(F::identity()), second(F::identity()), n_first(0), n_second(0)
    {
    }
    __device__ __forceinline__ void push_second(typename F::type y)
    {
        if ((n_second++ & 127) == threadIdx.x) {
            second = F::op(second, y);
        }
    }
    __device__ __forceinline__ void push(typename F::type y)
    {
        if ((n_first & 127) == threadIdx.x) {
            first = F::op(first, y);
        }
        if (++n_first == 16384) {
            push_second(a_fold_block<F>(first));
            first = F::identity();
            n_first = 0;
        }
    }
    __device__ __forceinline__ typename F::type end()
    {
        const typename F::type y = a_fold_block<F>(first);
        if (n_second == 0) {
            return y;
        }
        if (n_first > 0) {
            push_second(y);
        }
        return a_fold_block<F>(second);
    }
};

/* The same over chunk results that lie in memory. */
template <class F>
A_DEVICE typename F::type a_fold_parts(const typename F::type *part, int64_t count)
{
    typename F::type second = F::identity(), y = F::identity();
#pragma unroll 1
    for (int64_t lo = 0; lo < count; lo += 16384) {
        const int64_t hi = lo + 16384 < count ? lo + 16384 : count;
        typename F::type lane = F::identity();
#pragma unroll 4
        for (int64_t c = lo + threadIdx.x; c < hi; c += 128) {
            lane = F::op(lane, part[c]);
        }
        y = a_fold_block<F>(lane);
        if ((lo / 16384 & 127) == threadIdx.x) {
            second = F::op(second, y);
        }
    }
    return count <= 16384 ? y : a_fold_block<F>(second);
}

/* Chunk results of a column, 128 to a chunk, level by level. */
template <class F> struct a_column {
    typename F::type level[4];
    int32_t count[4];

    __device__ __forceinline__ a_column()
    {
#pragma unroll
        for (int a = 0; a < 4; a++) {
            level[a] = F::identity();
            count[a] = 0;
        }
    }
    __device__ __forceinline__ void push(typename F::type y)
    {
        level[0] = F::op(level[0], y);
        bool carries = true;
#pragma unroll
        for (int a = 0; a < 3; a++) {
            carries = carries && ++count[a] == 128;
            if (carries) {
                level[a + 1] = F::op(level[a + 1], level[a]);
                level[a] = F::identity();
                count[a] = 0;
            }
        }
    }
    __device__ __forceinline__ typename F::type end()
    {
#pragma unroll
        for (int a = 0; a < 3; a++) {
            level[a + 1] = F::op(level[a + 1], level[a]);
        }
        return level[3];
    }
};

#endif
