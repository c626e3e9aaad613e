/* Map-like ops on CUDA: the formulas of the .c files (which the build collects into gen/cuda/map_*.cu) made into kernels. The macros
 * have the names that the formulas are written with and stand instead of those of map.h.
 *
 * Each formula and compile type has kernels of two kinds. Packed: all operands lie contiguous, in one dtype - but for masks (bool) and
 * single values - and go in vectors of 16 bytes. Strided: everything else, any mix of dtypes, an element at a time. */
#ifndef ACI_OPS_MAP_CUH
#define ACI_OPS_MAP_CUH
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/map/plan.h"

/* A formula, found by the file it stands in and its name (aci_map_loop). */
struct aci_map_entry {
  const char *stem, *name;
  ac_status (*launch)(const ac_frame *f, const aci_map_plan *p, ac_err *e);
  aci_map_entry *next;
  aci_map_entry(const char *stem, const char *name,
                ac_status (*launch)(const ac_frame *, const aci_map_plan *, ac_err *))
      : stem(stem), name(name), launch(launch), next(head()) {
    head() = this;
  }
  static aci_map_entry *&head();
};

/* ---- packed ---- */
enum aci_packed_kind { ACI_PACKED_SAME, ACI_PACKED_MASK, ACI_PACKED_ONE };
template <class T> struct aci_packed_args {
  int64_t n;
  const void *in[ACI_MAP_MAX_IN];
  void *out;
  T one[ACI_MAP_MAX_IN], p[ACI_MAP_MAX_P];
  const void *ones[ACI_MAP_MAX_IN]; /* a single element on the device, NULL: in one[] */
  ac_dtype ones_dt[ACI_MAP_MAX_IN];
  unsigned char kind[ACI_MAP_MAX_IN];
  bool truth; /* results are bool */
};

template <class F, int D>
__global__ void __launch_bounds__(ACI_BLOCK)
    aci_map_packed(const __grid_constant__ aci_packed_args<typename F::type> a) {
  typedef typename F::type T;
  typedef typename aci_element<D>::bits S;
  const int V = 16 / sizeof(S);
  T one[F::n_in];
#pragma unroll
  for (int k = 0; k < F::n_in; k++)
    one[k] = a.ones[k] != NULL ? aci_get<T>(a.ones_dt[k], a.ones[k], 0) : a.one[k];
  const int64_t n_vectors = a.n / V;
  for (int64_t i = aci_first(); i < n_vectors; i += aci_step()) {
    T x[V][F::n_in];
#pragma unroll
    for (int k = 0; k < F::n_in; k++) {
      if (a.kind[k] == ACI_PACKED_SAME) {
        const aci_vector<S, V> v = ((const aci_vector<S, V> *)a.in[k])[i];
#pragma unroll
        for (int j = 0; j < V; j++) x[j][k] = aci_element<D>::template load<T>(v.v[j]);
      } else if (a.kind[k] == ACI_PACKED_MASK) {
        const aci_vector<uint8_t, V> v = ((const aci_vector<uint8_t, V> *)a.in[k])[i];
#pragma unroll
        for (int j = 0; j < V; j++) x[j][k] = (T)(v.v[j] != 0);
      } else {
#pragma unroll
        for (int j = 0; j < V; j++) x[j][k] = one[k];
      }
    }
    if (a.truth) {
      aci_vector<uint8_t, V> y;
#pragma unroll
      for (int j = 0; j < V; j++) y.v[j] = F::run(a.p, x[j]) != 0;
      ((aci_vector<uint8_t, V> *)a.out)[i] = y;
    } else {
      aci_vector<S, V> y;
#pragma unroll
      for (int j = 0; j < V; j++) y.v[j] = aci_element<D>::store(F::run(a.p, x[j]));
      ((aci_vector<S, V> *)a.out)[i] = y;
    }
  }
  for (int64_t i = n_vectors * V + aci_first(); i < a.n; i += aci_step()) { /* what no vector holds */
    T x[F::n_in];
#pragma unroll
    for (int k = 0; k < F::n_in; k++)
      x[k] = a.kind[k] == ACI_PACKED_SAME   ? aci_element<D>::template load<T>(((const S *)a.in[k])[i])
             : a.kind[k] == ACI_PACKED_MASK ? (T)(((const uint8_t *)a.in[k])[i] != 0)
                                            : one[k];
    const T y = F::run(a.p, x);
    if (a.truth) ((uint8_t *)a.out)[i] = y != 0;
    else ((S *)a.out)[i] = aci_element<D>::store(y);
  }
}

/* The dtype that all operands have, and how each is read; AC_DTYPE_COUNT: not packed. */
ac_dtype aci_map_packed_dtype(const aci_map_plan *p, unsigned char *kind);

static inline const float *aci_map_params(const aci_map_plan *p, float) { return p->p.f32; }
static inline const double *aci_map_params(const aci_map_plan *p, double) { return p->p.f64; }
static inline const int64_t *aci_map_params(const aci_map_plan *p, int64_t) { return p->p.i64; }
static inline float aci_map_number(const aci_map_plan *p, int k, float) { return p->number[k].f32; }
static inline double aci_map_number(const aci_map_plan *p, int k, double) { return p->number[k].f64; }
static inline int64_t aci_map_number(const aci_map_plan *p, int k, int64_t) { return p->number[k].i64; }

template <class F, int D>
ac_status aci_map_launch_packed(const ac_frame *f, const aci_map_plan *p, const unsigned char *kind,
                                ac_err *e) {
  typedef typename F::type T;
  aci_packed_args<T> a = {};
  a.n = p->numel;
  a.out = (void *)p->out.ptr;
  a.truth = p->out.dt == AC_BOOL && D != AC_BOOL;
  for (int k = 0; k < F::n_in; k++) {
    a.kind[k] = kind[k];
    a.in[k] = p->in[k].ptr;
    if (kind[k] != ACI_PACKED_ONE) continue;
    if (p->in[k].number) a.one[k] = aci_map_number(p, k, T());
    else a.ones[k] = p->in[k].ptr, a.ones_dt[k] = p->in[k].dt;
  }
  for (int i = 0; i < ACI_MAP_MAX_P; i++) a.p[i] = aci_map_params(p, T())[i];
  const int V = 16 / sizeof(typename aci_element<D>::bits);
  return aci_launch(f, "map", aci_map_packed<F, D>, aci_blocks(f->device, (p->numel + V - 1) / V), e, a);
}

/* ---- strided ---- */
template <class F>
__global__ void __launch_bounds__(ACI_BLOCK) aci_map_strided(const __grid_constant__ aci_map_plan p) {
  typedef typename F::type T;
  const T *params = (const T *)&p.p;
  for (int64_t i = aci_first(); i < p.numel; i += aci_step()) {
    T x[F::n_in];
#pragma unroll
    for (int k = 0; k < F::n_in; k++)
      x[k] = p.in[k].number
                 ? *(const T *)&p.number[k]
                 : aci_get<T>(p.in[k].dt, p.in[k].ptr, aci_element_offset(i, p.ndim, p.shape, p.in[k].stride));
    aci_put(p.out.dt, (void *)p.out.ptr, aci_element_offset(i, p.ndim, p.shape, p.out.stride), F::run(params, x));
  }
}

/* Packed kernels exist for these dtypes of a compute type; bool and bytes go as masks beside one of them. */
template <class F>
ac_status aci_map_dispatch(const ac_frame *f, const aci_map_plan *p, ac_dtype d, const unsigned char *kind,
                           float, ac_err *e) {
  if (d == AC_F32) return aci_map_launch_packed<F, AC_F32>(f, p, kind, e);
  if (d == AC_BF16) return aci_map_launch_packed<F, AC_BF16>(f, p, kind, e);
  return aci_map_launch_packed<F, AC_F16>(f, p, kind, e);
}
template <class F>
ac_status aci_map_dispatch(const ac_frame *f, const aci_map_plan *p, ac_dtype, const unsigned char *kind,
                           double, ac_err *e) {
  return aci_map_launch_packed<F, AC_F64>(f, p, kind, e);
}
template <class F>
ac_status aci_map_dispatch(const ac_frame *f, const aci_map_plan *p, ac_dtype d, const unsigned char *kind,
                           int64_t, ac_err *e) {
  if (d == AC_I64) return aci_map_launch_packed<F, AC_I64>(f, p, kind, e);
  if (d == AC_I32) return aci_map_launch_packed<F, AC_I32>(f, p, kind, e);
  return aci_map_launch_packed<F, AC_U8>(f, p, kind, e);
}

template <class F> ac_status aci_map_launch(const ac_frame *f, const aci_map_plan *p, ac_err *e) {
  unsigned char kind[ACI_MAP_MAX_IN];
  const ac_dtype d = aci_map_packed_dtype(p, kind);
  if (d != AC_DTYPE_COUNT) return aci_map_dispatch<F>(f, p, d, kind, typename F::type(), e);
  return aci_launch(f, "map (strided)", aci_map_strided<F>, aci_blocks(f->device, p->numel), e, *p);
}

/* ---- what formulas are written with ---- */
#include "ops/map/angle.h"
#include "ops/map/exponential.h"

#define AC_INLINE AC_HOSTDEV __attribute__((always_inline))
ACI_VM int64_t m_floor(int64_t x) { return x; }
ACI_VM int64_t m_ceil(int64_t x) { return x; }
ACI_VM int64_t m_trunc(int64_t x) { return x; }
ACI_VM int64_t m_rint(int64_t x) { return x; }
ACI_VM int64_t m_max(int64_t a, int64_t b) { return a > b ? a : b; }
ACI_VM int64_t m_min(int64_t a, int64_t b) { return a < b ? a : b; }
template <class T> struct aci_is_int {
  enum { value = 0 };
};
template <> struct aci_is_int<int64_t> {
  enum { value = 1 };
};
#define ACI_BY_INT(x, for_int, for_float) (aci_is_int<decltype((x) + 0)>::value ? (for_int) : (for_float))

#define ACI_FORMULA(op, T, sfx, K, ...)                                                                 \
  struct op##_##sfx##_formula {                                                                         \
    typedef T type;                                                                                     \
    enum { n_in = K };                                                                                  \
    static __device__ __forceinline__ T run(const T *p, const T *v) { return (void)p, (T)__VA_ARGS__; } \
  };                                                                                                    \
  static aci_map_entry op##_##sfx##_entry(ACI_STEM, #op "_" #sfx, aci_map_launch<op##_##sfx##_formula>);
#define ACI_LOOP1(op, T, sfx, F) ACI_FORMULA(op, T, sfx, 1, F(T, p, v[0]))
#define ACI_LOOP2(op, T, sfx, F) ACI_FORMULA(op, T, sfx, 2, F(T, p, v[0], v[1]))
#define ACI_LOOP3(op, T, sfx, F) ACI_FORMULA(op, T, sfx, 3, F(T, p, v[0], v[1], v[2]))
#define ACI_LOOP4(op, T, sfx, F) ACI_FORMULA(op, T, sfx, 4, F(T, p, v[0], v[1], v[2], v[3]))

#define ACI_MAP_FLT(op, K, F) ACI_LOOP##K(op, float, f32, F) ACI_LOOP##K(op, double, f64, F)
#define ACI_MAP_NUM(op, K, F) ACI_MAP_FLT(op, K, F) ACI_LOOP##K(op, int64_t, i64, F)
#define AC_MAP1(op, F, ...) ACI_MAP_FLT(op, 1, F)
#define AC_MAP2(op, F, ...) ACI_MAP_FLT(op, 2, F)
#define AC_MAP3(op, F, ...) ACI_MAP_FLT(op, 3, F)
#define AC_MAP4(op, F, ...) ACI_MAP_FLT(op, 4, F)
#define AC_MAP1N(op, F, ...) ACI_MAP_NUM(op, 1, F)
#define AC_MAP2N(op, F, ...) ACI_MAP_NUM(op, 2, F)
#define AC_MAP3N(op, F, ...) ACI_MAP_NUM(op, 3, F)
#define AC_MAP1B(op, F, ...) ACI_MAP_NUM(op, 1, F)
#define AC_MAP2B(op, F, ...) ACI_MAP_NUM(op, 2, F)
#define ACI_LOSS(op, F) ACI_MAP_FLT(op, 2, F)

#endif
