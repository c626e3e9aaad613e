/* Pieces moved whole on CUDA (remap.h): an element a thread, which finds the run of its position in
 * every dim. flip, roll and pad use it. */
#include "ops/index/range.cuh"
#include "ops/index/remap_plan.h"

#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

struct remap_args {
  aci_remap m;
  const void *x;
  void *y;
  int64_t n;
  uint64_t fill;
};

template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    remap_kernel(const __grid_constant__ remap_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t r = i, at = 0;
    bool filled = false;
    for (int d = a.m.ndim - 1; d >= 0; d--) {
      const aci_dim_map &k = a.m.dim[d];
      const int64_t position = r % k.n_out;
      r /= k.n_out;
      int64_t from = position;
      if (k.repeat > 0) {
        from = position / k.repeat;
      } else {
        int64_t run = k.n_runs - 1;
        while (run > 0 && k.own[run].at > position) run--;
        from = k.own[run].from < 0 ? -1
                                   : k.own[run].from + (position - k.own[run].at) * k.own[run].step;
      }
      filled = filled || from < 0;
      at += from * k.stride;
    }
    ((S *)a.y)[i] = filled ? (S)a.fill : ((const S *)a.x)[at];
  }
}

ac_status aci_cuda_remap(ac_frame *f, const ac_tensor *y, const void *x, const aci_remap *m,
                         const void *fill, ac_err *e) {
  remap_args a = {};
  for (int d = 0; d < m->ndim; d++)
    if (m->dim[d].repeat <= 0 && m->dim[d].run != m->dim[d].own)
      return AC_FAIL(e, UNSUPPORTED, "unsupported on device %s: so many pieces in one dim",
                     f->device->name);
  const size_t size = aci_dsize((ac_dtype)y->dtype);
  a.m = *m;
  a.x = x;
  a.y = aci_data(y);
  a.n = y->numel;
  if (fill != NULL) memcpy(&a.fill, fill, size);
  const unsigned blocks = aci_blocks(f->device, a.n);
  switch (size) {
    case 1: return aci_launch(f, "remap", remap_kernel<uint8_t>, blocks, e, a);
    case 2: return aci_launch(f, "remap", remap_kernel<uint16_t>, blocks, e, a);
    case 4: return aci_launch(f, "remap", remap_kernel<uint32_t>, blocks, e, a);
    default: return aci_launch(f, "remap", remap_kernel<uint64_t>, blocks, e, a);
  }
}
