/* cummax, cummin and the backward of cumprod on CUDA. The last one is simple: one thread per
 * line, which is slow for long lines. */
#include "ops/reduce/scan.cuh"

namespace {
/* Of equal ones the last. NaN beats everything. position -1: of no elements */
template <class C, bool MIN> struct best {
  typedef C element;
  struct state {
    C v;
    int64_t position;
  };
  static __device__ __forceinline__ state none() {
    const state s = {(C)0, -1};
    return s;
  }
  static __device__ __forceinline__ state of(C v, int64_t i) {
    const state s = {v, i};
    return s;
  }
  static __device__ __forceinline__ state join(const state &a, const state &b) {
    if (b.position < 0) return a;
    const bool take =
        a.position < 0 || b.v != b.v || (a.v == a.v && (MIN ? b.v <= a.v : b.v >= a.v));
    return take ? b : a;
  }
  static __device__ __forceinline__ void put(const aci_scan_args &a, int64_t line, int64_t i,
                                             const state &s) {
    aci_row<C>(a.y, line).put(i, s.v);
    aci_row<int64_t>(a.at, line).put(i, s.position);
  }
};
struct back_args {
  aci_reduce_plan dy, x, dx;
  double *before; /* (n, lines) */
};
} // namespace

template <bool MIN> static ac_status running(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  const uint32_t mask = aci_scan_mask(x, f->args[1].i);
  const aci_ctype ct = aci_ctype_of((ac_dtype)x->dtype);
  aci_scan_args a = {};
  if (x->numel == 0) return AC_OK;
  aci_reduce_plan_make(&a.x, x, mask, ct);
  aci_reduce_plan_make(&a.y, f->out[0], mask, ct);
  aci_reduce_plan_make(&a.at, f->out[1], mask, ACI_C_I64);
  if (ct == ACI_C_F64) return aci_scan_cuda<best<double, MIN>>(f, a, e);
  if (ct == ACI_C_F32) return aci_scan_cuda<best<float, MIN>>(f, a, e);
  return aci_scan_cuda<best<int64_t, MIN>>(f, a, e);
}
AC_KERNEL(cuda, cummax, running<false>)
AC_KERNEL(cuda, cummin, running<true>)

/* Forwards the product before each element, backwards the sum: see cumprod.c. */
static __global__ void __launch_bounds__(ACI_BLOCK)
    cumprod_back(const __grid_constant__ back_args a) {
  for (int64_t r = aci_first(); r < a.x.n_out; r += aci_step()) {
    const aci_row<double> dy(a.dy, r), x(a.x, r), dx(a.dx, r);
    double p = 1, s = 0;
    for (int64_t i = 0; i < a.x.n_reduced; i++) {
      a.before[i * a.x.n_out + r] = p;
      p *= x.get(i);
    }
    for (int64_t i = a.x.n_reduced - 1; i >= 0; i--) {
      s += dy.get(i); /* with the sum from i + 1, already times x there */
      dx.put(i, a.before[i * a.x.n_out + r] * s);
      s *= x.get(i);
    }
  }
}
static ac_status cumprod_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[1].tensor;
  const uint32_t mask = aci_scan_mask(x, f->args[2].i);
  back_args a = {};
  ac_block *block;
  if (x->numel == 0) return AC_OK;
  aci_reduce_plan_make(&a.dy, f->args[0].tensor, mask, ACI_C_F64);
  aci_reduce_plan_make(&a.x, x, mask, ACI_C_F64);
  aci_reduce_plan_make(&a.dx, f->out[0], mask, ACI_C_F64);
  AC_TRY(ac_block_alloc(f->device, (size_t)x->numel * 8, AC_MEM_ACTIVATION, f->stream, &block, e));
  a.before = (double *)block->ptr;
  const ac_status st =
      aci_launch(f, "cumprod_backward", cumprod_back, aci_blocks(f->device, a.x.n_out), e, a);
  ac_block_free(block);
  return st;
}
AC_KERNEL(cuda, cumprod_backward, cumprod_backward)
