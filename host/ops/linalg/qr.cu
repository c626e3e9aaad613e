/* qr on CUDA: Householder's reflections in double (qr.c, householder.h), one block of threads per
 * matrix, column after column: simple rather than fast. */
#include "ops/reduce/rows.cuh"

namespace {
enum { LANES = 32, COLUMNS = ACI_BLOCK / LANES }; /* threads of a column, columns at a time */
struct qr_args {
  const void *x;
  void *q, *r;
  ac_dtype dt;
  int n_batch_dims;
  int64_t batch_shape[AC_MAX_DIMS], batch_stride[AC_MAX_DIMS], rs, cs;
  int64_t batches, m, n, kq, kr;
  double *scratch; /* by matrix: a (n columns of m), q (kq columns of m), tau */
};
} // namespace

ACI_DEVICE double length(const double *x, int64_t n, double *shared) {
  double s = 0, most = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    s += x[i] * x[i];
    const double v = fabs(x[i]);
    most = v > most || v != v ? v : most;
  }
  s = aci_block_join<aci_add_op>(s, shared);
  if (s > 1e-280 && s < 1e280) return sqrt(s);
  /* squares that overflow: scaled by the largest. NaN and infinity come out as themselves */
  __syncthreads();
  shared[threadIdx.x] = most;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    const double v = shared[threadIdx.x + (threadIdx.x < half ? half : 0)];
    if (threadIdx.x < half && (v > shared[threadIdx.x] || v != v)) shared[threadIdx.x] = v;
  }
  __syncthreads();
  most = shared[0];
  __syncthreads();
  if (most == 0 || most * 0 != 0) return most;
  s = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) s += x[i] / most * (x[i] / most);
  return most * sqrt(aci_block_join<aci_add_op>(s, shared));
}

/* Columns [first, last) of x (m long each), from row j on, := (I - tau v v^T) of them. v[0] counts
 * as 1. */
ACI_DEVICE void reflect(const double *v, double tau, double *x, int64_t m, int64_t j, int64_t first,
                        int64_t last, double *shared) {
  const int lane = (int)threadIdx.x % LANES, own = (int)threadIdx.x / LANES;
  const int64_t n = m - j;
  for (int64_t at = first; at < last; at += COLUMNS) {
    double *col = x + (at + own) * m + j, s = 0;
    if (at + own < last)
      for (int64_t i = lane; i < n; i += LANES) s += (i == 0 ? 1 : v[i]) * col[i];
    shared[threadIdx.x] = s;
    for (int half = LANES / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    __syncthreads();
    s = shared[own * LANES] * tau;
    if (at + own < last)
      for (int64_t i = lane; i < n; i += LANES) col[i] -= s * (i == 0 ? 1 : v[i]);
    __syncthreads(); /* shared is written again */
  }
}

static __global__ void __launch_bounds__(ACI_BLOCK) qr_kernel(const __grid_constant__ qr_args a) {
  __shared__ double shared[ACI_BLOCK];
  const int64_t m = a.m, n = a.n, k = m < n ? m : n, each = m * (n + a.kq) + k;
  for (int64_t b = blockIdx.x; b < a.batches; b += gridDim.x) {
    double *x = a.scratch + b * each, *q = x + m * n, *tau = q + m * a.kq;
    const int64_t base = a.n_batch_dims > 0
                             ? aci_element_offset(b, a.n_batch_dims, a.batch_shape, a.batch_stride)
                             : 0;
    for (int64_t i = threadIdx.x; i < m * n; i += blockDim.x)
      x[i] = aci_get<double>(a.dt, a.x, base + i % m * a.rs + i / m * a.cs);
    __syncthreads();
    for (int64_t j = 0; j < k; j++) {
      double *v = x + j * m + j;
      const double rest = m - j > 1 ? length(v + 1, m - j - 1, shared) : 0, alpha = v[0];
      __syncthreads(); /* alpha was read */
      if (rest == 0) { /* nothing to do, as in LAPACK */
        if (threadIdx.x == 0) tau[j] = 0;
        __syncthreads();
        continue;
      }
      const double beta = -copysign(hypot(alpha, rest), alpha), t = (beta - alpha) / beta;
      for (int64_t i = 1 + threadIdx.x; i < m - j; i += blockDim.x) v[i] /= alpha - beta;
      if (threadIdx.x == 0) {
        v[0] = beta;
        tau[j] = t;
      }
      __syncthreads();
      reflect(v, t, x, m, j, j + 1, n, shared);
    }
    for (int64_t i = threadIdx.x; i < m * a.kq; i += blockDim.x) q[i] = i % m == i / m ? 1 : 0;
    __syncthreads();
    for (int64_t j = k - 1; j >= 0 && a.kq > 0; j--) /* columns before j still equal those of I */
      if (tau[j] != 0) reflect(x + j * m + j, tau[j], q, m, j, j, a.kq, shared);
    for (int64_t i = threadIdx.x; i < a.kr * n; i += blockDim.x)
      aci_put(a.dt, a.r, b * a.kr * n + i,
              i / n <= i % n && i / n < m ? x[i % n * m + i / n] : 0.0);
    for (int64_t i = threadIdx.x; i < m * a.kq; i += blockDim.x)
      aci_put(a.dt, a.q, b * m * a.kq + i, q[i % a.kq * m + i / a.kq]);
  }
}

static ac_status qr(ac_frame *f, ac_err *e) {
  enum { MODE_R = 2 }; /* reduced, complete, r */
  const ac_tensor *x = f->args[0].tensor, *q = f->out[0], *r = f->out[1];
  qr_args a = {};
  ac_block *block;
  if (q->numel == 0 && r->numel == 0) return AC_OK;
  a.x = aci_data(x);
  a.q = aci_data(q);
  a.r = aci_data(r);
  a.dt = (ac_dtype)x->dtype;
  a.n_batch_dims = x->ndim - 2;
  a.batches = 1;
  for (int d = 0; d < x->ndim - 2; d++) {
    a.batches *= a.batch_shape[d] = x->shape[d];
    a.batch_stride[d] = x->stride[d];
  }
  a.m = x->shape[x->ndim - 2];
  a.n = x->shape[x->ndim - 1];
  a.rs = x->stride[x->ndim - 2];
  a.cs = x->stride[x->ndim - 1];
  a.kr = r->shape[r->ndim - 2];
  a.kq = f->args[1].i == MODE_R ? 0 : q->shape[q->ndim - 1];
  const int64_t k = a.m < a.n ? a.m : a.n;
  const size_t bytes = (size_t)(a.batches * (a.m * (a.n + a.kq) + k)) * sizeof(double);
  AC_TRY(ac_block_alloc(f->device, bytes + 8, AC_MEM_ACTIVATION, f->stream, &block, e));
  a.scratch = (double *)block->ptr;
  const ac_status st = aci_launch(f, "qr", qr_kernel, aci_blocks(f->device, a.batches, 1), e, a);
  ac_block_free(block);
  return st;
}
AC_KERNEL(cuda, qr, qr)
