/* softmax and log_softmax on CUDA, forward and backward: a block per row, the row read again for each of its passes. */
#include "ops/reduce/rows.cuh"

struct softmax_args {
  aci_reduce_plan a, b, out; /* b: backward's y */
  bool logs;
};

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) softmax_rows(const __grid_constant__ softmax_args s) {
  __shared__ C most[ACI_BLOCK];
  __shared__ double sums[ACI_BLOCK];
  const int64_t n = s.a.n_reduced;
  for (int64_t r = blockIdx.x; r < s.a.n_out; r += gridDim.x) {
    const aci_row<C> x(s.a, r), y(s.out, r);
    C m = (C)-INFINITY;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) m = aci_max_op::of(m, x.get(i));
    m = aci_block_join<aci_max_op>(m, most);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += (double)m_exp((C)(x.get(i) - m));
    sum = aci_block_join<aci_add_op>(sum, sums);
    const C log_sum = (C)log(sum), scale = (C)(1 / sum);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const C d = x.get(i) - m;
      y.put(i, s.logs ? d - log_sum : m_exp(d) * scale);
    }
  }
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    softmax_rows_back(const __grid_constant__ softmax_args s) {
  __shared__ double sums[ACI_BLOCK];
  const int64_t n = s.a.n_reduced;
  for (int64_t r = blockIdx.x; r < s.a.n_out; r += gridDim.x) {
    const aci_row<C> dy(s.a, r), y(s.b, r), dx(s.out, r);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
      sum += (double)(s.logs ? dy.get(i) : dy.get(i) * y.get(i));
    const C all = (C)aci_block_join<aci_add_op>(sum, sums);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
      dx.put(i, s.logs ? dy.get(i) - m_exp(y.get(i)) * all : y.get(i) * (dy.get(i) - all));
  }
}

static ac_status run(ac_frame *f, bool back, bool logs, ac_err *e) {
  const ac_tensor *a = f->args[0].tensor, *out = f->out[0];
  const int64_t dim = f->args[back ? 2 : 1].i;
  const int d = (int)(dim < 0 ? dim + (a->ndim > 0 ? a->ndim : 1) : dim);
  const aci_ctype ct = aci_ctype_of((ac_dtype)out->dtype);
  const uint32_t mask = a->ndim > 0 ? 1u << d : 0;
  softmax_args s = {};
  s.logs = logs;
  if (out->numel == 0) return AC_OK;
  aci_reduce_plan_make(&s.a, a, mask, ct);
  aci_reduce_plan_make(&s.out, out, mask, ct);
  if (back) aci_reduce_plan_make(&s.b, f->args[1].tensor, mask, ct);
  const unsigned blocks = aci_blocks(f->device, s.a.n_out, 1);
  const bool wide = ct == ACI_C_F64;
  if (back)
    return aci_launch(f, "softmax (backward)", wide ? softmax_rows_back<double> : softmax_rows_back<float>,
                      blocks, e, s);
  return aci_launch(f, "softmax", wide ? softmax_rows<double> : softmax_rows<float>, blocks, e, s);
}

static ac_status softmax(ac_frame *f, ac_err *e) { return run(f, false, false, e); }
static ac_status log_softmax(ac_frame *f, ac_err *e) { return run(f, false, true, e); }
static ac_status softmax_backward(ac_frame *f, ac_err *e) { return run(f, true, false, e); }
static ac_status log_softmax_backward(ac_frame *f, ac_err *e) { return run(f, true, true, e); }
AC_KERNEL(cuda, softmax, softmax)
AC_KERNEL(cuda, log_softmax, log_softmax)
AC_KERNEL(cuda, softmax_backward, softmax_backward)
AC_KERNEL(cuda, log_softmax_backward, log_softmax_backward)
