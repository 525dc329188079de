// One planted fault a kernel; the emulator must find each and name it.
extern "C" __global__ void out_of_bounds(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) { // should be <
        x[i] = 1.0f;
    }
}
extern "C" __global__ void misaligned(float *x)
{
    *(float4 *)(x + 1 + threadIdx.x * 4) = make_float4(0, 0, 0, 0);
}
extern "C" __global__ void missing_barrier(float *x)
{
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = s[63 - threadIdx.x]; // no __syncthreads()
}
extern "C" __global__ void write_after_read(float *x)
{
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float other = s[(threadIdx.x + 1) % 64];
    s[threadIdx.x] = other; // the neighbour may not have read yet
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void divergent_barrier(float *x)
{
    if (threadIdx.x < 40) {
        x[threadIdx.x] = 1;
        __syncthreads();
    } else {
        x[threadIdx.x] = 2;
        __syncthreads();
        x[threadIdx.x] += 1;
    }
}
extern "C" __global__ void left_barrier(float *x, int n)
{
    if (threadIdx.x >= n) {
        return;
    }
    __syncthreads();
    x[threadIdx.x] = 1;
}
extern "C" __global__ void uninitialized_shared(float *x)
{
    __shared__ float s[64];
    if (threadIdx.x < 63) {
        s[threadIdx.x] = x[threadIdx.x];
    }
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void copy(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = x[i];
    }
}
extern "C" __global__ void race_between_blocks(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = 1.0f;
    x[(i + 1) % n] = 2.0f;
}
extern "C" __global__ void read_by_another_block(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = x[i] + x[(i + 32) % n]; // the next block's, which it overwrites
    x[i] = sum;
}
extern "C" __global__ void diverged_shuffle(float *x)
{
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) {
        v += __shfl_xor_sync(0xffffffffu, v, 16);
    }
    __syncthreads(); // where the other half waits
    x[threadIdx.x] = v;
}
extern "C" __global__ void endless(volatile int *x)
{
    while (x[0] == 0) {
    }
}
extern "C" __global__ void read_only_lie(const float *__restrict__ x, float *__restrict__ y)
{
    y[threadIdx.x] = 3.0f;
    __syncthreads();
    y[threadIdx.x + 64] = x[63 - threadIdx.x]; // x is y
}
// threads of one block: with a barrier between, and without
extern "C" __global__ void race_of_threads(float *x, int has_barrier)
{
    x[threadIdx.x] = 1.0f;
    if (has_barrier) {
        __syncthreads();
    }
    float next = x[(threadIdx.x + 1) % blockDim.x];
    if (has_barrier) {
        __syncthreads();
    }
    x[threadIdx.x] = next;
}
extern "C" __global__ void one_place(float *x, int apart)
{
    x[threadIdx.x * apart] = (float)threadIdx.x;
}
extern "C" __global__ void read_by_all(float *x, int is_sound)
{
    float first = x[0];
    if (is_sound) {
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        x[0] = first + 1.0f;
    }
}
