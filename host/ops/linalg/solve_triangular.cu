/* solve_triangular on CUDA, in double: a block of threads a right-hand side, which subtracts each
 * value that it finds from those that are left. Simple rather than fast. */
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

namespace {
struct solve_args {
  const void *m, *b;
  void *out;
  ac_dtype dt;
  int n_batch_dims;
  int64_t shape[AC_MAX_DIMS], m_stride[AC_MAX_DIMS], b_stride[AC_MAX_DIMS];
  int64_t batches, n, k;
  int64_t row, col;    /* strides of A, or of its transpose, so that A x = b is solved */
  int64_t along, side; /* strides of B: along a right-hand side, from one to the next */
  int64_t out_along, out_side;
  bool lower, unit;
  double *x; /* (batches, k, n) */
};
} // namespace

static __global__ void __launch_bounds__(ACI_BLOCK)
    solve_kernel(const __grid_constant__ solve_args a) {
  for (int64_t item = blockIdx.x; item < a.batches * a.k; item += gridDim.x) {
    const int64_t batch = item / a.k, side = item % a.k;
    const int64_t m =
        a.n_batch_dims > 0 ? aci_element_offset(batch, a.n_batch_dims, a.shape, a.m_stride) : 0;
    const int64_t b =
        (a.n_batch_dims > 0 ? aci_element_offset(batch, a.n_batch_dims, a.shape, a.b_stride) : 0) +
        side * a.side;
    double *x = a.x + item * a.n;
    for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x)
      x[i] = aci_get<double>(a.dt, a.b, b + i * a.along);
    __syncthreads();
    for (int64_t s = 0; s < a.n; s++) {
      const int64_t i = a.lower ? s : a.n - 1 - s, left = a.n - 1 - s;
      const double found =
          a.unit ? x[i] : x[i] / aci_get<double>(a.dt, a.m, m + i * (a.row + a.col));
      __syncthreads(); /* all have read it */
      if (threadIdx.x == 0) x[i] = found;
      for (int64_t t = threadIdx.x; t < left; t += blockDim.x) {
        const int64_t r = a.lower ? i + 1 + t : i - 1 - t;
        x[r] -= aci_get<double>(a.dt, a.m, m + r * a.row + i * a.col) * found;
      }
      __syncthreads();
    }
    const int64_t out = batch * a.n * a.k + side * a.out_side;
    for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x)
      aci_put(a.dt, a.out, out + i * a.out_along, x[i]);
    __syncthreads();
  }
}

static ac_status solve(ac_frame *f, ac_err *e) {
  const ac_tensor *m = f->args[0].tensor, *b = f->args[1].tensor, *out = f->out[0];
  const bool upper = f->args[2].b, left = f->args[3].b;
  solve_args a = {};
  ac_block *block;
  if (out->numel == 0) return AC_OK;
  a.m = aci_data(m);
  a.b = aci_data(b);
  a.out = aci_data(out);
  a.dt = (ac_dtype)b->dtype;
  a.n_batch_dims = out->ndim - 2;
  a.batches = 1;
  for (int d = 0; d < a.n_batch_dims; d++) {
    const int dm = d - (out->ndim - m->ndim), db = d - (out->ndim - b->ndim);
    a.batches *= a.shape[d] = out->shape[d];
    a.m_stride[d] = dm < 0 || m->shape[dm] == 1 ? 0 : m->stride[dm];
    a.b_stride[d] = db < 0 || b->shape[db] == 1 ? 0 : b->stride[db];
  }
  a.n = m->shape[m->ndim - 1];
  a.k = b->shape[b->ndim - (left ? 1 : 2)];
  a.row = m->stride[m->ndim - (left ? 2 : 1)];
  a.col = m->stride[m->ndim - (left ? 1 : 2)];
  a.along = b->stride[b->ndim - (left ? 2 : 1)];
  a.side = b->stride[b->ndim - (left ? 1 : 2)];
  a.out_along = left ? a.k : 1;
  a.out_side = left ? 1 : a.n;
  a.lower = upper != left;
  a.unit = f->args[4].b;
  AC_TRY(
      ac_block_alloc(f->device, (size_t)out->numel * 8, AC_MEM_ACTIVATION, f->stream, &block, e));
  a.x = (double *)block->ptr;
  const ac_status st = aci_launch(f, "solve_triangular", solve_kernel,
                                  aci_blocks(f->device, a.batches * a.k, 1), e, a);
  ac_block_free(block);
  return st;
}
AC_KERNEL(cuda, solve_triangular, solve)
