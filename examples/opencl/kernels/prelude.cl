/* In front of every program: dtypes, elements of buffers, and the names that formulas are written with.
 *
 * No contraction, so that an fma stands where one is written: draws are the CPU's to the bit. */
#pragma OPENCL FP_CONTRACT OFF
#ifdef F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double wide; /* what sums of many parts meet in */
#else
typedef float wide;
#endif

/* A buffer and how many bytes from its start an operand begins. */
#define MEM(x) global uchar *x##_, ulong x##_at
#define BYTES(x) (x##_ + x##_at)

#define get_f32(p, i) (((global const float *)(p))[i])
#define get_f64(p, i) (((global const double *)(p))[i])
#define get_f16(p, i) vload_half(i, (global const half *)(p))
#define get_bf16(p, i) as_float((uint)((global const ushort *)(p))[i] << 16)
#define get_i64(p, i) (((global const long *)(p))[i])
#define get_i32(p, i) ((long)((global const int *)(p))[i])
#define get_i16(p, i) ((long)((global const short *)(p))[i])
#define get_i8(p, i) ((long)((global const char *)(p))[i])
#define get_u8(p, i) ((long)((global const uchar *)(p))[i])
#define get_bool(p, i) ((long)(((global const uchar *)(p))[i] != 0))

ushort bf16_bits(float x) { /* round to nearest even */
  const uint u = as_uint(x);
  return (ushort)(x != x ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
#define put_f32(p, i, v) (((global float *)(p))[i] = (float)(v))
#define put_f64(p, i, v) (((global double *)(p))[i] = (double)(v))
#define put_f16(p, i, v) vstore_half_rte((float)(v), i, (global half *)(p))
#define put_bf16(p, i, v) (((global ushort *)(p))[i] = bf16_bits((float)(v)))
#define put_i64(p, i, v) (((global long *)(p))[i] = (long)(v))
#define put_i32(p, i, v) (((global int *)(p))[i] = (int)(long)(v))
#define put_i16(p, i, v) (((global short *)(p))[i] = (short)(long)(v))
#define put_i8(p, i, v) (((global char *)(p))[i] = (char)(long)(v))
#define put_u8(p, i, v) (((global uchar *)(p))[i] = (uchar)(long)(v))
#define put_bool(p, i, v) (((global uchar *)(p))[i] = (uchar)((v) != 0))

#define JOIN2_(a, b) a##b
#define JOIN2(a, b) JOIN2_(a, b)
#define GET(dt, x, i) JOIN2(get_, dt)(BYTES(x), i)
#define PUT(dt, x, i, v) JOIN2(put_, dt)(BYTES(x), i, v)

/* ---- names of formulas ---- */
#define m_exp exp
#define m_exp2 exp2
#define m_expm1 expm1
#define m_log log
#define m_log2 log2
#define m_log10 log10
#define m_log1p log1p
#define m_tanh tanh
#define m_sin sin
#define m_cos cos
#define m_erf erf
#define m_pow pow
#define m_sqrt sqrt
#define m_abs fabs
#define m_floor floor
#define m_ceil ceil
#define m_trunc trunc
#define m_rint rint
#define m_fma fma
#define m_sigmoid(x) (1 / (1 + exp(-(x))))
#define m_max(a, b) ((a) > (b) || (a) != (a) ? (a) : (b)) /* NaN from either side */
#define m_min(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

/* ---- operands walked with strides: struct ocl_layout of layout.h ---- */
struct layout {
  long n, ndim;
  long shape[8], stride[5][8];
};
/* Where element i of operand k lies. */
long element(const struct layout *l, int k, long i) {
  if (l->ndim == 1) return i * l->stride[k][0];
  uint r = (uint)i; /* the host cuts what is longer */
  long at = 0;
  for (int d = (int)l->ndim - 1; d >= 0; d--) {
    const uint extent = (uint)l->shape[d];
    at += (long)(r % extent) * l->stride[k][d];
    r /= extent;
  }
  return at;
}

#ifdef GROUP
/* ---- what a group's work-items have, joined in a fixed tree; all of them get it ---- */
#define GROUP_JOIN(name, EXPR) \
  T name(local T *s, T v) { \
    const int i = get_local_id(0); \
    s[i] = v; \
    for (int reach = GROUP / 2; reach > 0; reach /= 2) { \
      barrier(CLK_LOCAL_MEM_FENCE); \
      if (i < reach) s[i] = EXPR; \
    } \
    barrier(CLK_LOCAL_MEM_FENCE); \
    v = s[0]; \
    barrier(CLK_LOCAL_MEM_FENCE); \
    return v; \
  }
GROUP_JOIN(group_sum, s[i] + s[i + reach])
GROUP_JOIN(group_max, m_max(s[i], s[i + reach]))
#endif
