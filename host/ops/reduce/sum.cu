/* sum and mean on CUDA: lanes add in f32 (f64 of doubles), their tree and the pieces in double, integers in i64 and wrap. The divisor
 * of a mean comes once, last. */
#include "ops/reduce/fold.cuh"

/* Four running sums of the element's type, so that rounding errors of long lists stay small and additions do not wait for one
 * another. */
template <class T> struct sum_floats {
  typedef T element;
  struct state {
    T run[4];
    double sum;
  };
  static __device__ __forceinline__ state start() {
    state s = {{0, 0, 0, 0}, 0};
    return s;
  }
  static __device__ __forceinline__ void step(state &s, T v, int64_t, double) {
    const T first = s.run[0];
    s.run[0] = s.run[1], s.run[1] = s.run[2], s.run[2] = s.run[3];
    s.run[3] = first + v;
  }
  static __device__ __forceinline__ double total(const state &s) {
    return s.sum + (((double)s.run[0] + (double)s.run[1]) + ((double)s.run[2] + (double)s.run[3]));
  }
  static __device__ __forceinline__ void join(state &s, const state &t) {
    s.sum = total(s) + total(t);
    s.run[0] = s.run[1] = s.run[2] = s.run[3] = 0;
  }
  static __device__ __forceinline__ void put(const aci_fold_out &o, int64_t at, const state &s) {
    aci_put(o.dt[0], o.out[0], at, total(s) / o.p);
  }
};

struct sum_integers {
  typedef int64_t element;
  typedef uint64_t state;
  static __device__ __forceinline__ state start() { return 0; }
  static __device__ __forceinline__ void step(state &s, int64_t v, int64_t, double) { s += (uint64_t)v; }
  static __device__ __forceinline__ void join(state &s, const state &t) { s += t; }
  static __device__ __forceinline__ void put(const aci_fold_out &o, int64_t at, const state &s) {
    aci_put(o.dt[0], o.out[0], at, (int64_t)s);
  }
};

/* out := the sum of what is under each output / divisor; divisor 0: the number of those elements. */
ac_status aci_cuda_sum(ac_frame *f, const ac_tensor *x, uint32_t mask, double divisor, ac_tensor *out,
                       ac_err *e) {
  aci_reduce_plan p;
  const aci_ctype ct = aci_ctype_of((ac_dtype)out->dtype);
  aci_reduce_plan_make(&p, x, mask, ct);
  if (divisor == 0) divisor = (double)p.n_reduced;
  if (ct == ACI_C_F32) return aci_fold_cuda<sum_floats<float>>(f, &p, divisor, out, NULL, e);
  if (ct == ACI_C_F64) return aci_fold_cuda<sum_floats<double>>(f, &p, divisor, out, NULL, e);
  return aci_fold_cuda<sum_integers>(f, &p, divisor, out, NULL, e);
}

static ac_status sum(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  return aci_cuda_sum(f, x, aci_reduce_mask(&f->args[1], x->ndim), 1, f->out[0], e);
}
static ac_status mean(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  return aci_cuda_sum(f, x, aci_reduce_mask(&f->args[1], x->ndim), 0, f->out[0], e);
}
AC_KERNEL(cuda, sum, sum)
AC_KERNEL(cuda, mean, mean)
