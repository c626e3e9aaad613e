/* Tensors (N, C, space) or (C, space) with up to two dims of space, of any strides, as planes (H,
 * W). Pools, patches and resizing on CUDA read them. */
#ifndef ACI_OPS_PLANES_CUH
#define ACI_OPS_PLANES_CUH
#include "ops/cuda/divide.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

struct aci_planes {
  void *ptr;
  ac_dtype dt;
  aci_divisor channels;
  int64_t image, channel, h, w; /* strides */
  /* Offset of element (0, 0) of a plane. */
  __device__ __forceinline__ int64_t plane(int64_t c) const {
    const int64_t rest = aci_take(&c, channels);
    return c * image + rest * channel;
  }
};

/* n dims of space: 1 or 2. */
static inline aci_planes aci_planes_of(const ac_tensor *t, int n) {
  aci_planes v;
  const int c = t->ndim - n - 1;
  v.ptr = aci_data(t);
  v.dt = (ac_dtype)t->dtype;
  v.channels = aci_divide_by(t->shape[c] > 0 ? t->shape[c] : 1);
  v.image = c > 0 ? t->stride[0] : 0;
  v.channel = t->stride[c];
  v.h = n > 1 ? t->stride[t->ndim - 2] : 0;
  v.w = t->stride[t->ndim - 1];
  return v;
}

#endif
