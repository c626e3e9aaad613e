/* swiglu's backward on CUDA: both gradients in one pass. */
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

struct swiglu_args {
  struct {
    void *ptr;
    ac_dtype dt;
    int64_t stride[AC_MAX_DIMS];
  } t[5]; /* dz, x, y -> dx, dy */
  int64_t n, shape[AC_MAX_DIMS];
  int ndim;
};

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    swiglu_back(const __grid_constant__ swiglu_args s) {
  for (int64_t i = aci_first(); i < s.n; i += aci_step()) {
    C v[3];
#pragma unroll
    for (int k = 0; k < 3; k++)
      v[k] =
          aci_get<C>(s.t[k].dt, s.t[k].ptr, aci_element_offset(i, s.ndim, s.shape, s.t[k].stride));
    const C g = m_sigmoid(v[1]), z = v[0] * g;
    aci_put(s.t[3].dt, s.t[3].ptr, i, z * v[2] * (1 + v[1] * (1 - g)));
    aci_put(s.t[4].dt, s.t[4].ptr, i, z * v[1]);
  }
}

/* All five in one dtype and a run each. */
template <int DT>
static __global__ void __launch_bounds__(ACI_BLOCK)
    swiglu_back_run(const __grid_constant__ swiglu_args s) {
  typedef typename aci_element<DT>::bits S;
  constexpr int V = 16 / (int)sizeof(S);
  typedef aci_vector<S, V> piece;
  for (int64_t i = aci_first(); i < s.n / V; i += aci_step()) {
    piece v[3], dx, dy;
#pragma unroll
    for (int k = 0; k < 3; k++) v[k] = ((const piece *)s.t[k].ptr)[i];
#pragma unroll
    for (int j = 0; j < V; j++) {
      const float dz = aci_element<DT>::template load<float>(v[0].v[j]),
                  x = aci_element<DT>::template load<float>(v[1].v[j]),
                  y = aci_element<DT>::template load<float>(v[2].v[j]), g = m_sigmoid(x),
                  z = dz * g;
      dx.v[j] = aci_element<DT>::template store<float>(z * y * (1 + x * (1 - g)));
      dy.v[j] = aci_element<DT>::template store<float>(z * x);
    }
    ((piece *)s.t[3].ptr)[i] = dx;
    ((piece *)s.t[4].ptr)[i] = dy;
  }
}
static bool in_runs(const ac_tensor *const *t) {
  const ac_dtype dt = (ac_dtype)t[0]->dtype;
  bool fits = (dt == AC_F32 || dt == AC_BF16 || dt == AC_F16) &&
              t[0]->numel % (16 / (int64_t)aci_dsize(dt)) == 0;
  for (int k = 0; k < 5; k++)
    fits = fits && (ac_dtype)t[k]->dtype == dt && t[k]->numel == t[3]->numel &&
           aci_is_contiguous(t[k]) && (uintptr_t)aci_data(t[k]) % 16 == 0;
  return fits;
}

static ac_status backward(ac_frame *f, ac_err *e) {
  swiglu_args s = {};
  const ac_tensor *t[5] = {f->args[0].tensor, f->args[1].tensor, f->args[2].tensor, f->out[0],
                           f->out[1]};
  s.n = t[3]->numel;
  if (s.n == 0) return AC_OK;
  s.ndim = t[3]->ndim;
  memcpy(s.shape, t[3]->shape, 8 * (size_t)s.ndim);
  for (int k = 0; k < 5; k++) {
    s.t[k].ptr = aci_data(t[k]);
    s.t[k].dt = (ac_dtype)t[k]->dtype;
    memcpy(s.t[k].stride, t[k]->stride, 8 * (size_t)s.ndim);
  }
  const unsigned blocks = aci_blocks(f->device, s.n);
  if (in_runs(t)) {
    const unsigned few =
        aci_blocks(f->device, s.n * (int64_t)aci_dsize((ac_dtype)t[3]->dtype) / 16);
    switch (t[3]->dtype) {
      case AC_F32: return aci_launch(f, "swiglu (backward)", swiglu_back_run<AC_F32>, few, e, s);
      case AC_BF16: return aci_launch(f, "swiglu (backward)", swiglu_back_run<AC_BF16>, few, e, s);
      default: return aci_launch(f, "swiglu (backward)", swiglu_back_run<AC_F16>, few, e, s);
    }
  }
  if (t[3]->dtype == AC_F64)
    return aci_launch(f, "swiglu (backward)", swiglu_back<double>, blocks, e, s);
  return aci_launch(f, "swiglu (backward)", swiglu_back<float>, blocks, e, s);
}
AC_KERNEL(cuda, swiglu_backward, backward)
