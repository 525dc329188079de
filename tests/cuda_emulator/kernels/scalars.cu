// Scalar code of many kinds: integers, floats, calls that are not inlined, local arrays, jumps.
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __noinline__ float quotient(float a, float b, float *remainder)
{
    float q = truncf(a / b);
    *remainder = a - q * b;
    return q;
}

__device__ __noinline__ u32 mix(u32 a, u32 b)
{
    u32 hi = __umulhi(a, 0xD2511F53u), lo = a * 0xD2511F53u;
    return (hi ^ b) + ((lo << 7) | (lo >> 25));
}

// out[8 * i ...]: results as bits
extern "C" __global__ void floats(const float *x, const float *y, u32 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    float a = x[i], b = y[i], remainder;
    out[8 * i + 0] = __float_as_uint(a / b);
    out[8 * i + 1] = __float_as_uint(sqrtf(a));
    out[8 * i + 2] = __float_as_uint(__fmaf_rn(a, b, a));
    out[8 * i + 3] = __float_as_uint(fmaxf(a, b) - fminf(a, b));
    out[8 * i + 4] = __float_as_uint(rintf(a) + floorf(b) + ceilf(a) + truncf(b));
    out[8 * i + 5] = (u32)(int)a + (u32)(long long)b;
    out[8 * i + 6] = __float_as_uint(quotient(a, b, &remainder));
    out[8 * i + 7] = __float_as_uint(remainder);
}

extern "C" __global__ void integers(const u32 *x, const u32 *y, u64 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    u32 a = x[i], b = y[i];
    u64 wide = (u64)a << 32 | b;
    int table[6];
    for (int k = 0; k < 6; k++) {
        table[k] = (int)(a >> k) * k;
    }
    out[8 * i + 0] = wide / (b | 1u) + wide % (a | 1u);
    out[8 * i + 1] = (u64)((long long)wide / ((int)b | 1)) ^ __umul64hi(wide, wide);
    out[8 * i + 2] = (u64)__popc(a) | (u64)__clz(b) << 8 | (u64)__brev(a) << 16;
    out[8 * i + 3] = mix(a, b) + (u64)mix(b, mix(a, a));
    out[8 * i + 4] = (u64)(long long)table[b % 6];
    out[8 * i + 5] = (u64)((int)a >> (b & 31)) + (u64)((long long)wide >> (a & 63));
    u64 r = 0;
    switch (a % 7) {
    case 0: r = b + 3u; break;
    case 1: r = b * 5u; break;
    case 2: r = b ^ a; break;
    case 3: r = b / 3u; break;
    case 4: r = __byte_perm(a, b, 0x5140); break;
    case 5: for (u32 k = 0; k < b % 9; k++) { r = r * 3 + k; } break;
    default: r = a;
    }
    out[8 * i + 6] = r;
    out[8 * i + 7] = (unsigned char)a + (u64)(unsigned short)b + (u64)(long long)(signed char)a + (u64)(long long)(short)b;
}

// bytes, halves and vectors of them
extern "C" __global__ void narrow(const uchar4 *bytes, const ushort2 *halves, uchar4 *out, ushort2 *sums, double *wide, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        uchar4 b = bytes[i];
        ushort2 h = halves[i];
        uchar4 r = {(unsigned char)(b.w + 1), b.z, (unsigned char)(b.y * b.x), b.x};
        out[i] = r;
        ushort2 s = {(unsigned short)(h.x + h.y), (unsigned short)(h.x * 3)};
        sums[i] = s;
        wide[i] = sqrt((double)h.x) / ((double)b.x + 1.0);
    }
}
