/* rope and its backward on CUDA: angles in double, one sine and cosine a pair and position, as rope.c's table has at its exact places. */
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

enum { X, THETA, INTERLEAVED, OFFSET, POSITIONS, INV_FREQ, SCALING, FACTOR, LOW, HIGH, ORIGINAL };

struct rope_args {
  const void *x, *positions, *inv_freq;
  void *y;
  ac_dtype dt, positions_dt, inv_freq_dt;
  int ndim, scaling;
  int64_t n, t, half, offset, per_batch, positions_stride[2], inv_freq_stride;
  int64_t shape[AC_MAX_DIMS], x_stride[AC_MAX_DIMS], y_stride[AC_MAX_DIMS]; /* rows: without the last dim */
  int64_t x_last, y_last;
  double theta, factor, low, high, original, sign;
  bool interleaved;
  int *fault;
};

ACI_DEVICE double frequency(const rope_args &a, int64_t i) {
  if (a.inv_freq != NULL) return aci_get<double>(a.inv_freq_dt, a.inv_freq, i * a.inv_freq_stride);
  const double w = pow(a.theta, -(double)i / (double)a.half);
  if (a.scaling == 0) return w;
  if (a.scaling == 1) return w / a.factor;
  const double turns = a.original * w / (2 * 3.14159265358979323846);
  double keep = (turns - a.low) / (a.high - a.low);
  keep = keep < 0 ? 0 : keep > 1 ? 1 : keep;
  return (1 - keep) * w / a.factor + keep * w;
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) rope_kernel(const __grid_constant__ rope_args a) {
  for (int64_t k = aci_first(); k < a.n; k += aci_step()) { /* (row, pair) */
    const int64_t i = k % a.half, r = k / a.half, p = r % a.t;
    int64_t position = a.offset + p;
    if (a.positions != NULL) {
      const int64_t row = a.per_batch > 0 ? r / a.per_batch : 0;
      position = aci_get<int64_t>(a.positions_dt, a.positions,
                                  row * a.positions_stride[0] + p * a.positions_stride[1]);
      if (position < 0 || position >= (int64_t)1 << 40) {
        *a.fault = ACI_FAULT_INDEX;
        position = 0;
      }
    }
    double s, c;
    sincos((double)position * frequency(a, i), &s, &c);
    const C sn = (C)(s * a.sign), cs = (C)c;
    const int64_t first = a.interleaved ? 2 * i : i, second = a.interleaved ? 2 * i + 1 : i + a.half;
    const int64_t xo = aci_place(r, a.ndim, a.shape, a.x_stride),
                  yo = aci_place(r, a.ndim, a.shape, a.y_stride);
    const C u = aci_get<C>(a.dt, a.x, xo + first * a.x_last),
            v = aci_get<C>(a.dt, a.x, xo + second * a.x_last);
    aci_put(a.dt, a.y, yo + first * a.y_last, u * cs - v * sn);
    aci_put(a.dt, a.y, yo + second * a.y_last, v * cs + u * sn);
  }
}

static ac_status rotate(ac_frame *f, double sign, ac_err *e) {
  const ac_value *v = f->args;
  const ac_tensor *x = v[X].tensor, *y = f->out[0];
  rope_args a = {};
  if (x->numel == 0) return AC_OK;
  const int last = x->ndim - 1;
  a.x = aci_data(x);
  a.y = aci_data(y);
  a.dt = (ac_dtype)x->dtype;
  a.ndim = last;
  a.t = x->shape[last - 1];
  a.half = x->shape[last] / 2;
  a.n = x->numel / 2;
  memcpy(a.shape, x->shape, 8 * (size_t)last);
  memcpy(a.x_stride, x->stride, 8 * (size_t)last);
  memcpy(a.y_stride, y->stride, 8 * (size_t)last);
  a.x_last = x->stride[last];
  a.y_last = y->stride[last];
  a.theta = v[THETA].f;
  a.interleaved = v[INTERLEAVED].b;
  a.offset = v[OFFSET].i;
  a.scaling = (int)v[SCALING].i;
  a.factor = v[FACTOR].f;
  a.low = v[LOW].f;
  a.high = v[HIGH].f;
  a.original = (double)v[ORIGINAL].i;
  a.sign = sign;
  a.fault = aci_cuda_of(f->device)->fault;
  if (v[POSITIONS].kind == AC_T_TENSOR) {
    const ac_tensor *p = v[POSITIONS].tensor;
    a.positions = aci_data(p);
    a.positions_dt = (ac_dtype)p->dtype;
    a.positions_stride[1] = p->stride[p->ndim - 1];
    if (p->ndim == 2 && p->shape[0] > 1) {
      a.positions_stride[0] = p->stride[0];
      a.per_batch = x->numel / x->shape[0] / (2 * a.half);
    }
  }
  if (v[INV_FREQ].kind == AC_T_TENSOR) {
    a.inv_freq = aci_data(v[INV_FREQ].tensor);
    a.inv_freq_dt = (ac_dtype)v[INV_FREQ].tensor->dtype;
    a.inv_freq_stride = v[INV_FREQ].tensor->stride[0];
  }
  const unsigned blocks = aci_blocks(f->device, a.n);
  if (a.dt == AC_F64) return aci_launch(f, "rope", rope_kernel<double>, blocks, e, a);
  return aci_launch(f, "rope", rope_kernel<float>, blocks, e, a);
}
static ac_status forward(ac_frame *f, ac_err *e) { return rotate(f, 1, e); }
static ac_status backward(ac_frame *f, ac_err *e) { return rotate(f, -1, e); }
AC_KERNEL(cuda, rope, forward)
AC_KERNEL(cuda, rope_backward, backward)
