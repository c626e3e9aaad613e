/* Labels of cross entropies and the sums over their rows: see cross_entropy.cuh. One block, whose
 * threads take rows in turns and join as a tree. */
#include "ops/loss/cross_entropy.cuh"

#ifdef ACI_CUDA_EMULATED
enum { MANY = 64 };
#else
/* one multiprocessor reads some megabytes in microseconds when all of its threads do */
enum { MANY = 1024 };
#endif

ce_labels aci_ce_labels(const ac_frame *f, const ac_tensor *target, int64_t n_classes,
                        int64_t ignore, const ac_value *weight) {
  ce_labels y = {};
  y.ignore = ignore;
  y.n_classes = n_classes;
  y.fault = aci_cuda_of(f->device)->fault;
  if (target != NULL && !ac_dtype_is_float((ac_dtype)target->dtype)) {
    y.ids = aci_data(target);
    y.ids_dt = (ac_dtype)target->dtype;
    y.ids_ndim = target->ndim;
    memcpy(y.ids_shape, target->shape, 8 * (size_t)target->ndim);
    memcpy(y.ids_stride, target->stride, 8 * (size_t)target->ndim);
  }
  if (weight->kind == AC_T_TENSOR) {
    y.w = aci_data(weight->tensor);
    y.w_dt = (ac_dtype)weight->tensor->dtype;
    y.w_stride = weight->tensor->stride[0];
  }
  return y;
}

struct finish_args {
  const double *loss, *weight;
  int64_t n;
  bool mean;
  void *out;
  ac_dtype dt;
};
static __global__ void __launch_bounds__(MANY) ce_finish(const __grid_constant__ finish_args a) {
  __shared__ double shared[MANY];
  double loss = 0, weight = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < a.n; i += MANY) {
    loss += a.loss[i];
    weight += a.weight != NULL ? a.weight[i] : 1;
  }
  loss = aci_block_join<aci_add_op>(loss, shared);
  weight = aci_block_join<aci_add_op>(weight, shared);
  if (threadIdx.x == 0) aci_put(a.dt, a.out, 0, a.mean ? loss / weight : loss);
}
ac_status aci_ce_finish(ac_frame *f, const double *loss, const double *weight, int64_t n, bool mean,
                        const ac_tensor *out, ac_err *e) {
  const finish_args a = {loss, weight, n, mean, aci_data(out), (ac_dtype)out->dtype};
  return aci_launch(f, "cross entropy (sum)", ce_finish, aci_shape_of_launch(dim3(1), dim3(MANY)),
                    e, a);
}

static __global__ void __launch_bounds__(MANY)
    ce_totals(const __grid_constant__ ce_labels y, int64_t n, double *totals) {
  __shared__ double shared[MANY];
  double classes = 0, rows = 0;
#pragma unroll 4
  for (int64_t c = threadIdx.x; c < y.n_classes; c += MANY) classes += y.weight(c);
#pragma unroll 4
  for (int64_t r = threadIdx.x; r < n; r += MANY) {
    const int64_t id = y.ids == NULL ? 0 : y.id(r);
    if (id >= 0) rows += y.ids == NULL ? 1 : y.weight(id);
  }
  classes = aci_block_join<aci_add_op>(classes, shared);
  rows = aci_block_join<aci_add_op>(rows, shared);
  if (threadIdx.x == 0) {
    totals[0] = classes;
    totals[1] = rows;
  }
}
ac_status aci_ce_totals(ac_frame *f, const ce_labels &y, int64_t n, double *totals, ac_err *e) {
  return aci_launch(f, "cross entropy (weights)", ce_totals,
                    aci_shape_of_launch(dim3(1), dim3(MANY)), e, y, n, totals);
}
