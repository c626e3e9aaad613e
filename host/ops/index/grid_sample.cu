/* grid_sample and its gradients on CUDA: a thread per position and a few channels, for which its
 * elements and weights hold alike. The gradient of x sorts all elements that positions look at, per
 * image (order.cuh), and adds runs of one element in their order, so that no element is added to
 * from two sides at once. */
#include "ops/index/grid.h"

#include "ops/index/order.cuh"

#define T float
#define SFX f32
#define GRID_FLOOR floorf
#define GRID_MOD fmodf
#define GRID_ROUND nearbyintf
#include "ops/index/grid_taps.h"

#define T double
#define SFX f64
#define GRID_FLOOR floor
#define GRID_MOD fmod
#define GRID_ROUND nearbyint
#include "ops/index/grid_taps.h"

namespace {
enum { CHANNELS = 4, FEW = 16, DIMS = ACI_GRID_DIMS }; /* FEW: taps, but of bicubic in three dims */

/* A tensor of any strides by row-major position. */
struct grid_view {
  const void *ptr;
  ac_dtype dt;
  int ndim; /* 0: contiguous */
  int64_t shape[AC_MAX_DIMS], stride[AC_MAX_DIMS];
  template <class C> __device__ __forceinline__ C get(int64_t i) const {
    return aci_get<C>(dt, ptr, ndim == 0 ? i : aci_element_offset(i, ndim, shape, stride));
  }
};
grid_view view_of(const ac_tensor *t) {
  grid_view v = {};
  v.ptr = aci_data(t);
  v.dt = (ac_dtype)t->dtype;
  v.ndim = aci_is_contiguous(t) ? 0 : t->ndim;
  for (int d = 0; d < t->ndim; d++) v.shape[d] = t->shape[d], v.stride[d] = t->stride[d];
  return v;
}

struct grid_args {
  aci_grid g;
  grid_view x, grid, dy;
  void *out;
  ac_dtype dt;
  int64_t n, groups; /* threads' worth, groups of channels */
  aci_order o;       /* lines: images. keys: elements of a plane, `plane` if outside */
  void *weights;     /* (images, positions, taps) in the compute type */
};

template <class C>
ACI_DEVICE void taps_of(const grid_args &a, int64_t image, int64_t p, int32_t *off, C *w, C *slope,
                        int64_t wide);
template <>
__device__ __forceinline__ void taps_of<float>(const grid_args &a, int64_t image, int64_t p,
                                               int32_t *off, float *w, float *slope, int64_t wide) {
  float c[DIMS];
  for (int d = 0; d < a.g.space; d++)
    c[d] = a.grid.get<float>((image * a.g.positions + p) * a.g.space + d);
  aci_grid_taps_f32(&a.g, c, off, w, slope, 1, wide);
}
template <>
__device__ __forceinline__ void taps_of<double>(const grid_args &a, int64_t image, int64_t p,
                                                int32_t *off, double *w, double *slope,
                                                int64_t wide) {
  double c[DIMS];
  for (int d = 0; d < a.g.space; d++)
    c[d] = a.grid.get<double>((image * a.g.positions + p) * a.g.space + d);
  aci_grid_taps_f64(&a.g, c, off, w, slope, 1, wide);
}

/* y */
template <class C, int TAPS>
static __global__ void __launch_bounds__(ACI_BLOCK) sample(const __grid_constant__ grid_args a) {
  const aci_grid &g = a.g;
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    const int64_t p = i % g.positions, rest = i / g.positions, group = rest % a.groups,
                  image = rest / a.groups;
    int32_t off[TAPS];
    C w[TAPS];
    taps_of<C>(a, image, p, off, w, (C *)NULL, 0);
    for (int64_t c = group * CHANNELS; c < g.channels && c < (group + 1) * CHANNELS; c++) {
      const int64_t plane = image * g.channels + c;
      C sum = 0;
      for (int k = 0; k < g.taps; k++)
        if (off[k] >= 0) sum += w[k] * a.x.get<C>(plane * g.plane + off[k]);
      aci_put(a.dt, a.out, plane * g.positions + p, sum);
    }
  }
}

/* dgrid */
template <class C, int TAPS>
static __global__ void __launch_bounds__(ACI_BLOCK) slopes(const __grid_constant__ grid_args a) {
  const aci_grid &g = a.g;
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    const int64_t p = i % g.positions, image = i / g.positions;
    int32_t off[TAPS];
    C w[TAPS], slope[DIMS * TAPS], sum[DIMS] = {};
    taps_of<C>(a, image, p, off, w, slope, TAPS);
    for (int64_t c = 0; c < g.channels; c++) {
      const int64_t plane = image * g.channels + c;
      const C dy = a.dy.get<C>(plane * g.positions + p);
      C part[DIMS] = {};
      for (int k = 0; k < g.taps; k++) {
        if (off[k] < 0) continue;
        const C v = a.x.get<C>(plane * g.plane + off[k]);
        for (int d = 0; d < g.space; d++) part[d] += slope[d * TAPS + k] * v;
      }
      for (int d = 0; d < g.space; d++) sum[d] += dy * part[d];
    }
    for (int d = 0; d < g.space; d++)
      aci_put(a.dt, a.out, (image * g.positions + p) * g.space + d, sum[d]);
  }
}

/* Keys and weights of a position's elements. */
template <class C, int TAPS>
static __global__ void __launch_bounds__(ACI_BLOCK) load_taps(const __grid_constant__ grid_args a) {
  const aci_grid &g = a.g;
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int32_t off[TAPS];
    C w[TAPS];
    taps_of<C>(a, i / g.positions, i % g.positions, off, w, (C *)NULL, 0);
    for (int k = 0; k < g.taps; k++) {
      aci_order_put_key(a.o, i * g.taps + k, (uint64_t)(off[k] < 0 ? g.plane : off[k]));
      ((C *)a.weights)[i * g.taps + k] = w[k];
    }
  }
}
/* dx, which was filled with 0. A thread per element and group of channels. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) add_taps(const __grid_constant__ grid_args a) {
  const aci_grid &g = a.g;
  const int64_t all = a.o.lines * a.o.n;
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    const int64_t group = i / all, at = i - group * all, image = at / a.o.n, k = at - image * a.o.n;
    const uint64_t key = aci_order_key_at(a.o, at);
    if (key >= (uint64_t)g.plane || !aci_order_begins(a.o, at, k)) continue;
    C sum[CHANNELS] = {};
    for (int64_t j = k; j < a.o.n && aci_order_key_at(a.o, image * a.o.n + j) == key; j++) {
      const int64_t tap = a.o.at[image * a.o.n + j], p = tap / g.taps;
      const C w = ((const C *)a.weights)[image * a.o.n + tap];
      for (int c = 0; c < CHANNELS && group * CHANNELS + c < g.channels; c++)
        sum[c] += w * a.dy.get<C>((image * g.channels + group * CHANNELS + c) * g.positions + p);
    }
    for (int c = 0; c < CHANNELS && group * CHANNELS + c < g.channels; c++)
      aci_put(a.dt, a.out, (image * g.channels + group * CHANNELS + c) * g.plane + (int64_t)key,
              sum[c]);
  }
}

grid_args args_of(const ac_frame *f, const int64_t *x_shape, int ndim, const ac_tensor *grid,
                  int at) {
  grid_args a = {};
  a.g = aci_grid_of(f, x_shape, ndim, grid->shape, at);
  a.grid = view_of(grid);
  a.out = aci_data(f->out[0]);
  a.dt = (ac_dtype)f->out[0]->dtype;
  a.groups = (a.g.channels + CHANNELS - 1) / CHANNELS;
  a.n = a.g.images * a.g.positions;
  return a;
}
} // namespace

/* The kernel for few taps, for many, or for doubles. */
template <class K>
static ac_status launch_taps(const ac_frame *f, const char *name, K few, K many, K wide,
                             unsigned blocks, ac_err *e, const grid_args &a) {
  return aci_launch(f, name, a.dt == AC_F64 ? wide : a.g.taps <= FEW ? few : many, blocks, e, a);
}

static ac_status forward(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  grid_args a = args_of(f, x->shape, x->ndim, f->args[1].tensor, 2);
  if (f->out[0]->numel == 0) return AC_OK;
  a.x = view_of(x);
  a.n *= a.groups;
  const unsigned blocks = aci_blocks(f->device, a.n);
  return launch_taps(f, "grid sample", sample<float, FEW>, sample<float, ACI_GRID_TAPS>,
                     sample<double, ACI_GRID_TAPS>, blocks, e, a);
}
AC_KERNEL(cuda, grid_sample, forward)

static ac_status backward_grid(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[1].tensor;
  grid_args a = args_of(f, x->shape, x->ndim, f->args[2].tensor, 3);
  if (f->out[0]->numel == 0) return AC_OK;
  a.x = view_of(x);
  a.dy = view_of(f->args[0].tensor);
  const unsigned blocks = aci_blocks(f->device, a.n);
  return launch_taps(f, "grid sample (grid)", slopes<float, FEW>, slopes<float, ACI_GRID_TAPS>,
                     slopes<double, ACI_GRID_TAPS>, blocks, e, a);
}
AC_KERNEL(cuda, grid_sample_backward_grid, backward_grid)

static ac_status backward_input(ac_frame *f, ac_err *e) {
  const ac_value *size = &f->args[2];
  grid_args a = args_of(f, size->ints, size->n, f->args[1].tensor, 3);
  const bool wide = a.dt == AC_F64;
  ac_block *weights;
  if (f->out[0]->numel == 0) return AC_OK;
  a.dy = view_of(f->args[0].tensor);
  AC_TRY(f->device->vt->fill(f->device, f->stream, a.out, 0,
                             (size_t)f->out[0]->numel * aci_dsize(a.dt), e));
  if (a.n == 0) return AC_OK;
  AC_TRY(ac_block_alloc(f->device, (size_t)(a.n * a.g.taps) * (wide ? 8 : 4), AC_MEM_ACTIVATION,
                        f->stream, &weights, e));
  a.weights = weights->ptr;
  ac_status st = aci_order_open(f, a.g.images, a.g.positions * a.g.taps,
                                aci_order_bits(a.g.plane + 1), &a.o, e);
  if (st == AC_OK) {
    const unsigned blocks = aci_blocks(f->device, a.n);
    st =
        launch_taps(f, "grid sample (taps)", load_taps<float, FEW>, load_taps<float, ACI_GRID_TAPS>,
                    load_taps<double, ACI_GRID_TAPS>, blocks, e, a);
    if (st == AC_OK) st = aci_order_sort(f, &a.o, e);
    a.n *= a.g.taps * a.groups;
    const unsigned all = aci_blocks(f->device, a.n);
    if (st == AC_OK)
      st = wide ? aci_launch(f, "grid sample (input)", add_taps<double>, all, e, a)
                : aci_launch(f, "grid sample (input)", add_taps<float>, all, e, a);
    aci_order_close(&a.o);
  }
  ac_block_free(weights);
  return st;
}
AC_KERNEL(cuda, grid_sample_backward_input, backward_input)
