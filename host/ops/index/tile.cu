/* tile and pad_backward on CUDA: map positions of one tensor to positions of another, dim by
 * dim. */
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/module.h"

namespace {
struct tile_args {
  const void *x;
  void *y;
  int ndim;
  int64_t n, out[AC_MAX_DIMS], own[AC_MAX_DIMS], stride[AC_MAX_DIMS];
};
} // namespace
template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    tile_kernel(const __grid_constant__ tile_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t r = i, at = 0;
    for (int d = a.ndim - 1; d >= 0; d--) {
      at += r % a.out[d] % a.own[d] * a.stride[d];
      r /= a.out[d];
    }
    ((S *)a.y)[i] = ((const S *)a.x)[at];
  }
}
static ac_status tile(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *y = f->out[0];
  tile_args a = {};
  if (y->numel == 0) return AC_OK;
  a.x = aci_data(x);
  a.y = aci_data(y);
  a.n = y->numel;
  a.ndim = y->ndim;
  for (int d = 0; d < y->ndim; d++) {
    const int own = d - (y->ndim - x->ndim);
    a.out[d] = y->shape[d];
    a.own[d] = own < 0 ? 1 : x->shape[own];
    a.stride[d] = own < 0 ? 0 : x->stride[own];
  }
  const unsigned blocks = aci_blocks(f->device, a.n);
  switch (aci_dsize((ac_dtype)x->dtype)) {
    case 1: return aci_launch(f, "tile", tile_kernel<uint8_t>, blocks, e, a);
    case 2: return aci_launch(f, "tile", tile_kernel<uint16_t>, blocks, e, a);
    case 4: return aci_launch(f, "tile", tile_kernel<uint32_t>, blocks, e, a);
    default: return aci_launch(f, "tile", tile_kernel<uint64_t>, blocks, e, a);
  }
}
AC_KERNEL(cuda, tile, tile)

/* ---- pad_backward: an element gathers from all positions that show it ---- */
namespace {
struct pad_args {
  aci_remap m; /* of pad itself: which position of dx each position of dy shows */
  const void *dy;
  void *dx;
  ac_dtype dt;
  int64_t n, stride[AC_MAX_DIMS]; /* of dy */
};
} // namespace

/* The t-th position of a dim that shows `position`. -1: there are no more. */
ACI_DEVICE int64_t shown_at(const aci_dim_map &k, int64_t position, int64_t t) {
  for (int64_t r = 0; r < k.n_runs; r++) {
    const aci_run &run = k.own[r];
    const int64_t count = (r + 1 < k.n_runs ? k.own[r + 1].at : k.n_out) - run.at;
    if (run.from < 0) continue;
    if (run.step == 0) {
      if (run.from != position) continue;
      if (t < count) return run.at + t;
      t -= count;
    } else {
      const int64_t i = (position - run.from) * run.step; /* steps are 1 or -1 */
      if (i < 0 || i >= count) continue;
      if (t-- == 0) return run.at + i;
    }
  }
  return -1;
}
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) pad_back(const __grid_constant__ pad_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t position[AC_MAX_DIMS], turn[AC_MAX_DIMS], from[AC_MAX_DIMS], r = i;
    bool any = true;
    for (int d = a.m.ndim - 1; d >= 0; d--) {
      position[d] = r % a.m.dim[d].n_in;
      r /= a.m.dim[d].n_in;
      turn[d] = 0;
      from[d] = shown_at(a.m.dim[d], position[d], 0);
      any = any && from[d] >= 0;
    }
    C sum = 0;
    while (any) { /* all combinations, the last dim first */
      int64_t at = 0;
      for (int d = 0; d < a.m.ndim; d++) at += from[d] * a.stride[d];
      sum += aci_get<C>(a.dt, a.dy, at);
      int d = a.m.ndim - 1;
      for (; d >= 0; d--) {
        from[d] = shown_at(a.m.dim[d], position[d], ++turn[d]);
        if (from[d] >= 0) break;
        turn[d] = 0;
        from[d] = shown_at(a.m.dim[d], position[d], 0);
      }
      any = d >= 0;
    }
    aci_put(a.dt, a.dx, i, sum);
  }
}
static ac_status pad_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = f->args[0].tensor, *dx = f->out[0];
  pad_args a;
  if (dx->numel == 0) return AC_OK;
  memset(&a, 0, sizeof a);
  aci_pad_maps(f, dx->ndim, dx->shape, dx->stride, &a.m);
  a.dy = aci_data(dy);
  a.dx = aci_data(dx);
  a.dt = (ac_dtype)dx->dtype;
  a.n = dx->numel;
  memcpy(a.stride, dy->stride, 8 * (size_t)dy->ndim);
  const unsigned blocks = aci_blocks(f->device, a.n);
  if (a.dt == AC_F64) return aci_launch(f, "pad_backward", pad_back<double>, blocks, e, a);
  return aci_launch(f, "pad_backward", pad_back<float>, blocks, e, a);
}
AC_KERNEL(cuda, pad_backward, pad_backward)
