/* layer_norm and rms_norm on CUDA, with a residual and without, forward and backward: the calls,
 * and rows of any strides. A row is the elements of the normalised dims. A block works on one at a
 * time. Statistics are double between threads. dweight and dbias: every row's share goes to scratch
 * by pieces of rows, columns are added in the order of the pieces, so that the sum does not depend
 * on which block came first. */
#include "ops/norm/norm_rows.cuh"

/* Mean (0 for rms) and 1 / deviation of a row. */
template <class C>
ACI_DEVICE void statistics(const norm_args &a, const aci_row<C> &x, double *shared, double *mean,
                           double *rstd) {
  const int64_t n = a.x.n_reduced;
  double sum = 0, m2 = 0;
  *mean = 0;
  if (!a.rms) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += (double)x.get(i);
    *mean = aci_block_join<aci_add_op>(sum, shared) / (double)n;
  }
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const double d = (double)x.get(i) - *mean;
    m2 = fma(d, d, m2);
  }
  *rstd = 1 / sqrt(aci_block_join<aci_add_op>(m2, shared) / (double)n + a.eps);
}

/* x, which is sum, by itself: for addends that do not lie as the kernels of lines want them. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) norm_add(const __grid_constant__ norm_args a) {
  for (int64_t r = blockIdx.x; r < a.x.n_out; r += gridDim.x) {
    const aci_row<C> x(a.x, r), residual(a.residual, r), addend(a.addend, r);
    for (int64_t i = threadIdx.x; i < a.x.n_reduced; i += blockDim.x)
      x.put(i, residual.get(i) + addend.get(i));
  }
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) norm_rows(const __grid_constant__ norm_args a) {
  __shared__ double shared[ACI_BLOCK];
  for (int64_t r = blockIdx.x; r < a.x.n_out; r += gridDim.x) {
    const aci_row<C> x(a.x, r), y(a.out, r), w(a.w, 0), b(a.b, 0);
    double mean, rstd;
    statistics(a, x, shared, &mean, &rstd);
    for (int64_t i = threadIdx.x; i < a.x.n_reduced; i += blockDim.x) {
      C v = (C)(((double)x.get(i) - mean) * rstd);
      if (a.has_w) v *= w.get(i);
      if (a.has_b) v += b.get(i);
      y.put(i, v);
    }
  }
}

/* dx, and the columns' sums of a piece of rows: each thread keeps to its columns, row after row. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    norm_rows_back(const __grid_constant__ norm_args a) {
  __shared__ double shared[ACI_BLOCK];
  const int64_t n = a.x.n_reduced;
  for (int64_t k = blockIdx.x; k < a.n_pieces; k += gridDim.x) {
    const int64_t begin = k * a.piece,
                  end = begin + a.piece < a.x.n_out ? begin + a.piece : a.x.n_out;
    double *dw = a.part != NULL ? (double *)a.part + k * 2 * n : NULL,
           *db = dw != NULL ? dw + n : NULL;
    for (int64_t i = threadIdx.x; dw != NULL && i < 2 * n; i += blockDim.x) dw[i] = 0;
    __syncthreads();
    for (int64_t r = begin; r < end; r++) {
      const aci_row<C> x(a.x, r), dy(a.dy, r), dsum(a.addend, r), dx(a.out, r), w(a.w, 0);
      double mean, rstd, g_sum = 0, gh_sum = 0;
      statistics(a, x, shared, &mean, &rstd);
      for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const double h = ((double)x.get(i) - mean) * rstd, d = (double)dy.get(i);
        const double g = a.has_w ? d * (double)w.get(i) : d;
        g_sum += g;
        gh_sum = fma(g, h, gh_sum);
        if (dw != NULL) {
          dw[i] = fma(d, h, dw[i]);
          db[i] += d;
        }
      }
      const double gh = aci_block_join<aci_add_op>(gh_sum, shared) / (double)n;
      const double g_mean = a.rms ? 0 : aci_block_join<aci_add_op>(g_sum, shared) / (double)n;
      for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const double h = ((double)x.get(i) - mean) * rstd, d = (double)dy.get(i);
        const double g = a.has_w ? d * (double)w.get(i) : d;
        const C v = (C)(rstd * (g - g_mean - h * gh));
        dx.put(i, a.has_addend ? v + dsum.get(i) : v);
      }
    }
  }
}

static uint32_t mask_of(int ndim, int n) { return (uint32_t)(((1ull << n) - 1) << (ndim - n)); }

static bool parameter(const ac_value *v, aci_ctype ct, aci_reduce_plan *p) {
  p->n_keep = p->n_red = 1; /* of none: never read */
  if (v == NULL || v->kind != AC_T_TENSOR) return false;
  aci_reduce_plan_make(p, v->tensor, 0xffffffffu, ct);
  return true;
}

static ac_status forward(ac_frame *f, bool rms, double eps, ac_err *e) {
  const bool adds = f->n_out > 1;
  const ac_value *args = f->args + (adds ? 2 : 1); /* normalized_shape, weight, bias */
  const ac_tensor *x = adds ? f->out[1] : f->args[0].tensor;
  const aci_ctype ct = aci_ctype_of((ac_dtype)x->dtype);
  const uint32_t mask = mask_of(x->ndim, args[0].n);
  norm_args a = {};
  if (x->numel == 0) return AC_OK;
  a.rms = rms;
  a.eps = eps;
  aci_reduce_plan_make(&a.x, x, mask, ct);
  aci_reduce_plan_make(&a.out, f->out[0], mask, ct);
  a.has_residual = a.has_addend = adds;
  if (adds) {
    aci_reduce_plan_make(&a.residual, f->args[1].tensor, mask, ct);
    aci_reduce_plan_make(&a.addend, f->args[0].tensor, mask, ct);
  }
  a.has_w = parameter(&args[1], ct, &a.w);
  a.has_b = parameter(rms ? NULL : &args[2], ct, &a.b);
  ac_status st = aci_cuda_norm_lines(f, &a, false, e);
  const unsigned blocks = aci_blocks(f->device, a.x.n_out, 1);
  if (st == AC_UNSUPPORTED && adds) {
    if (ct == ACI_C_F64) AC_TRY(aci_launch(f, "norm (sum)", norm_add<double>, blocks, e, a));
    else AC_TRY(aci_launch(f, "norm (sum)", norm_add<float>, blocks, e, a));
    a.has_residual = a.has_addend = false;
    st = aci_cuda_norm_lines(f, &a, false, e);
  }
  if (st != AC_UNSUPPORTED) return st;
  if (ct == ACI_C_F64) return aci_launch(f, "norm", norm_rows<double>, blocks, e, a);
  return aci_launch(f, "norm", norm_rows<float>, blocks, e, a);
}

static ac_status backward(ac_frame *f, bool rms, double eps, ac_err *e) {
  const ac_tensor *dy = f->args[0].tensor, *x = f->args[1].tensor;
  const aci_ctype ct = aci_ctype_of((ac_dtype)x->dtype);
  const uint32_t mask = mask_of(x->ndim, f->args[2].n);
  enum { PIECES = 256 };
  norm_args a = {};
  ac_block *scratch = NULL;
  a.rms = rms;
  a.eps = eps;
  aci_reduce_plan_make(&a.x, x, mask, ct);
  aci_reduce_plan_make(&a.dy, dy, mask, ct);
  a.has_addend = f->args[5].kind == AC_T_TENSOR;
  if (a.has_addend) aci_reduce_plan_make(&a.addend, f->args[5].tensor, mask, ct);
  aci_reduce_plan_make(&a.out, f->out[0], mask, ct);
  a.has_w = parameter(&f->args[3], ct, &a.w);
  if (x->numel > 0) {
    const ac_status lines = aci_cuda_norm_lines(f, &a, true, e);
    if (lines != AC_UNSUPPORTED) return lines;
  }
  a.piece = (a.x.n_out + PIECES - 1) / PIECES;
  if (a.piece < 1) a.piece = 1;
  a.n_pieces = x->numel == 0 ? 0 : (a.x.n_out + a.piece - 1) / a.piece;
  if (f->n_out > 1 && a.n_pieces > 0) {
    AC_TRY(ac_block_alloc(f->device, (size_t)(a.n_pieces * 2 * a.x.n_reduced) * sizeof(double),
                          AC_MEM_ACTIVATION, f->stream, &scratch, e));
    a.part = scratch->ptr;
  }
  const unsigned blocks = aci_blocks(f->device, a.n_pieces, 1);
  ac_status st = AC_OK;
  if (a.n_pieces > 0)
    st = ct == ACI_C_F64 ? aci_launch(f, "norm (backward)", norm_rows_back<double>, blocks, e, a)
                         : aci_launch(f, "norm (backward)", norm_rows_back<float>, blocks, e, a);
  for (int k = 1; k < f->n_out && st == AC_OK; k++) {
    const int64_t n = a.x.n_reduced, first = (k - 1) * n;
    void *const out = aci_data(f->out[k]);
    const ac_dtype dt = (ac_dtype)f->out[k]->dtype;
    st = aci_join_columns(f, (const double *)a.part + first, a.n_pieces, 2 * n, n, 1, out, dt, e);
  }
  ac_block_free(scratch);
  return st;
}

static double epsilon(const ac_frame *f, int arg) {
  const ac_value *v = &f->args[arg];
  return v->kind == AC_T_FLOAT        ? v->f
         : f->out[0]->dtype == AC_F64 ? 2.2204460492503131e-16
                                      : 1.1920928955078125e-07;
}
static ac_status layer_norm(ac_frame *f, ac_err *e) { return forward(f, false, f->args[4].f, e); }
static ac_status add_layer_norm(ac_frame *f, ac_err *e) {
  return forward(f, false, f->args[5].f, e);
}
static ac_status rms_norm(ac_frame *f, ac_err *e) { return forward(f, true, epsilon(f, 3), e); }
static ac_status add_rms_norm(ac_frame *f, ac_err *e) { return forward(f, true, epsilon(f, 4), e); }
static ac_status layer_norm_backward(ac_frame *f, ac_err *e) {
  return backward(f, false, f->args[4].f, e);
}
static ac_status rms_norm_backward(ac_frame *f, ac_err *e) {
  return backward(f, true, f->args[4].f, e);
}
AC_KERNEL(cuda, layer_norm, layer_norm)
AC_KERNEL(cuda, rms_norm, rms_norm)
AC_KERNEL(cuda, add_layer_norm, add_layer_norm)
AC_KERNEL(cuda, add_rms_norm, add_rms_norm)
AC_KERNEL(cuda, layer_norm_backward, layer_norm_backward)
AC_KERNEL(cuda, rms_norm_backward, rms_norm_backward)
