/* clip_grad_norm_ on CUDA: one pass over all gradients for the norm, one that scales. Nothing waits
 * for the device, unless error_if_nonfinite asks for it. Each block's sum is double and in a fixed
 * order. The sums are joined in the order of the blocks' pieces. */
#include "ops/optim/lists.cuh"
#include "ops/reduce/rows.cuh"

static __device__ __forceinline__ double gather(double sum, double v, double p) {
  const double a = fabs(v);
  if (p == 2) return fma(v, v, sum);
  if (p == (double)INFINITY) return aci_max(sum, a);
  return sum + (p == 0 ? (a != 0 ? 1 : 0) : p == 1 ? a : pow(a, p));
}
struct join_op {
  double p;
  __device__ __forceinline__ double of(double a, double b) const {
    return p == (double)INFINITY ? aci_max(a, b) : a + b;
  }
};

static __global__ void __launch_bounds__(ACI_BLOCK)
    measure(const __grid_constant__ aci_list_batch b, double p, double *part) {
  __shared__ double shared[ACI_BLOCK];
  const join_op join = {p};
  for (int piece = (int)blockIdx.x; piece < b.first_piece[b.tensors]; piece += (int)gridDim.x) {
    const int t = aci_list_tensor(b, piece);
    const int64_t begin = (int64_t)(piece - b.first_piece[t]) * ACI_LIST_PIECE;
    const int64_t end = begin + ACI_LIST_PIECE < b.n[t] ? begin + ACI_LIST_PIECE : b.n[t];
    double sum = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
      sum = gather(sum, aci_get<double>((ac_dtype)b.dt[0][t], b.ptr[0][t], i), p);
    shared[threadIdx.x] = sum;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half)
        shared[threadIdx.x] = join.of(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) part[piece] = shared[0];
    __syncthreads();
  }
}

/* All parts into one norm, by one block. */
static __global__ void __launch_bounds__(ACI_BLOCK)
    conclude(const double *part, int64_t n, double p, aci_number out) {
  __shared__ double shared[ACI_BLOCK];
  const join_op join = {p};
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum = join.of(sum, part[i]);
  shared[threadIdx.x] = sum;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half)
      shared[threadIdx.x] = join.of(shared[threadIdx.x], shared[threadIdx.x + half]);
  }
  if (threadIdx.x == 0) {
    const double s = shared[0];
    out.set(p == 2 ? sqrt(s) : p == 0 || p == 1 || p == (double)INFINITY ? s : pow(s, 1 / p));
  }
}

template <class T> struct shrink {
  enum { LISTS = 1 };
  aci_number norm;
  double max_norm;
  T by;
  __device__ __forceinline__ bool prepare() {
    const double scale = max_norm / (norm.get() + 1e-6);
    by = (T)scale;
    return !(scale >= 1); /* NaN is passed on, as in PyTorch */
  }
  __device__ __forceinline__ void element(T *v, const aci_list_batch &, int) const { v[0] *= by; }
};

static ac_status clip(const aci_lists *l, int64_t pieces, ac_err *e) {
  ac_frame *f = l->f;
  const double p = f->args[2].f, max_norm = f->args[1].f;
  double *part = (double *)l->room->ptr;
  size_t at = 0;
  for (int i = 0; i < l->n;) {
    aci_list_batch b;
    aci_lists_batch(l, &i, &at, &b);
    const int n = b.first_piece[b.tensors];
    AC_TRY(aci_launch(f, "norm of gradients", measure, aci_blocks(f->device, n, 1), e, b, p, part));
    part += n;
  }
  const aci_number out = aci_number_of(f->out[0]);
  AC_TRY(aci_launch(f, "norm of gradients", conclude, 1u, e, (const double *)l->room->ptr, pieces,
                    p, out));
  if (f->args[3].b) {
    char bytes[8];
    AC_TRY(f->device->vt->copy(f->device, f->stream, bytes, out.ptr, aci_dsize(out.dt), e));
    AC_TRY(aci_cuda_check(f->device, cudaStreamSynchronize(aci_cuda_stream(f->device, f->stream)),
                          "copy", e));
    float narrow;
    double norm;
    memcpy(&norm, bytes, sizeof norm);
    memcpy(&narrow, bytes, sizeof narrow);
    if (out.dt == AC_F32) norm = narrow;
    if (!(fabs(norm) <= 1.7976931348623157e308))
      return AC_FAIL(e, INVALID, "the total norm of the gradients is %g; nothing was changed",
                     norm);
  }
  if (max_norm == (double)INFINITY) return AC_OK; /* measured only */
  const auto make = [&](auto c) {
    shrink<decltype(c)> k = {};
    k.norm = out;
    k.max_norm = max_norm;
    return k;
  };
  return aci_lists_run<shrink>(l, "clip", 1u, make, e);
}

static ac_status run(ac_frame *f, ac_err *e) {
  const ac_value *grads = &f->args[0];
  int64_t pieces = 0;
  for (int i = 0; i < grads->n; i++)
    pieces += (grads->tensors[i]->numel + ACI_LIST_PIECE - 1) / ACI_LIST_PIECE;
  aci_lists l = {f, grads->n, 1, {grads->tensors}};
  AC_TRY(aci_lists_open(&l, (size_t)(pieces + 1) * sizeof(double), e));
  const ac_status st = clip(&l, pieces, e);
  ac_block_free(l.room); /* the next user works after us in the same order */
  return st;
}
AC_KERNEL(cuda, clip_grad_norm_, run)
