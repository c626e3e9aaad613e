/* The running statistics of batch_norm on CUDA. The rest is channel.cu. */
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

struct update_args {
  void *running;
  const void *batch;
  ac_dtype running_dt, batch_dt;
  int64_t n, running_stride, batch_stride;
  double keep, factor;
};
static __global__ void __launch_bounds__(ACI_BLOCK)
    update_kernel(const __grid_constant__ update_args a) {
  for (int64_t c = aci_first(); c < a.n; c += aci_step())
    aci_put(a.running_dt, a.running, c * a.running_stride,
            a.keep * aci_get<double>(a.running_dt, a.running, c * a.running_stride) +
                a.factor * aci_get<double>(a.batch_dt, a.batch, c * a.batch_stride));
}

/* (running_mean!?, running_var!?, mean, var, momentum, count) */
static ac_status update(ac_frame *f, ac_err *e) {
  const double m = f->args[4].f, count = (double)f->args[5].i;
  for (int i = 0; i < 2 && count > 0; i++) {
    if (f->args[i].kind == AC_T_NONE) continue;
    const ac_tensor *t = f->args[i].tensor, *batch = f->args[i + 2].tensor;
    if (t->ndim > 1)
      return AC_FAIL(e, UNSUPPORTED, "unsupported on device %s: running statistics of %d dims",
                     f->device->name, t->ndim);
    update_args a = {aci_data(t),
                     aci_data(batch),
                     (ac_dtype)t->dtype,
                     (ac_dtype)batch->dtype,
                     t->numel,
                     t->ndim > 0 ? t->stride[0] : 1,
                     batch->ndim > 0 ? batch->stride[0] : 1,
                     1 - m,
                     i == 0 ? m : m * (count / (count - 1))};
    if (a.n > 0)
      AC_TRY(aci_launch(f, "running statistics", update_kernel, aci_blocks(f->device, a.n), e, a));
  }
  return AC_OK;
}
AC_KERNEL(cuda, batch_norm_update_, update)
