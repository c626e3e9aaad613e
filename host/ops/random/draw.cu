/* Random ops on CUDA: the values of the CPU's, bit for bit, since each is a function of its
 * position alone (draw.h defines it). A thread makes the values of one Philox counter - four values
 * of 32 bits or two of 64 - and keeps them in registers. */
#include "base/philox.h"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/random/distributions.h"

/* The tensor written, or read and written. */
struct draw_args {
  aci_counter call;
  uint64_t key, first; /* first: global position of element 0 */
  int64_t n, shape[AC_MAX_DIMS], stride[AC_MAX_DIMS];
  int ndim; /* 0: contiguous */
  void *y;
  ac_dtype dt;
  const void *x;
  int64_t x_stride[AC_MAX_DIMS];
  int x_ndim;
};

static uint64_t key_of(const ac_generator *t) {
  return t->seed ^ (uint64_t)t->stream * 0x9E3779B97F4A7C15u;
}
static uint64_t call_of_rows(const ac_generator *t) { return (uint64_t)t->step << 32 | t->ordinal; }
static uint64_t call_of(const ac_generator *t) {
  return call_of_rows(t) + (t->drawn != 0 ? t->drawn | UINT32_C(1) << 31 : 0);
}

static draw_args args_of(const ac_frame *f, const ac_tensor *y, uint64_t call) {
  draw_args a = {};
  a.key = key_of(&f->rng_counter);
  a.call = aci_counter_of(f, call);
  a.n = y->numel;
  a.y = aci_data(y);
  a.dt = (ac_dtype)y->dtype;
  if (!aci_is_contiguous(y)) {
    a.ndim = y->ndim;
    memcpy(a.shape, y->shape, 8 * (size_t)y->ndim);
    memcpy(a.stride, y->stride, 8 * (size_t)y->ndim);
  }
  return a;
}

ACI_DEVICE int64_t position(const draw_args &a, int64_t i) {
  return a.ndim == 0 ? i : aci_element_offset(i, a.ndim, a.shape, a.stride);
}

/* F::LANES values out of the words of one counter. The values of counter c are elements LANES c
 * ... */
template <class F>
static __global__ void __launch_bounds__(ACI_BLOCK)
    draw_fill(const __grid_constant__ draw_args a, F f) {
  const int64_t counters = (a.n + F::LANES - 1) / F::LANES;
  for (int64_t c = aci_first(); c < counters; c += aci_step()) {
    const aci_u32x4 w = aci_philox(a.key, (uint64_t)c, a.call);
    typename F::value v[F::LANES];
    f.values(w, a.dt, v);
#pragma unroll
    for (int k = 0; k < F::LANES; k++)
      if (c * F::LANES + k < a.n) aci_put(a.dt, a.y, position(a, c * F::LANES + k), v[k]);
  }
}

template <class F> static ac_status fill(ac_frame *f, F fn, ac_err *e) {
  const draw_args a = args_of(f, f->out[0], call_of(&f->rng_counter));
  if (a.n == 0) return AC_OK;
  return aci_launch(f, "draw", draw_fill<F>, aci_blocks(f->device, (a.n + F::LANES - 1) / F::LANES),
                    e, a, fn);
}

/* ---- uniform_ ---- */
struct uniform32 {
  enum { LANES = 4 };
  typedef float value;
  float from, to;
  __device__ __forceinline__ void values(const aci_u32x4 &w, ac_dtype dt, float *y) const {
    const int drop = dt == AC_BF16  ? 24
                     : dt == AC_F16 ? 21
                                    : 8; /* as many bits as the dtype's significand holds */
    const float unit = 1.0f / (float)(1u << (32 - drop)), d = to - from;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float v = aci_fma32((float)(int32_t)(w.v[i] >> drop) * unit, d, from);
      v = v >= to ? from : v; /* rounding may reach the end, which does not belong */
      if (dt == AC_BF16 && aci_bf16_to_f32(aci_f32_to_bf16(v)) >= to) v = from;
      if (dt == AC_F16 && aci_f16_to_f32(aci_f32_to_f16(v)) >= to) v = from;
      y[i] = v;
    }
  }
};
struct uniform64 {
  enum { LANES = 2 };
  typedef double value;
  double from, to;
  __device__ __forceinline__ void values(const aci_u32x4 &w, ac_dtype, double *y) const {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const double v =
          aci_fma64(aci_uniform_f64(aci_u64_of(w.v[2 * i], w.v[2 * i + 1])), to - from, from);
      y[i] = v >= to ? from : v;
    }
  }
};
static ac_status uniform(ac_frame *f, ac_err *e) {
  const double from = f->args[1].f, to = f->args[2].f;
  if (f->out[0]->dtype == AC_F64) {
    uniform64 u = {from, to};
    return fill(f, u, e);
  }
  uniform32 u = {(float)from, (float)to};
  return fill(f, u, e);
}
AC_KERNEL(cuda, uniform_, uniform)

/* ---- normal_ ---- */
struct normal32 {
  enum { LANES = 4 };
  typedef float value;
  float mean, std;
  __device__ __forceinline__ void values(const aci_u32x4 &w, ac_dtype, float *y) const {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float a, b;
      aci_normal2_f32(w.v[2 * i], w.v[2 * i + 1], &a, &b);
      y[2 * i] = aci_fma32(a, std, mean);
      y[2 * i + 1] = aci_fma32(b, std, mean);
    }
  }
};
struct normal64 {
  enum { LANES = 2 };
  typedef double value;
  double mean, std;
  __device__ __forceinline__ void values(const aci_u32x4 &w, ac_dtype, double *y) const {
    double a, b;
    aci_normal2_f64(aci_u64_of(w.v[0], w.v[1]), aci_u64_of(w.v[2], w.v[3]), &a, &b);
    y[0] = aci_fma64(a, std, mean);
    y[1] = aci_fma64(b, std, mean);
  }
};
static ac_status normal(ac_frame *f, ac_err *e) {
  const double mean = f->args[1].f, std = f->args[2].f;
  if (f->out[0]->dtype == AC_F64) {
    normal64 n = {mean, std};
    return fill(f, n, e);
  }
  normal32 n = {(float)mean, (float)std};
  return fill(f, n, e);
}
AC_KERNEL(cuda, normal_, normal)

/* ---- integers and truth ---- */
struct integers {
  enum { LANES = 2 };
  typedef int64_t value;
  uint64_t low, range;
  __device__ __forceinline__ void values(const aci_u32x4 &w, ac_dtype, int64_t *y) const {
#pragma unroll
    for (int i = 0; i < 2; i++)
      y[i] = (int64_t)(low + aci_uniform_below(aci_u64_of(w.v[2 * i], w.v[2 * i + 1]), range));
  }
};
static ac_status randint(ac_frame *f, ac_err *e) {
  integers n = {(uint64_t)f->args[1].i, (uint64_t)f->args[2].i - (uint64_t)f->args[1].i};
  return fill(f, n, e);
}
AC_KERNEL(cuda, randint_, randint)

struct truth {
  enum { LANES = 4 };
  typedef int64_t value;
  uint64_t below;
  __device__ __forceinline__ void values(const aci_u32x4 &w, ac_dtype, int64_t *y) const {
#pragma unroll
    for (int i = 0; i < 4; i++) y[i] = w.v[i] < below;
  }
};
static ac_status bernoulli(ac_frame *f, ac_err *e) {
  truth t = {(uint64_t)(f->args[1].f * 0x1p32)};
  return fill(f, t, e);
}
AC_KERNEL(cuda, bernoulli_fill_, bernoulli)

/* ---- other distributions: distributions.h ---- */
struct exponential32 {
  enum { LANES = 4 };
  typedef float value;
  float scale;
  __device__ __forceinline__ void values(const aci_u32x4 &w, ac_dtype, float *y) const {
#pragma unroll
    for (int i = 0; i < 4; i++) y[i] = aci_exponential_f32(w.v[i]) * scale;
  }
};
struct exponential64 {
  enum { LANES = 2 };
  typedef double value;
  double scale;
  __device__ __forceinline__ void values(const aci_u32x4 &w, ac_dtype, double *y) const {
#pragma unroll
    for (int i = 0; i < 2; i++)
      y[i] = aci_exponential_f64(aci_u64_of(w.v[2 * i], w.v[2 * i + 1])) * scale;
  }
};
static ac_status exponential(ac_frame *f, ac_err *e) {
  const double scale = 1 / f->args[1].f;
  if (f->out[0]->dtype == AC_F64) {
    exponential64 x = {scale};
    return fill(f, x, e);
  }
  exponential32 x = {(float)scale};
  return fill(f, x, e);
}
AC_KERNEL(cuda, exponential_, exponential)

struct cauchy32 {
  enum { LANES = 4 };
  typedef float value;
  float median, sigma;
  __device__ __forceinline__ void values(const aci_u32x4 &w, ac_dtype, float *y) const {
#pragma unroll
    for (int i = 0; i < 4; i++) y[i] = fmaf(aci_cauchy_f32(w.v[i]), sigma, median);
  }
};
struct cauchy64 {
  enum { LANES = 2 };
  typedef double value;
  double median, sigma;
  __device__ __forceinline__ void values(const aci_u32x4 &w, ac_dtype, double *y) const {
#pragma unroll
    for (int i = 0; i < 2; i++)
      y[i] = fma(aci_cauchy_f64(aci_u64_of(w.v[2 * i], w.v[2 * i + 1])), sigma, median);
  }
};
static ac_status cauchy(ac_frame *f, ac_err *e) {
  if (f->out[0]->dtype == AC_F64) {
    cauchy64 x = {f->args[1].f, f->args[2].f};
    return fill(f, x, e);
  }
  cauchy32 x = {(float)f->args[1].f, (float)f->args[2].f};
  return fill(f, x, e);
}
AC_KERNEL(cuda, cauchy_, cauchy)

struct trials {
  enum { LANES = 2 };
  typedef double value;
  double rate;
  __device__ __forceinline__ void values(const aci_u32x4 &w, ac_dtype, double *y) const {
#pragma unroll
    for (int i = 0; i < 2; i++) y[i] = aci_geometric(aci_u64_of(w.v[2 * i], w.v[2 * i + 1]), rate);
  }
};
static ac_status geometric(ac_frame *f, ac_err *e) {
  trials t = {-log1p(-f->args[1].f)};
  return fill(f, t, e);
}
AC_KERNEL(cuda, geometric_, geometric)

/* One element a thread, whose parameter is an element of x. COUNT: Poisson, else truth values. */
template <bool COUNT>
static __global__ void __launch_bounds__(ACI_BLOCK) draw_each(const __grid_constant__ draw_args a) {
  const uint64_t call = a.call;
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    const double p = aci_get<double>(
        a.dt, a.x, a.x_ndim == 0 ? i : aci_element_offset(i, a.x_ndim, a.shape, a.x_stride));
    double v;
    if (COUNT) {
      v = aci_poisson(a.key, call, (uint64_t)i, p);
    } else {
      const aci_u32x4 w = aci_philox(a.key, (uint64_t)i / 4, call);
      v = (double)w.v[i % 4] < p * 0x1p32;
    }
    aci_put(a.dt, a.y, position(a, i), v);
  }
}
static ac_status draw_by(ac_frame *f, const ac_tensor *p, bool count, ac_err *e) {
  draw_args a = args_of(f, f->out[0], call_of(&f->rng_counter));
  if (a.n == 0) return AC_OK;
  a.x = aci_data(p);
  if (!aci_is_contiguous(p)) {
    a.x_ndim = p->ndim;
    memcpy(a.shape, p->shape, 8 * (size_t)p->ndim);
    memcpy(a.x_stride, p->stride, 8 * (size_t)p->ndim);
  }
  const unsigned blocks = aci_blocks(f->device, a.n);
  return count ? aci_launch(f, "poisson", draw_each<true>, blocks, e, a)
               : aci_launch(f, "bernoulli", draw_each<false>, blocks, e, a);
}
static ac_status poisson(ac_frame *f, ac_err *e) { return draw_by(f, f->args[0].tensor, true, e); }
static ac_status bernoulli_each(ac_frame *f, ac_err *e) {
  return draw_by(f, f->args[1].tensor, false, e);
}
AC_KERNEL(cuda, poisson, poisson)
AC_KERNEL(cuda, bernoulli_each_, bernoulli_each)

/* ---- random_mask: the mask of dropout, by the element's position in the global batch ---- */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    draw_mask(const __grid_constant__ draw_args a, uint64_t drop, C scale) {
  const uint64_t skip = a.first % 4;
  const int64_t counters = (int64_t)((skip + (uint64_t)a.n + 3) / 4);
  for (int64_t c = aci_first(); c < counters; c += aci_step()) {
    const aci_u32x4 w = aci_philox(a.key, a.first / 4 + (uint64_t)c, a.call);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int64_t i = c * 4 + k - (int64_t)skip;
      if (i < 0 || i >= a.n) continue;
      const C x = aci_get<C>(
          a.dt, a.x, a.x_ndim == 0 ? i : aci_element_offset(i, a.x_ndim, a.shape, a.x_stride));
      aci_put(a.dt, a.y, i, w.v[k] >= drop ? x * scale : (C)0);
    }
  }
}
static ac_status random_mask(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  const double p = f->args[1].f, scale = p < 1 ? 1 / (1 - p) : 0;
  if (f->rng_counter.range[0].dim != 0)
    return AC_FAIL(e, UNSUPPORTED, "dropout of a part of a tensor is not supported on this device");
  draw_args a = args_of(f, f->out[0], call_of_rows(&f->rng_counter));
  uint64_t drop = (uint64_t)(p * 0x1p32);
  if (a.n == 0) return AC_OK;
  if (drop == 0) drop = 1;
  a.x = aci_data(x);
  if (!aci_is_contiguous(x)) {
    a.x_ndim = x->ndim;
    memcpy(a.shape, x->shape, 8 * (size_t)x->ndim);
    memcpy(a.x_stride, x->stride, 8 * (size_t)x->ndim);
  }
  if (x->ndim > 0 && f->rng_counter.row0 != 0)
    a.first = (uint64_t)f->rng_counter.row0 * (uint64_t)(x->numel / x->shape[0]);
  const unsigned blocks = aci_blocks(f->device, a.n / 4 + 1);
  if (a.dt == AC_F64)
    return aci_launch(f, "random_mask", draw_mask<double>, blocks, e, a, drop, scale);
  return aci_launch(f, "random_mask", draw_mask<float>, blocks, e, a, drop, (float)scale);
}
AC_KERNEL(cuda, random_mask, random_mask)
