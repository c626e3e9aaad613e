/* Map-like ops on CUDA: the formulas of the .c files (which the build collects into
 * gen/cuda/map_*.cu) made into kernels. The macros have the names used in the formulas and replace
 * those of map.h. map.cu launches them.
 *
 * There are hundreds of formulas, and compiling them is most of the module's build: each compute
 * type of one has a single kernel for any mix of dtypes and any strides, an element at a time, and
 * f32 one more. Packed: all operands are contiguous, in one of f32, bf16 and f16 - except masks
 * (bool) and single values - and go in vectors of 16 bytes. Dtypes are distinguished before and
 * after the formula. */
#ifndef ACI_OPS_MAP_CUH
#define ACI_OPS_MAP_CUH
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/map/plan.h"

/* ---- packed ---- */
/* elements that a thread takes at a time: a vector of 16-bit ones, two of f32 */
enum { ACI_PACKED = 8 };
enum aci_packed_kind { ACI_PACKED_SAME, ACI_PACKED_MASK, ACI_PACKED_ONE };
struct aci_packed_args {
  int64_t n;
  const void *in[ACI_MAP_MAX_IN];
  void *out;
  float one[ACI_MAP_MAX_IN], p[ACI_MAP_MAX_P];
  const void *ones[ACI_MAP_MAX_IN]; /* a single element on the device, NULL: in one[] */
  ac_dtype ones_dt[ACI_MAP_MAX_IN], dt;
  int size; /* of an element of dt */
  unsigned char kind[ACI_MAP_MAX_IN];
  bool truth; /* results are bool */
};

/* The bytes of elements as they lie in memory: ACI_PACKED of them (8, 16 or 32 bytes), or the first
 * alone (1, 2 or 4), which is how those at the end go that fill no vector. */
struct aci_packed_bytes {
  typedef aci_vector<uint32_t, 4> vector;
  typedef aci_vector<uint32_t, 2> half;
  vector v[2];

  __device__ __forceinline__ void load(const void *p, int bytes) {
    if (bytes >= 16) {
      v[0] = *(const vector *)p;
      if (bytes == 32) v[1] = ((const vector *)p)[1];
    } else if (bytes == 8) {
      const half h = *(const half *)p;
      v[0].v[0] = h.v[0], v[0].v[1] = h.v[1];
    } else {
      v[0].v[0] = bytes == 4   ? *(const uint32_t *)p
                  : bytes == 2 ? *(const uint16_t *)p
                               : *(const uint8_t *)p;
    }
  }
  __device__ __forceinline__ void store(void *p, int bytes) const {
    if (bytes >= 16) {
      *(vector *)p = v[0];
      if (bytes == 32) ((vector *)p)[1] = v[1];
    } else if (bytes == 8) {
      const half h = {{v[0].v[0], v[0].v[1]}};
      *(half *)p = h;
    } else if (bytes == 4) {
      *(uint32_t *)p = v[0].v[0];
    } else if (bytes == 2) {
      *(uint16_t *)p = (uint16_t)v[0].v[0];
    } else {
      *(uint8_t *)p = (uint8_t)v[0].v[0];
    }
  }
  /* Element j. A constant once loops are unrolled, so that all of this stays in registers. */
  template <class S> __device__ __forceinline__ S get(int j) const {
    S x;
    memcpy(&x, (const char *)v + j * sizeof(S), sizeof(S));
    return x;
  }
  template <class S> __device__ __forceinline__ void put(int j, S x) {
    memcpy((char *)v + j * sizeof(S), &x, sizeof(S));
  }
};
template <int D, int N>
ACI_DEVICE void aci_packed_values(const aci_packed_args &a, const aci_packed_bytes *b,
                                  float (*x)[N]) {
#pragma unroll
  for (int k = 0; k < N; k++)
    if (a.kind[k] == ACI_PACKED_SAME) {
#pragma unroll
      for (int j = 0; j < ACI_PACKED; j++)
        x[j][k] = aci_element<D>::template load<float>(b[k].get<typename aci_element<D>::bits>(j));
    }
}
template <int D> ACI_DEVICE void aci_packed_results(const float *y, aci_packed_bytes *b) {
#pragma unroll
  for (int j = 0; j < ACI_PACKED; j++) b->put(j, aci_element<D>::template store<float>(y[j]));
}
ACI_DEVICE_CALL float aci_packed_one(ac_dtype dt, const void *p) {
  return aci_get<float>(dt, p, 0);
}

template <class F>
__global__ void __launch_bounds__(ACI_BLOCK)
    aci_map_packed(const __grid_constant__ aci_packed_args a) {
  enum { N = F::n_in, E = ACI_PACKED };
  float one[N];
#pragma unroll
  for (int k = 0; k < N; k++)
    one[k] = a.ones[k] != NULL ? aci_packed_one(a.ones_dt[k], a.ones[k]) : a.one[k];
  const int64_t vectors = a.n / E;
  for (int64_t i = aci_first(); i < vectors + a.n % E; i += aci_step()) {
    const int64_t at = i < vectors ? i * E : vectors * E + (i - vectors);
    const int count = i < vectors ? (int)E : 1;
    aci_packed_bytes in[N], out;
    float x[E][N], y[E];
#pragma unroll
    for (int k = 0; k < N; k++) { /* all are on their way before the first is used */
      if (a.kind[k] == ACI_PACKED_SAME)
        in[k].load((const char *)a.in[k] + at * a.size, count * a.size);
      else if (a.kind[k] == ACI_PACKED_MASK) in[k].load((const char *)a.in[k] + at, count);
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
#pragma unroll
      for (int j = 0; j < E; j++)
        x[j][k] =
            a.kind[k] == ACI_PACKED_MASK ? (float)(in[k].template get<uint8_t>(j) != 0) : one[k];
    }
    if (a.dt == AC_F32) aci_packed_values<AC_F32, N>(a, in, x);
    else if (a.dt == AC_BF16) aci_packed_values<AC_BF16, N>(a, in, x);
    else aci_packed_values<AC_F16, N>(a, in, x);
#pragma unroll
    for (int j = 0; j < E; j++) y[j] = F::run(a.p, x[j]);
    if (a.truth) {
#pragma unroll
      for (int j = 0; j < E; j++) out.put<uint8_t>(j, y[j] != 0);
      out.store((char *)a.out + at, count);
      continue;
    }
    if (a.dt == AC_F32) aci_packed_results<AC_F32>(y, &out);
    else if (a.dt == AC_BF16) aci_packed_results<AC_BF16>(y, &out);
    else aci_packed_results<AC_F16>(y, &out);
    out.store((char *)a.out + at * a.size, count * a.size);
  }
}

/* ---- strided: positions of 32 bits, because a 64-bit division is a subroutine. map.cu cuts longer ones ---- */
template <class F>
__global__ void __launch_bounds__(ACI_BLOCK)
    aci_map_strided(const __grid_constant__ aci_map_plan p) {
  typedef typename F::type T;
  const T *params = (const T *)&p.p;
  const uint32_t n = (uint32_t)p.numel, step = (uint32_t)aci_step();
  for (uint32_t i = (uint32_t)aci_first(); i < n; i += step) {
    T x[F::n_in];
    int64_t at[F::n_in + 1] = {}; /* position of element i of each operand, and of the result */
    uint32_t rest = i;
#pragma unroll 1
    for (int d = p.ndim - 1; d >= 0; d--) {
      const uint32_t size = (uint32_t)p.shape[d], before = d > 0 ? rest / size : 0;
      const int64_t c = rest - before * size;
      rest = before;
#pragma unroll
      for (int k = 0; k < F::n_in; k++) at[k] += c * p.in[k].stride[d];
      at[F::n_in] += c * p.out.stride[d];
    }
#pragma unroll
    for (int k = 0; k < F::n_in; k++)
      x[k] = p.in[k].number ? *(const T *)&p.number[k] : aci_get<T>(p.in[k].dt, p.in[k].ptr, at[k]);
    aci_put(p.out.dt, (void *)p.out.ptr, at[F::n_in], F::run(params, x));
  }
}

/* ---- a formula's kernels, found by the file it stands in and its name (aci_map_loop) ---- */
struct aci_map_entry {
  const char *stem, *name;
  void (*packed)(aci_packed_args); /* NULL: none */
  void (*strided)(aci_map_plan);
  aci_map_entry *next;
  aci_map_entry(const char *stem, const char *name, void (*packed)(aci_packed_args),
                void (*strided)(aci_map_plan))
      : stem(stem), name(name), packed(packed), strided(strided), next(head()) {
    head() = this;
  }
  static aci_map_entry *&head();
};
template <class F, class T = typename F::type> struct aci_map_packs {
  static constexpr void (*kernel)(aci_packed_args) = NULL;
};
template <class F> struct aci_map_packs<F, float> {
  static constexpr void (*kernel)(aci_packed_args) = aci_map_packed<F>;
};

/* ---- functions for formulas ---- */
#include "ops/map/angle.h"
#include "ops/map/exponential.h"
#include "ops/map/special.h"

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
#define ACI_BY_INT(x, for_int, for_float) \
  (aci_is_int<decltype((x) + 0)>::value ? (for_int) : (for_float))

#define ACI_FORMULA(op, T, sfx, K, ...)                                                \
  struct op##_##sfx##_formula {                                                        \
    typedef T type;                                                                    \
    enum { n_in = K };                                                                 \
    static __device__ __forceinline__ T run(const T *p, const T *v) {                  \
      return (void)p, (T)__VA_ARGS__;                                                  \
    }                                                                                  \
  };                                                                                   \
  static aci_map_entry op##_##sfx##_entry(ACI_STEM, #op "_" #sfx,                      \
                                          aci_map_packs<op##_##sfx##_formula>::kernel, \
                                          aci_map_strided<op##_##sfx##_formula>);
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
