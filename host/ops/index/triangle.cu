/* tril and triu on CUDA: an element a thread. */
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

struct triangle_args {
  const void *x;
  void *y;
  int ndim;
  int64_t n, rows, columns, diagonal, shape[AC_MAX_DIMS], stride[AC_MAX_DIMS];
  bool upper;
};
template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    triangle_kernel(const __grid_constant__ triangle_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    const int64_t c = i % a.columns, r = i / a.columns % a.rows;
    const bool keep = a.upper ? c >= r + a.diagonal : c <= r + a.diagonal;
    ((S *)a.y)[i] =
        keep ? ((const S *)a.x)[aci_element_offset(i, a.ndim, a.shape, a.stride)] : (S)0;
  }
}

static ac_status run(ac_frame *f, bool upper, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  triangle_args a = {};
  if (x->numel == 0) return AC_OK;
  a.x = aci_data(x);
  a.y = aci_data(f->out[0]);
  a.ndim = x->ndim;
  a.n = x->numel;
  a.rows = x->shape[x->ndim - 2];
  a.columns = x->shape[x->ndim - 1];
  const int64_t d = f->args[1].i;
  /* all the same beyond the corners */
  a.diagonal = d > a.columns ? a.columns : d < -a.rows ? -a.rows : d;
  a.upper = upper;
  memcpy(a.shape, x->shape, 8 * (size_t)x->ndim);
  memcpy(a.stride, x->stride, 8 * (size_t)x->ndim);
  const unsigned blocks = aci_blocks(f->device, a.n);
  switch (aci_dsize((ac_dtype)x->dtype)) {
    case 1: return aci_launch(f, "triangle", triangle_kernel<uint8_t>, blocks, e, a);
    case 2: return aci_launch(f, "triangle", triangle_kernel<uint16_t>, blocks, e, a);
    case 4: return aci_launch(f, "triangle", triangle_kernel<uint32_t>, blocks, e, a);
    default: return aci_launch(f, "triangle", triangle_kernel<uint64_t>, blocks, e, a);
  }
}
static ac_status tril(ac_frame *f, ac_err *e) { return run(f, false, e); }
static ac_status triu(ac_frame *f, ac_err *e) { return run(f, true, e); }
AC_KERNEL(cuda, tril, tril)
AC_KERNEL(cuda, triu, triu)
