// Kernels the emulator's tests run and compare with C, bit for bit. No includes: as generated code has none.
// The committed fixtures/*.ptx come from these files (test_emulator_nvrtc, ATOLL_WRITE_FIXTURES=1).
typedef unsigned int u32;
typedef unsigned long long u64;

// Row sums in the canonical order: 128 lanes, then halving.
extern "C" __global__ void row_sum(const float *__restrict__ x, float *__restrict__ out, int n)
{
    __shared__ float part[128];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 128) {
        sum += x[(long long)blockIdx.x * n + i];
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int h = 64; h > 0; h /= 2) {
        if (threadIdx.x < h) {
            part[threadIdx.x] += part[threadIdx.x + h];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = part[0];
    }
}

// The same with one warp and shuffles: 4 elements a lane.
extern "C" __global__ void row_sum_warp(const float4 *x, float *out, int n4)
{
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    float4 s = {0, 0, 0, 0};
    for (int i = lane; i < n4; i += 32) {
        float4 v = x[(long long)row * n4 + i];
        s.x += v.x; s.y += v.y; s.z += v.z; s.w += v.w;
    }
    float sum = (s.x + s.z) + (s.y + s.w);
    for (int h = 16; h > 0; h /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, h);
    }
    if (lane == 0) {
        out[row] = sum;
    }
}

// Dynamic shared memory, two barriers, a tail that leaves lanes out, transposed stores.
extern "C" __global__ void transpose(const float *in, float *out, int rows, int columns)
{
    extern __shared__ float tile[];
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (r < rows && c < columns) {
        tile[threadIdx.y * 17 + threadIdx.x] = in[r * columns + c];
    }
    __syncthreads();
    int tc = blockIdx.y * 16 + threadIdx.x, tr = blockIdx.x * 16 + threadIdx.y;
    if (tr < columns && tc < rows) {
        out[tr * rows + tc] = tile[threadIdx.x * 17 + threadIdx.y];
    }
}

// Atomics of integers, ballots, counts.
extern "C" __global__ void histogram(const u32 *x, u32 *bins, u32 *odd, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool is_odd = i < n && (x[i] & 1);
    if (i < n) {
        atomicAdd(&bins[x[i] % 16], 1u);
    }
    u32 votes = __ballot_sync(0xffffffffu, is_odd);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(odd, (u32)__popc(votes));
    }
    int all = __syncthreads_count(is_odd);
    if (threadIdx.x == 0) {
        atomicMax(odd + 1, (u32)all);
    }
}
