/* cumsum and cumprod on CUDA, in double as the CPU's (integers wrap). */
#include "ops/reduce/scan.cuh"

namespace {
template <class C, bool PRODUCT> struct running_total {
  typedef C element;
  typedef C state;
  static __device__ __forceinline__ C none() { return PRODUCT ? (C)1 : (C)0; }
  static __device__ __forceinline__ C of(C v, int64_t) { return v; }
  static __device__ __forceinline__ C join(const C &a, const C &b) {
    return PRODUCT ? a * b : a + b;
  }
  static __device__ __forceinline__ void put(const aci_scan_args &a, int64_t line, int64_t i,
                                             const C &s) {
    aci_row<C>(a.y, line).put(i, s);
  }
};
} // namespace

static ac_status run(ac_frame *f, bool product, bool reverse, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *y = f->out[0];
  const uint32_t mask = aci_scan_mask(x, f->args[1].i);
  aci_scan_args a = {};
  if (y->numel == 0) return AC_OK;
  /* read as the dtype of the result: the cast comes first */
  const bool whole = !ac_dtype_is_float((ac_dtype)y->dtype);
  aci_reduce_plan_make(&a.x, x, mask, whole ? ACI_C_I64 : ACI_C_F64);
  aci_reduce_plan_make(&a.y, y, mask, whole ? ACI_C_I64 : ACI_C_F64);
  a.reverse = reverse;
  if (whole)
    return product ? aci_scan_cuda<running_total<int64_t, true>>(f, a, e)
                   : aci_scan_cuda<running_total<int64_t, false>>(f, a, e);
  return product ? aci_scan_cuda<running_total<double, true>>(f, a, e)
                 : aci_scan_cuda<running_total<double, false>>(f, a, e);
}
static ac_status cumsum(ac_frame *f, ac_err *e) { return run(f, false, false, e); }
static ac_status cumsum_backward(ac_frame *f, ac_err *e) { return run(f, false, true, e); }
static ac_status cumprod(ac_frame *f, ac_err *e) { return run(f, true, false, e); }
AC_KERNEL(cuda, cumsum, cumsum)
AC_KERNEL(cuda, cumsum_backward, cumsum_backward)
AC_KERNEL(cuda, cumprod, cumprod)
