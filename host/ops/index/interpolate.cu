/* interpolate and its gradient on CUDA: a thread per position of the result and a few planes, for
 * which the weights of the position hold alike. The gradient gathers: the positions of dy that look
 * at one of dx lie side by side in every dim, and are found by bisection. */
#include "ops/index/resize.h"

#include "ops/cuda/divide.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

enum { DIMS = 3, PLANES = 4 };

/* Space is (depth, height, width). Missing leading dims have extent 1. x is the input, of any
 * strides. y is contiguous. */
struct resize_args {
  aci_resize dim[DIMS]; /* from the tensor resized to the resized one */
  const void *x;
  void *y;
  ac_dtype dt;
  int64_t n_planes, n_positions; /* of y */
  aci_divisor space[DIMS], channels, positions;
  int64_t image, channel, stride[DIMS]; /* of x */
  int64_t n;                            /* threads' worth */
};

/* Planes of a thread, as offsets in x, and their number. */
ACI_DEVICE int planes_of(const resize_args &a, int64_t group, int64_t *base) {
  int n = 0;
  for (; n < PLANES && group * PLANES + n < a.n_planes; n++) {
    int64_t image = group * PLANES + n;
    const int64_t channel = aci_take(&image, a.channels);
    base[n] = image * a.image + channel * a.channel;
  }
  return n;
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    resize_positions(const __grid_constant__ resize_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t group = i, base[PLANES], o[DIMS];
    const int64_t position = aci_take(&group, a.positions);
    int64_t rest = position;
    for (int d = DIMS - 1; d >= 0; d--) o[d] = aci_take(&rest, a.space[d]);
    const int planes = planes_of(a, group, base);
    const aci_resize_taps t0 = aci_resize_at(&a.dim[0], o[0]), t1 = aci_resize_at(&a.dim[1], o[1]),
                          t2 = aci_resize_at(&a.dim[2], o[2]);
    C sum[PLANES] = {};
    for (int64_t k0 = 0; k0 < t0.count; k0++) {
      const int64_t at0 = aci_resize_position(&a.dim[0], &t0, k0) * a.stride[0];
      for (int64_t k1 = 0; k1 < t1.count; k1++) {
        const int64_t at1 = at0 + aci_resize_position(&a.dim[1], &t1, k1) * a.stride[1];
        const double w1 = aci_resize_weight(&t0, k0) * aci_resize_weight(&t1, k1);
        for (int64_t k2 = 0; k2 < t2.count; k2++) {
          const int64_t at = at1 + aci_resize_position(&a.dim[2], &t2, k2) * a.stride[2];
          const C w = (C)(w1 * aci_resize_weight(&t2, k2));
          for (int p = 0; p < planes; p++) sum[p] += w * aci_get<C>(a.dt, a.x, base[p] + at);
        }
      }
    }
    for (int p = 0; p < planes; p++)
      aci_put(a.dt, a.y, (group * PLANES + p) * a.n_positions + position, sum[p]);
  }
}

/* The nearest modes: bits are moved. */
template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    resize_moves(const __grid_constant__ resize_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t group = i, base[PLANES], at = 0;
    const int64_t position = aci_take(&group, a.positions);
    int64_t rest = position;
    for (int d = DIMS - 1; d >= 0; d--)
      at += aci_resize_nearest(&a.dim[d], aci_take(&rest, a.space[d])) * a.stride[d];
    const int planes = planes_of(a, group, base);
    for (int p = 0; p < planes; p++)
      ((S *)a.y)[(group * PLANES + p) * a.n_positions + position] = ((const S *)a.x)[base[p] + at];
  }
}

/* The positions of the resized dim that look at position i, as [lo, hi): first and last elements
 * looked at never go back. */
ACI_DEVICE void seen_by(const aci_resize &r, int64_t i, int64_t *lo, int64_t *hi) {
  int64_t from = 0, to = r.n_out;
  while (from < to) { /* the first whose last element is i or later */
    const int64_t mid = (from + to) / 2;
    const aci_resize_taps t = aci_resize_at(&r, mid);
    if (aci_resize_position(&r, &t, t.count - 1) < i) from = mid + 1;
    else to = mid;
  }
  *lo = from;
  to = r.n_out;
  while (from < to) { /* the first whose first element is after i */
    const int64_t mid = (from + to) / 2;
    const aci_resize_taps t = aci_resize_at(&r, mid);
    if (aci_resize_position(&r, &t, 0) <= i) from = mid + 1;
    else to = mid;
  }
  *hi = from;
}
/* The weight of element i in position o. */
ACI_DEVICE double share_of(const aci_resize &r, int64_t o, int64_t i) {
  const aci_resize_taps t = aci_resize_at(&r, o);
  double w = 0;
  if (t.smooth || t.count > 4) { /* no element is clamped */
    const int64_t k = i - t.first;
    return k >= 0 && k < t.count ? aci_resize_weight(&t, k) : 0;
  }
  for (int64_t k = 0; k < t.count; k++)
    if (aci_resize_position(&r, &t, k) == i) w += t.w[k];
  return w;
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    resize_back(const __grid_constant__ resize_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t group = i, base[PLANES], at[DIMS], lo[DIMS], hi[DIMS];
    const int64_t position = aci_take(&group, a.positions);
    int64_t rest = position;
    for (int d = DIMS - 1; d >= 0; d--) {
      at[d] = aci_take(&rest, a.space[d]);
      seen_by(a.dim[d], at[d], &lo[d], &hi[d]);
    }
    const int planes = planes_of(a, group, base);
    C sum[PLANES] = {};
    for (int64_t o0 = lo[0]; o0 < hi[0]; o0++) {
      const double w0 = share_of(a.dim[0], o0, at[0]);
      for (int64_t o1 = lo[1]; o1 < hi[1]; o1++) {
        const double w1 = w0 * share_of(a.dim[1], o1, at[1]);
        const int64_t from = o0 * a.stride[0] + o1 * a.stride[1];
        for (int64_t o2 = lo[2]; o2 < hi[2]; o2++) {
          const C w = (C)(w1 * share_of(a.dim[2], o2, at[2]));
          for (int p = 0; p < planes; p++)
            sum[p] += w * aci_get<C>(a.dt, a.x, base[p] + from + o2 * a.stride[2]);
        }
      }
    }
    for (int p = 0; p < planes; p++)
      aci_put(a.dt, a.y, (group * PLANES + p) * a.n_positions + position, sum[p]);
  }
}

/* ---- launches: args (x, size, scale_factor, mode, corners) and (dy, shape, scale_factor, mode, corners) ---- */
static resize_args args_of(const ac_frame *f, bool back) {
  const ac_tensor *x = f->args[0].tensor, *y = f->out[0];
  const int n = x->ndim - 2;
  resize_args a = {};
  a.x = aci_data(x);
  a.y = aci_data(y);
  a.dt = (ac_dtype)y->dtype;
  a.n_planes = y->shape[0] * y->shape[1];
  a.n_positions = 1;
  for (int k = 0; k < DIMS; k++) {
    const int d = k - (DIMS - n) + 2;
    const bool there = d >= 2;
    const int64_t from = !there ? 1
                         : back ? y->shape[d]
                                : x->shape[d],
                  to = !there ? 1
                       : back ? x->shape[d]
                              : y->shape[d];
    a.dim[k] = there ? aci_resize_of(f->args[3].i, f->args[4].b, from, to, f->args[2].floats[d - 2])
                     : aci_resize_of(ACI_NEAREST, false, 1, 1, 0);
    a.space[k] = aci_divide_by(there && y->shape[d] > 0 ? y->shape[d] : 1);
    a.stride[k] = there ? x->stride[d] : 0;
    a.n_positions *= there ? y->shape[d] : 1;
  }
  a.image = x->stride[0];
  a.channel = x->stride[1];
  a.channels = aci_divide_by(x->shape[1] > 0 ? x->shape[1] : 1);
  a.positions = aci_divide_by(a.n_positions > 0 ? a.n_positions : 1);
  a.n = (a.n_planes + PLANES - 1) / PLANES * a.n_positions;
  return a;
}

static ac_status resize(ac_frame *f, ac_err *e) {
  const resize_args a = args_of(f, false);
  if (f->out[0]->numel == 0) return AC_OK;
  const unsigned blocks = aci_blocks(f->device, a.n);
  if (f->args[3].i == ACI_NEAREST || f->args[3].i == ACI_NEAREST_EXACT) {
    switch (aci_dsize(a.dt)) {
      case 1: return aci_launch(f, "resize", resize_moves<uint8_t>, blocks, e, a);
      case 2: return aci_launch(f, "resize", resize_moves<uint16_t>, blocks, e, a);
      case 4: return aci_launch(f, "resize", resize_moves<uint32_t>, blocks, e, a);
      default: return aci_launch(f, "resize", resize_moves<uint64_t>, blocks, e, a);
    }
  }
  if (a.dt == AC_F64) return aci_launch(f, "resize", resize_positions<double>, blocks, e, a);
  return aci_launch(f, "resize", resize_positions<float>, blocks, e, a);
}
AC_KERNEL(cuda, interpolate_to, resize)

static ac_status backward(ac_frame *f, ac_err *e) {
  const resize_args a = args_of(f, true);
  if (f->out[0]->numel == 0) return AC_OK;
  const unsigned blocks = aci_blocks(f->device, a.n);
  if (a.dt == AC_F64) return aci_launch(f, "resize (backward)", resize_back<double>, blocks, e, a);
  return aci_launch(f, "resize (backward)", resize_back<float>, blocks, e, a);
}
AC_KERNEL(cuda, interpolate_backward, backward)
