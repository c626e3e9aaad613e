/* max, min, amax, amin, argmax and argmin on CUDA: the best element of a list and its first
 * position. NaN beats every number, the first NaN the others. */
#include "ops/reduce/reduction.cuh"

template <class T, bool MIN> struct extreme {
  typedef T element;
  struct state {
    T value;
    int64_t at; /* -1: nothing yet */
  };
  static __device__ __forceinline__ state start() {
    state s = {0, -1};
    return s;
  }
  static __device__ __forceinline__ bool beats(T a, T b) {
    if (a != a || b != b) return a != a && b == b;
    return MIN ? a < b : a > b;
  }
  static __device__ __forceinline__ void step(state &s, T v, int64_t i, double) {
    const state t = {v, i};
    join(s, t);
  }
  /* lanes hold positions that interleave: of equals the first in the list counts */
  static __device__ __forceinline__ void join(state &s, const state &t) {
    if (t.at < 0) return;
    if (s.at < 0 || beats(t.value, s.value) || (!beats(s.value, t.value) && t.at < s.at)) s = t;
  }
  static __device__ __forceinline__ void put(const aci_reduction_out &o, int64_t at,
                                             const state &s) {
    if (o.out[0] != NULL) aci_put(o.dt[0], o.out[0], at, s.value);
    if (o.out[1] != NULL) ((int64_t *)o.out[1])[at] = s.at;
  }
};

template <class T>
static ac_status run_as(ac_frame *f, const aci_reduce_plan *p, bool min, ac_tensor *values,
                        ac_tensor *indices, ac_err *e) {
  if (min) return aci_reduction_cuda<extreme<T, true>>(f, p, 0, values, indices, e);
  return aci_reduction_cuda<extreme<T, false>>(f, p, 0, values, indices, e);
}
static ac_status run(ac_frame *f, bool min, ac_tensor *values, ac_tensor *indices, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  aci_reduce_plan p;
  const aci_ctype ct = aci_ctype_of((ac_dtype)x->dtype);
  aci_reduce_plan_make(&p, x, aci_reduce_mask(&f->args[1], x->ndim), ct);
  if (ct == ACI_C_F32) return run_as<float>(f, &p, min, values, indices, e);
  if (ct == ACI_C_F64) return run_as<double>(f, &p, min, values, indices, e);
  return run_as<int64_t>(f, &p, min, values, indices, e);
}

static ac_tensor *second(const ac_frame *f) { return f->n_out > 1 ? f->out[1] : NULL; }
static ac_status max(ac_frame *f, ac_err *e) { return run(f, false, f->out[0], second(f), e); }
static ac_status min(ac_frame *f, ac_err *e) { return run(f, true, f->out[0], second(f), e); }
static ac_status argmax(ac_frame *f, ac_err *e) { return run(f, false, NULL, f->out[0], e); }
static ac_status argmin(ac_frame *f, ac_err *e) { return run(f, true, NULL, f->out[0], e); }
AC_KERNEL(cuda, max, max)
AC_KERNEL(cuda, min, min)
AC_KERNEL(cuda, amax, max)
AC_KERNEL(cuda, amin, min)
AC_KERNEL(cuda, argmax, argmax)
AC_KERNEL(cuda, argmin, argmin)
