/* cumsum and cumprod on CUDA, first form: a thread walks a line, in double as the CPU's (integers wrap). Lines side by side are read
 * together; one long line is slow. */
#include "ops/reduce/rows.cuh"

struct scan_args {
  aci_reduce_plan x, y;
  bool product, reverse;
};

template <class C> static __global__ void __launch_bounds__(ACI_BLOCK) scan_lines(const __grid_constant__ scan_args a) {
  for (int64_t r = aci_first(); r < a.x.n_out; r += aci_step()) {
    const aci_row<C> x(a.x, r), y(a.y, r);
    const int64_t n = a.x.n_reduced;
    C state = a.product ? 1 : 0;
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = a.reverse ? n - 1 - i : i;
      const C v = x.get(at);
      state = a.product ? state * v : state + v;
      y.put(at, state);
    }
  }
}

static ac_status run(ac_frame *f, bool product, bool reverse, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *y = f->out[0];
  const int64_t dim = f->args[1].i;
  const uint32_t mask = x->ndim > 0 ? 1u << (dim < 0 ? dim + x->ndim : dim) : 0;
  scan_args a = {};
  if (y->numel == 0) return AC_OK;
  /* read as the dtype of the result: the cast comes first */
  const bool whole = !ac_dtype_is_float((ac_dtype)y->dtype);
  aci_reduce_plan_make(&a.x, x, mask, whole ? ACI_C_I64 : ACI_C_F64);
  aci_reduce_plan_make(&a.y, y, mask, whole ? ACI_C_I64 : ACI_C_F64);
  a.product = product;
  a.reverse = reverse;
  const unsigned blocks = aci_blocks(f->device, a.x.n_out);
  if (whole) return aci_launch(f, "scan", scan_lines<int64_t>, blocks, e, a);
  return aci_launch(f, "scan", scan_lines<double>, blocks, e, a);
}
static ac_status cumsum(ac_frame *f, ac_err *e) { return run(f, false, false, e); }
static ac_status cumsum_backward(ac_frame *f, ac_err *e) { return run(f, false, true, e); }
static ac_status cumprod(ac_frame *f, ac_err *e) { return run(f, true, false, e); }
AC_KERNEL(cuda, cumsum, cumsum)
AC_KERNEL(cuda, cumsum_backward, cumsum_backward)
AC_KERNEL(cuda, cumprod, cumprod)
