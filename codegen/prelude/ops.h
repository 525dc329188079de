/* The vocabulary of the `meaning` column of ir/ops.def, for one compute type at a time: define one
 * of A_F32, A_F64, A_I64 and read this file (by #include, or as text inside a generated source);
 * read it again for another type. It has no include guard for that reason. Every meaning then is an
 * expression of that type: float, double, or int64_t that wraps. Needs math.h of this folder. NaN:
 * MIN and MAX give NaN when either side is; SIGN and RELU keep it. Zeros: ABS(-0) = +0; SIGN(-0) =
 * RELU(-0) = +0; MAX and MIN of zeros of both signs give b. */
#undef ADD
#undef SUB
#undef MUL
#undef NEG
#undef ABS
#undef MIN
#undef MAX
#undef EXP
#undef EXPM1
#undef LOG
#undef LOG1P
#undef SQRT
#undef POW
#undef TANH
#undef ERF
#undef SIGMOID
#undef SIN
#undef COS
#undef ATAN
#undef ATAN2
#undef FLOOR
#undef CEIL
#undef ROUND
#undef SIGN
#undef RELU
#undef IS_FINITE
#undef POW2_FLOOR
#undef POW2_CEIL
#undef E8M0
#undef HIGH
#undef REST
#undef JOIN
#undef STOCH
#undef K
#undef OP_NAME
#undef OP_TYPE

#if defined(A_F32)
#define OP_TYPE       float
#define OP_NAME(op)   op_##op##_f32
#define K(number)     number##f
#define EXP(a)        m_exp(a)
#define EXPM1(a)      m_expm1(a)
#define LOG(a)        m_log(a)
#define LOG1P(a)      m_log1p(a)
#define SQRT(a)       m_sqrt(a)
#define MIN(a, b)     m_minimum(a, b)
#define MAX(a, b)     m_maximum(a, b)
#define POW(a, b)     m_pow(a, b)
#define TANH(a)       m_tanh(a)
#define ERF(a)        m_erf(a)
#define SIGMOID(a)    m_sigmoid(a)
#define SIN(a)        m_sin(a)
#define COS(a)        m_cos(a)
#define ATAN(a)       m_atan(a)
#define ATAN2(a, b)   m_atan2(a, b)
#define FLOOR(a)      m_floor(a)
#define CEIL(a)       m_ceil(a)
#define ROUND(a)      m_round(a)
#define POW2_FLOOR(a) m_pow2_floor(a)
#define POW2_CEIL(a)  m_pow2_ceil(a)
#define E8M0(a)       m_e8m0(a)
#define HIGH(a)       high_bf16(a)
#define REST(a)       rest_bf16(a)
#define JOIN(a, b)    join_bf16(a, b)
#define STOCH(a, b)   stochastic_bf16(a, b)
#elif defined(A_F64)
#define OP_TYPE       double
#define OP_NAME(op)   op_##op##_f64
#define K(number)     number
#define EXP(a)        m_exp_f64(a)
#define EXPM1(a)      m_expm1_f64(a)
#define LOG(a)        m_log_f64(a)
#define LOG1P(a)      m_log1p_f64(a)
#define SQRT(a)       m_sqrt_f64(a)
#define MIN(a, b)     m_minimum_f64(a, b)
#define MAX(a, b)     m_maximum_f64(a, b)
#define POW(a, b)     m_pow_f64(a, b)
#define TANH(a)       m_tanh_f64(a)
#define ERF(a)        m_erf_f64(a)
#define SIGMOID(a)    m_sigmoid_f64(a)
#define SIN(a)        m_sin_f64(a)
#define COS(a)        m_cos_f64(a)
#define ATAN(a)       m_atan_f64(a)
#define ATAN2(a, b)   m_atan2_f64(a, b)
#define FLOOR(a)      m_floor_f64(a)
#define CEIL(a)       m_ceil_f64(a)
#define ROUND(a)      m_round_f64(a)
#define POW2_FLOOR(a) m_pow2_floor_f64(a)
#define POW2_CEIL(a)  m_pow2_ceil_f64(a)
#define E8M0(a)       ((double)m_e8m0((float)(a)))
#define HIGH(a)       ((double)high_bf16((float)(a)))
#define REST(a)       ((double)rest_bf16((float)(a)))
#define JOIN(a, b)    ((double)join_bf16((float)(a), (float)(b)))
#define STOCH(a, b)   ((double)stochastic_bf16((float)(a), (float)(b)))
#elif defined(A_I64)
/* Signed overflow is undefined in C: wrap in unsigned, compare in signed. */
#define OP_TYPE      int64_t
#define OP_NAME(op)  op_##op##_i64
#define K(number)    ((int64_t)(number))
#define ADD(a, b)    ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define SUB(a, b)    ((int64_t)((uint64_t)(a) - (uint64_t)(b)))
#define MUL(a, b)    ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
#define NEG(a)       ((int64_t)(0U - (uint64_t)(a)))
#define ABS(a)       ((a) < 0 ? NEG(a) : (a))
#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))
#define SIGN(a)      ((int64_t)((a) > 0) - (int64_t)((a) < 0))
#define RELU(a)      ((a) > 0 ? (a) : 0)
#define IS_FINITE(a) ((a) == (a))
#endif

#if defined(A_F32) || defined(A_F64)
#define ADD(a, b)    ((a) + (b))
#define SUB(a, b)    ((a) - (b))
#define MUL(a, b)    ((a) * (b))
#define NEG(a)       (-(a))
#define ABS(a)       ((a) <= K(0.0) ? K(0.0) - (a) : (a))
#define SIGN(a)      ((a) > K(0.0) ? K(1.0) : (a) < K(0.0) ? K(-1.0) : (a) != (a) ? (a) : K(0.0))
#define RELU(a)      ((a) <= K(0.0) ? K(0.0) : (a))
#define IS_FINITE(a) ((a) - (a) == K(0.0))
#endif
