/* Short formulas over lists on CUDA: foreach_lerp_ and clip_grad_value_. */
#include "ops/optim/lists.cuh"

template <class T> struct lerp {
  enum { LISTS = 2 };
  double weight;
  __device__ __forceinline__ void prepare() {}
  __device__ __forceinline__ void element(T *v, ac_dtype) const {
    const T w = (T)weight;
    v[0] = m_fma(w < (T)0.5 ? w : w - 1, v[1] - v[0], w < (T)0.5 ? v[0] : v[1]);
  }
};
static ac_status foreach_lerp(ac_frame *f, ac_err *e) {
  const ac_value *a = f->args;
  ac_tensor *const *lists[2] = {a[0].tensors, a[1].tensors};
  const auto make = [&](auto c) {
    lerp<decltype(c)> k = {a[2].f};
    return k;
  };
  return aci_list_launch<lerp>(f, "lerp", a[0].n, lists, 2, 1u, make, e);
}
AC_KERNEL(cuda, foreach_lerp_, foreach_lerp)

template <class T> struct limit {
  enum { LISTS = 1 };
  double top;
  __device__ __forceinline__ void prepare() {}
  __device__ __forceinline__ void element(T *v, ac_dtype) const {
    const T most = (T)top, x = v[0] < -most ? -most : v[0];
    v[0] = x > most ? most : x;
  }
};
static ac_status clip_grad_value(ac_frame *f, ac_err *e) {
  const ac_value *a = f->args;
  ac_tensor *const *lists[1] = {a[0].tensors};
  const auto make = [&](auto c) {
    limit<decltype(c)> k = {a[1].f};
    return k;
  };
  return aci_list_launch<limit>(f, "clip", a[0].n, lists, 1, 1u, make, e);
}
AC_KERNEL(cuda, clip_grad_value_, clip_grad_value)
