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
static __global__ void __launch_bounds__(ACI_BLOCK) swiglu_back(const __grid_constant__ swiglu_args s) {
  for (int64_t i = aci_first(); i < s.n; i += aci_step()) {
    C v[3];
#pragma unroll
    for (int k = 0; k < 3; k++)
      v[k] = aci_get<C>(s.t[k].dt, s.t[k].ptr, aci_place(i, s.ndim, s.shape, s.t[k].stride));
    const C g = m_sigmoid(v[1]), z = v[0] * g;
    aci_put(s.t[3].dt, s.t[3].ptr, i, z * v[2] * (1 + v[1] * (1 - g)));
    aci_put(s.t[4].dt, s.t[4].ptr, i, z * v[1]);
  }
}

static ac_status backward(ac_frame *f, ac_err *e) {
  swiglu_args s = {};
  const ac_tensor *t[5] = {f->args[0].tensor, f->args[1].tensor, f->args[2].tensor, f->out[0], f->out[1]};
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
  if (t[3]->dtype == AC_F64) return aci_launch(f, "swiglu (backward)", swiglu_back<double>, blocks, e, s);
  return aci_launch(f, "swiglu (backward)", swiglu_back<float>, blocks, e, s);
}
AC_KERNEL(cuda, swiglu_backward, backward)
