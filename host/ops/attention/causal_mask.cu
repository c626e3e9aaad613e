/* causal_mask and distance on CUDA. Called by attention in plain ops (plain.c). */
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

struct positions_args {
  void *y;
  ac_dtype dt;
  int64_t tq, tk, shift;
};
static __global__ void __launch_bounds__(ACI_BLOCK)
    causal_mask_kernel(const __grid_constant__ positions_args a) {
  for (int64_t i = aci_first(); i < a.tq * a.tk; i += aci_step())
    ((uint8_t *)a.y)[i] = i % a.tk > i / a.tk;
}
static __global__ void __launch_bounds__(ACI_BLOCK)
    distance_kernel(const __grid_constant__ positions_args a) {
  for (int64_t i = aci_first(); i < a.tq * a.tk; i += aci_step()) {
    const int64_t d = i / a.tk + a.shift - i % a.tk;
    aci_put(a.dt, a.y, i, (double)(d < 0 ? -d : d));
  }
}

static positions_args args_of(const ac_frame *f) {
  const ac_tensor *y = f->out[0];
  positions_args a = {aci_data(y), (ac_dtype)y->dtype, y->shape[0], y->shape[1], 0};
  return a;
}
static ac_status causal_mask(ac_frame *f, ac_err *e) {
  const positions_args a = args_of(f);
  return a.tq * a.tk == 0 ? AC_OK
                          : aci_launch(f, "causal_mask", causal_mask_kernel,
                                       aci_blocks(f->device, a.tq * a.tk), e, a);
}
static ac_status distance(ac_frame *f, ac_err *e) {
  positions_args a = args_of(f);
  a.shift = f->args[1].b ? 0 : a.tk - a.tq;
  return a.tq * a.tk == 0
             ? AC_OK
             : aci_launch(f, "distance", distance_kernel, aci_blocks(f->device, a.tq * a.tk), e, a);
}
AC_KERNEL(cuda, causal_mask, causal_mask)
AC_KERNEL(cuda, distance, distance)
