/* sgd_step_ on CUDA: the formula of sgd_step_.c, all tensors in a few launches. */
#include "ops/optim/lists.cuh"

enum { PARAMS, GRADS, BUFFERS, LR, MOMENTUM, DAMPENING, DECAY, NESTEROV, MAXIMIZE, FIRST };

template <class T> struct sgd {
  enum { LISTS = 3 }; /* p, g, b */
  aci_number lr;
  double momentum, dampening, weight_decay;
  bool nesterov, maximize, first, has_momentum;
  T size;
  __device__ __forceinline__ void prepare() { size = (T)-lr.get(); }
  __device__ __forceinline__ void element(T *v, ac_dtype) const {
    const T mu = (T)momentum, fresh = (T)(1 - dampening);
    T g = m_fma((T)weight_decay, v[0], v[1] * (T)(maximize ? -1 : 1));
    if (has_momentum) {
      v[2] = first ? g : m_fma(fresh, g, mu * v[2]);
      g = nesterov ? m_fma(mu, v[2], g) : v[2];
    }
    v[0] = m_fma(size, g, v[0]);
  }
};

static ac_status run(ac_frame *f, ac_err *e) {
  const ac_value *a = f->args;
  ac_tensor *const *lists[3] = {a[PARAMS].tensors, a[GRADS].tensors,
                                a[MOMENTUM].f != 0 ? a[BUFFERS].tensors : NULL};
  const auto make = [&](auto c) {
    sgd<decltype(c)> k = {};
    k.lr = aci_number_of(a[LR].tensor);
    k.momentum = a[MOMENTUM].f;
    k.dampening = a[DAMPENING].f;
    k.weight_decay = a[DECAY].f;
    k.nesterov = a[NESTEROV].b;
    k.maximize = a[MAXIMIZE].b;
    k.first = a[FIRST].b;
    k.has_momentum = a[MOMENTUM].f != 0;
    return k;
  };
  return aci_list_launch<sgd>(f, "sgd", a[0].n, lists, 3, 0x5u, make, e);
}
AC_KERNEL(cuda, sgd_step_, run)
