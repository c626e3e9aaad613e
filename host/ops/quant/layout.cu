/* dequantize on CUDA: a thread makes the two values of a byte, or one. */
#include "ops/quant/layout.cuh"

namespace {
struct values_args {
  aci_quantized w;
  const float *map; /* 8 bits, dynamic */
  void *y;
  ac_dtype dt;
};
} // namespace

static __global__ void __launch_bounds__(ACI_BLOCK)
    values_4bit_kernel(const __grid_constant__ values_args a) {
  for (int64_t i = aci_first(); i < (a.w.n + 1) / 2; i += aci_step()) {
    const uint8_t q = a.w.q[i];
    const float absmax = aci_absmax_of(a.w, 2 * i / a.w.blocksize);
    aci_put(a.dt, a.y, 2 * i, a.w.map[q >> 4] * absmax);
    if (2 * i + 1 < a.w.n) aci_put(a.dt, a.y, 2 * i + 1, a.w.map[q & 15] * absmax);
  }
}
static __global__ void __launch_bounds__(ACI_BLOCK)
    values_int8_kernel(const __grid_constant__ values_args a) {
  for (int64_t i = aci_first(); i < a.w.n; i += aci_step())
    aci_put(a.dt, a.y, i,
            (float)(int8_t)a.w.q[i] * (aci_absmax_of(a.w, i / a.w.blocksize) * (1.0f / 127)));
}
static __global__ void __launch_bounds__(ACI_BLOCK)
    values_dynamic_kernel(const __grid_constant__ values_args a) {
  for (int64_t i = aci_first(); i < a.w.n; i += aci_step())
    aci_put(a.dt, a.y, i, a.map[a.w.q[i]] * aci_absmax_of(a.w, i / a.w.blocksize));
}

ac_status aci_cuda_dequantize(ac_frame *f, const ac_tensor *t, const ac_layout *l, ac_dtype dt,
                              void *y, ac_err *e) {
  values_args a = {aci_quantized_of(t, l), NULL, y, dt};
  if (a.w.n == 0) return AC_OK;
  if (aci_layout_is_4bit(l))
    return aci_launch(f, "dequantize", values_4bit_kernel, aci_blocks(f->device, (a.w.n + 1) / 2),
                      e, a);
  if (l->type == AC_QUANT_INT8)
    return aci_launch(f, "dequantize", values_int8_kernel, aci_blocks(f->device, a.w.n), e, a);
  int size;
  ac_block *block;
  void *map;
  AC_TRY(aci_workspace(f, 256 * sizeof(float), &block, &map, e));
  a.map = (const float *)map;
  ac_status st = f->device->vt->copy(f->device, f->stream, map, ac_quant_map(l->type, &size),
                                     /* the module's: kept until the process ends */
                                     256 * sizeof(float), e);
  if (st == AC_OK)
    st = aci_launch(f, "dequantize", values_dynamic_kernel, aci_blocks(f->device, a.w.n), e, a);
  ac_block_free(block);
  return st;
}
static ac_status dequantize(ac_frame *f, ac_err *e) {
  const ac_tensor *t = f->args[0].tensor;
  return aci_cuda_dequantize(f, t, ac_tensor_layout(t), (ac_dtype)f->out[0]->dtype,
                             aci_data(f->out[0]), e);
}
AC_KERNEL(cuda, dequantize, dequantize)
