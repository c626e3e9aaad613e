/* unfold and fold on CUDA: a thread per element of the result. fold gathers: a position adds up the
 * taps that saw it, in their order. */
#include "ops/conv/plan.h"
#include "ops/conv/planes.cuh"

struct patches_args {
  aci_patches p;
  aci_planes x;     /* unfold: the planes */
  const void *cols; /* fold: (N, C * taps, positions) with these strides */
  int64_t image, row, col;
  void *y;
  ac_dtype dt;
  int64_t n;
  aci_divisor d1, d0, k1, k0, channels;
};

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    unfold_positions(const __grid_constant__ patches_args a) {
  const aci_patches &p = a.p;
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t c = i;
    const int64_t ow = aci_take(&c, a.d1), oh = aci_take(&c, a.d0), kw = aci_take(&c, a.k1),
                  kh = aci_take(&c, a.k0);
    const int64_t h = oh * p.stride[0] - p.pad[0] + kh * p.dil[0],
                  w = ow * p.stride[1] - p.pad[1] + kw * p.dil[1];
    const bool inside = h >= 0 && h < p.in[0] && w >= 0 && w < p.in[1];
    aci_put(a.dt, a.y, i,
            inside ? aci_get<C>(a.dt, a.x.ptr, a.x.plane(c) + h * a.x.h + w * a.x.w) : (C)0);
  }
}

/* The window of dim d that has position i at tap k. -1: none. */
ACI_DEVICE int64_t window_of(const aci_patches &p, int d, int64_t i, int64_t k) {
  const int64_t at = i + p.pad[d] - k * p.dil[d];
  if (at < 0 || at % p.stride[d] != 0) return -1;
  return at / p.stride[d] < p.out[d] ? at / p.stride[d] : -1;
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    fold_positions(const __grid_constant__ patches_args a) {
  const aci_patches &p = a.p;
  const int64_t taps = p.k[0] * p.k[1];
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t image = i;
    const int64_t w = aci_take(&image, a.d1), h = aci_take(&image, a.d0),
                  c = aci_take(&image, a.channels);
    C sum = 0;
    for (int64_t kh = 0; kh < p.k[0]; kh++) {
      const int64_t oh = window_of(p, 0, h, kh);
      if (oh < 0) continue;
      for (int64_t kw = 0; kw < p.k[1]; kw++) {
        const int64_t ow = window_of(p, 1, w, kw);
        if (ow < 0) continue;
        sum += aci_get<C>(a.dt, a.cols,
                          image * a.image + (c * taps + kh * p.k[1] + kw) * a.row +
                              (oh * p.out[1] + ow) * a.col);
      }
    }
    aci_put(a.dt, a.y, i, sum);
  }
}

static aci_divisor by(int64_t n) { return aci_divide_by(n > 0 ? n : 1); }

static patches_args args_of(const aci_patches &p, const ac_tensor *y, const int64_t *space) {
  patches_args a = {};
  a.p = p;
  a.y = aci_data(y);
  a.dt = (ac_dtype)y->dtype;
  a.n = y->numel;
  a.d1 = by(space[1]), a.d0 = by(space[0]);
  a.k1 = by(p.k[1]), a.k0 = by(p.k[0]);
  a.channels = by(p.channels);
  return a;
}

static ac_status unfold(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  aci_patches p;
  AC_TRY(aci_patches_make(f, 1, x->shape, x->ndim, &p, e));
  patches_args a = args_of(p, f->out[0], p.out);
  if (a.n == 0) return AC_OK;
  a.x = aci_planes_of(x, 2);
  const unsigned blocks = aci_blocks(f->device, a.n);
  if (a.dt == AC_F64) return aci_launch(f, "unfold", unfold_positions<double>, blocks, e, a);
  return aci_launch(f, "unfold", unfold_positions<float>, blocks, e, a);
}
AC_KERNEL(cuda, unfold, unfold)

static ac_status fold(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *y = f->out[0];
  aci_patches p;
  AC_TRY(aci_patches_make(f, 2, y->shape, y->ndim, &p, e));
  patches_args a = args_of(p, y, p.in);
  if (a.n == 0) return AC_OK;
  a.cols = aci_data(x);
  a.image = x->ndim == 3 ? x->stride[0] : 0;
  a.row = x->stride[x->ndim - 2];
  a.col = x->stride[x->ndim - 1];
  const unsigned blocks = aci_blocks(f->device, a.n);
  if (a.dt == AC_F64) return aci_launch(f, "fold", fold_positions<double>, blocks, e, a);
  return aci_launch(f, "fold", fold_positions<float>, blocks, e, a);
}
AC_KERNEL(cuda, fold, fold)
