/* Pools on CUDA: a thread per element of the result. Sums go in the order of the CPU's rows.
 * Gradients gather: an element adds the contributions of the windows over it, so that no element is
 * added to from two sides at once. Gradients of max pools find every window's position first. */
#include "ops/conv/plan.h"
#include "ops/conv/planes.cuh"
#include "ops/reduce/rows.cuh"

struct pool_args {
  aci_pool p;
  aci_planes x, t; /* t: dy, or the tensor to take from */
  void *y;
  int64_t *indices;   /* may be NULL */
  int32_t *positions; /* backward: of every window's largest element */
  int64_t n;
  aci_divisor d1, d0; /* extents of the element's own space */
};

/* The windows that contain dim d's position i, as [lo, hi). Dilated windows may skip it. */
ACI_DEVICE void windows_over(const aci_pool &p, int d, int64_t i, int64_t *lo, int64_t *hi) {
  if (p.adaptive) {
    *lo = i * p.out[d] / p.in[d];
    *hi = ((i + 1) * p.out[d] + p.in[d] - 1) / p.in[d];
    return;
  }
  const int64_t at = i + p.pad[d], first = at - p.dil[d] * (p.k[d] - 1);
  *lo = first <= 0 ? 0 : (first + p.stride[d] - 1) / p.stride[d];
  *hi = at / p.stride[d] + 1;
  if (*hi > p.out[d]) *hi = p.out[d];
}

/* The largest element of window (oh, ow) and its position in the plane. -1 if the window has no
 * element. Larger elements and NaN replace the current one, so that the first of equals stays, as
 * on the CPU. */
template <class C>
ACI_DEVICE C largest(const pool_args &a, int64_t base, int64_t oh, int64_t ow, int64_t *position) {
  const aci_pool &p = a.p;
  int64_t h0, h1, w0, w1, sh = 1, sw = 1;
  if (p.adaptive) {
    aci_pool_span(&p, 0, oh, &h0, &h1);
    aci_pool_span(&p, 1, ow, &w0, &w1);
  } else {
    sh = p.dil[0], sw = p.dil[1];
    h0 = oh * p.stride[0] - p.pad[0], w0 = ow * p.stride[1] - p.pad[1];
    h1 = h0 + (p.k[0] - 1) * sh + 1, w1 = w0 + (p.k[1] - 1) * sw + 1;
    if (h0 < 0) h0 += (-h0 + sh - 1) / sh * sh;
    if (w0 < 0) w0 += (-w0 + sw - 1) / sw * sw;
    if (h1 > p.in[0]) h1 = p.in[0];
    if (w1 > p.in[1]) w1 = p.in[1];
  }
  C top = (C)-INFINITY;
  *position = h0 < h1 && w0 < w1 ? h0 * p.in[1] + w0 : -1;
  for (int64_t h = h0; h < h1; h += sh)
    for (int64_t w = w0; w < w1; w += sw) {
      const C v = aci_get<C>(a.x.dt, a.x.ptr, base + h * a.x.h + w * a.x.w);
      if (!(v > top || v != v)) continue;
      top = v;
      *position = h * p.in[1] + w;
    }
  return top;
}

enum pool_max { POOL_VALUES, POOL_POSITIONS, POOL_TAKE };
template <class C, int WHAT>
static __global__ void __launch_bounds__(ACI_BLOCK)
    max_windows(const __grid_constant__ pool_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t c = i, position;
    const int64_t ow = aci_take(&c, a.d1), oh = aci_take(&c, a.d0);
    const C top = largest<C>(a, a.x.plane(c), oh, ow, &position);
    if (WHAT == POOL_POSITIONS) {
      a.positions[i] = (int32_t)position;
    } else if (WHAT == POOL_TAKE) {
      const int64_t h = position / a.p.in[1], w = position - h * a.p.in[1];
      aci_put(a.p.dtype, a.y, i,
              position < 0 ? (C)0
                           : aci_get<C>(a.t.dt, a.t.ptr, a.t.plane(c) + h * a.t.h + w * a.t.w));
    } else {
      aci_put(a.p.dtype, a.y, i, top);
      if (a.indices != NULL) a.indices[i] = position;
    }
  }
}

/* dx: dy of the windows whose largest element it is. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) max_back(const __grid_constant__ pool_args a) {
  const aci_pool &p = a.p;
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t c = i, h0, h1, w0, w1;
    const int64_t w = aci_take(&c, a.d1), h = aci_take(&c, a.d0), base = a.t.plane(c);
    const int32_t mine = (int32_t)(h * p.in[1] + w);
    C sum = 0;
    windows_over(p, 0, h, &h0, &h1);
    windows_over(p, 1, w, &w0, &w1);
    for (int64_t oh = h0; oh < h1; oh++)
      for (int64_t ow = w0; ow < w1; ow++)
        if (a.positions[(c * p.out[0] + oh) * p.out[1] + ow] == mine)
          sum += aci_get<C>(a.t.dt, a.t.ptr, base + oh * a.t.h + ow * a.t.w);
    aci_put(p.dtype, a.y, i, sum);
  }
}

/* ---- averages ---- */
/* The divisor of window (oh, ow). */
template <class C> ACI_DEVICE C count_of(const aci_pool &p, int64_t oh, int64_t ow) {
  if (p.divisor != 0) return (C)(double)p.divisor;
  return (C)((double)aci_pool_extent(&p, 0, oh) * (double)aci_pool_extent(&p, 1, ow));
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    avg_windows(const __grid_constant__ pool_args a) {
  const aci_pool &p = a.p;
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t c = i, h0, h1, w0, w1;
    const int64_t ow = aci_take(&c, a.d1), oh = aci_take(&c, a.d0), base = a.x.plane(c);
    C sum = 0;
    aci_pool_span(&p, 0, oh, &h0, &h1);
    aci_pool_span(&p, 1, ow, &w0, &w1);
    for (int64_t h = h0; h < h1; h++)
      for (int64_t w = w0; w < w1; w++)
        sum += aci_get<C>(a.x.dt, a.x.ptr, base + h * a.x.h + w * a.x.w);
    aci_put(p.dtype, a.y, i, sum / count_of<C>(p, oh, ow));
  }
}

/* The same for windows that are worth a block: elements side by side to threads side by side. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    avg_large_windows(const __grid_constant__ pool_args a) {
  __shared__ double shared[ACI_BLOCK];
  const aci_pool &p = a.p;
  for (int64_t i = blockIdx.x; i < a.n; i += gridDim.x) {
    int64_t c = i, h0, h1, w0, w1;
    const int64_t ow = aci_take(&c, a.d1), oh = aci_take(&c, a.d0), base = a.x.plane(c);
    double sum = 0;
    aci_pool_span(&p, 0, oh, &h0, &h1);
    aci_pool_span(&p, 1, ow, &w0, &w1);
    const int64_t wide = w1 - w0, n = wide > 0 ? (h1 - h0) * wide : 0;
    for (int64_t k = threadIdx.x; k < n; k += blockDim.x) {
      const int64_t row = k / wide;
      sum += (double)aci_get<C>(a.x.dt, a.x.ptr,
                                base + (h0 + row) * a.x.h + (w0 + k - row * wide) * a.x.w);
    }
    sum = aci_block_join<aci_add_op>(sum, shared);
    if (threadIdx.x == 0) aci_put(p.dtype, a.y, i, (C)(sum / (double)count_of<C>(p, oh, ow)));
  }
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) avg_back(const __grid_constant__ pool_args a) {
  const aci_pool &p = a.p;
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t c = i, h0, h1, w0, w1;
    const int64_t w = aci_take(&c, a.d1), h = aci_take(&c, a.d0), base = a.t.plane(c);
    C sum = 0;
    windows_over(p, 0, h, &h0, &h1);
    windows_over(p, 1, w, &w0, &w1);
    for (int64_t oh = h0; oh < h1; oh++) {
      C row = p.adaptive ? (C)0 : sum;
      for (int64_t k = w0; k < w1; k++) {
        const int64_t ow =
            /* by taps, the first of which belongs to the last window */
            p.adaptive ? k : w1 - 1 - (k - w0);
        row += aci_get<C>(a.t.dt, a.t.ptr, base + oh * a.t.h + ow * a.t.w) / count_of<C>(p, oh, ow);
      }
      sum = p.adaptive ? sum + row : row;
    }
    aci_put(p.dtype, a.y, i, sum);
  }
}

/* ---- launches ---- */
/* Over the elements of out, whose last p->n dims are `space`. */
static pool_args args_of(const aci_pool &p, const ac_tensor *out, const int64_t *space) {
  pool_args a = {};
  a.p = p;
  a.y = aci_data(out);
  a.n = out->numel;
  a.d1 = aci_divide_by(space[1] > 0 ? space[1] : 1);
  a.d0 = aci_divide_by(space[0] > 0 ? space[0] : 1);
  return a;
}
static bool wide(const aci_pool &p) { return p.ct == ACI_C_F64; }

template <int WHAT>
static ac_status launch_windows(ac_frame *f, const pool_args &a, int64_t n, ac_err *e) {
  const unsigned blocks = aci_blocks(f->device, n);
  return wide(a.p) ? aci_launch(f, "max pool", max_windows<double, WHAT>, blocks, e, a)
                   : aci_launch(f, "max pool", max_windows<float, WHAT>, blocks, e, a);
}

static ac_status max_forward(ac_frame *f, const aci_pool_args &w, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  aci_pool p;
  AC_TRY(aci_pool_make(f, &w, (ac_dtype)x->dtype, x->shape, x->ndim, &p, e));
  pool_args a = args_of(p, f->out[0], p.out);
  if (a.n == 0) return AC_OK;
  a.x = aci_planes_of(x, p.n);
  if (f->n_out > 1) a.indices = (int64_t *)aci_data(f->out[1]);
  return launch_windows<POOL_VALUES>(f, a, a.n, e);
}
template <int N> static ac_status max_pool(ac_frame *f, ac_err *e) {
  return max_forward(f, aci_max_pool_args(N), e);
}
template <int N> static ac_status adaptive_max_pool(ac_frame *f, ac_err *e) {
  return max_forward(f, aci_adaptive_pool_args(N), e);
}
AC_KERNEL(cuda, max_pool1d, max_pool<1>)
AC_KERNEL(cuda, max_pool2d, max_pool<2>)
AC_KERNEL(cuda, adaptive_max_pool1d, adaptive_max_pool<1>)
AC_KERNEL(cuda, adaptive_max_pool2d, adaptive_max_pool<2>)

static ac_status max_pool_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = f->args[0].tensor, *x = f->args[1].tensor;
  const aci_pool_args w = aci_max_pool_back_args();
  ac_block *positions;
  aci_pool p;
  AC_TRY(aci_pool_make(f, &w, (ac_dtype)x->dtype, x->shape, x->ndim, &p, e));
  if (f->out[0]->numel == 0) return AC_OK;
  if (p.in[0] * p.in[1] > INT32_MAX)
    return AC_FAIL(e, UNSUPPORTED, "unsupported on device %s: planes of more than %d elements",
                   f->device->name, INT32_MAX);
  AC_TRY(ac_block_alloc(f->device, sizeof(int32_t) * (size_t)(dy->numel + 1), AC_MEM_ACTIVATION,
                        f->stream, &positions, e));
  pool_args a = args_of(p, dy, p.out);
  a.x = aci_planes_of(x, p.n);
  a.positions = (int32_t *)positions->ptr;
  ac_status st = a.n > 0 ? launch_windows<POOL_POSITIONS>(f, a, a.n, e) : AC_OK;
  if (st == AC_OK) {
    pool_args b = args_of(p, f->out[0], p.in);
    const unsigned blocks = aci_blocks(f->device, b.n);
    b.t = aci_planes_of(dy, p.n);
    b.positions = a.positions;
    st = wide(p) ? aci_launch(f, "max pool (backward)", max_back<double>, blocks, e, b)
                 : aci_launch(f, "max pool (backward)", max_back<float>, blocks, e, b);
  }
  ac_block_free(positions);
  return st;
}
AC_KERNEL(cuda, max_pool_backward, max_pool_backward)

static ac_status max_pool_take(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[1].tensor;
  const aci_pool_args w = aci_max_pool_back_args();
  aci_pool p;
  AC_TRY(aci_pool_make(f, &w, (ac_dtype)x->dtype, x->shape, x->ndim, &p, e));
  pool_args a = args_of(p, f->out[0], p.out);
  if (a.n == 0) return AC_OK;
  a.x = aci_planes_of(x, p.n);
  a.t = aci_planes_of(f->args[0].tensor, p.n);
  return launch_windows<POOL_TAKE>(f, a, a.n, e);
}
AC_KERNEL(cuda, max_pool_take, max_pool_take)

static ac_status avg_forward(ac_frame *f, const aci_pool_args &w, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  aci_pool p;
  AC_TRY(aci_pool_make(f, &w, (ac_dtype)x->dtype, x->shape, x->ndim, &p, e));
  pool_args a = args_of(p, f->out[0], p.out);
  if (a.n == 0) return AC_OK;
  a.x = aci_planes_of(x, p.n);
  const int64_t window =
      p.adaptive ? (p.in[0] / p.out[0] + 1) * (p.in[1] / p.out[1] + 1) : p.k[0] * p.k[1];
  if (window >= 2 * ACI_BLOCK) {
    const unsigned blocks = aci_blocks(f->device, a.n, 1);
    return wide(p) ? aci_launch(f, "average pool", avg_large_windows<double>, blocks, e, a)
                   : aci_launch(f, "average pool", avg_large_windows<float>, blocks, e, a);
  }
  const unsigned blocks = aci_blocks(f->device, a.n);
  return wide(p) ? aci_launch(f, "average pool", avg_windows<double>, blocks, e, a)
                 : aci_launch(f, "average pool", avg_windows<float>, blocks, e, a);
}
template <int N> static ac_status avg_pool(ac_frame *f, ac_err *e) {
  return avg_forward(f, aci_avg_pool_args(N), e);
}
template <int N> static ac_status adaptive_avg_pool(ac_frame *f, ac_err *e) {
  return avg_forward(f, aci_adaptive_pool_args(N), e);
}
AC_KERNEL(cuda, avg_pool1d, avg_pool<1>)
AC_KERNEL(cuda, avg_pool2d, avg_pool<2>)
AC_KERNEL(cuda, adaptive_avg_pool1d, adaptive_avg_pool<1>)
AC_KERNEL(cuda, adaptive_avg_pool2d, adaptive_avg_pool<2>)

static ac_status avg_pool_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = f->args[0].tensor, *dx = f->out[0];
  const aci_pool_args w = aci_avg_pool_back_args();
  aci_pool p;
  AC_TRY(aci_pool_make(f, &w, (ac_dtype)dx->dtype, dx->shape, dx->ndim, &p, e));
  pool_args a = args_of(p, dx, p.in);
  if (a.n == 0) return AC_OK;
  a.t = aci_planes_of(dy, p.n);
  const unsigned blocks = aci_blocks(f->device, a.n);
  return wide(p) ? aci_launch(f, "average pool (backward)", avg_back<double>, blocks, e, a)
                 : aci_launch(f, "average pool (backward)", avg_back<float>, blocks, e, a);
}
AC_KERNEL(cuda, avg_pool_backward, avg_pool_backward)
