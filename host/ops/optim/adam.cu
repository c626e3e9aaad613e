/* adam_step_ and adamw_step_ on CUDA: the formula of adam.c, all tensors in a few launches. Learning rate and step count are read on the
 * device, so that a captured step replays with new ones. */
#include "ops/optim/lists.cuh"

enum { LR = 4, STEP, BETA1, BETA2, EPS, DECAY, MAXIMIZE, MAX_SQS };

template <class T> struct adam {
  enum { LISTS = 5 }; /* p, g, m, v, w (AMSGrad's) */
  aci_number lr, step;
  double beta1, beta2, eps_, weight_decay;
  bool decoupled, maximize, amsgrad;
  T keep, decay, lerp, square, size, root, sign;

  __device__ __forceinline__ void prepare() {
    const double rate = lr.get(), n = step.get() + 1;
    keep = (T)(decoupled ? 1 - rate * weight_decay : 1);
    decay = (T)(decoupled ? 0 : weight_decay);
    lerp = (T)(1 - beta1);
    square = (T)(1 - beta2);
    size = (T) - (rate / (1 - pow(beta1, n)));
    root = (T)(1 / sqrt(1 - pow(beta2, n)));
    sign = (T)(maximize ? -1 : 1);
  }
  __device__ __forceinline__ void element(T *v, ac_dtype) const {
    const T g = m_fma(decay, v[0], v[1] * sign);
    const T m = m_fma(lerp, g - v[2], v[2]);
    const T s = m_fma(square * g, g, v[3] * (T)beta2);
    const T top = amsgrad ? m_max(v[4], s) : s;
    const T denom = m_fma(m_sqrt(top), root, (T)eps_);
    v[0] = m_fma(size, m / denom, v[0] * keep);
    v[2] = m;
    v[3] = s;
    v[4] = top;
  }
};

static __global__ void count_step(aci_number step) {
  if (aci_first() == 0) step.set(step.get() + 1);
}

template <bool DECOUPLED> static ac_status run(ac_frame *f, ac_err *e) {
  const ac_value *a = f->args;
  const bool amsgrad = a[MAX_SQS].kind == AC_T_TENSORS;
  ac_tensor *const *lists[5] = {a[0].tensors, a[1].tensors, a[2].tensors, a[3].tensors,
                                amsgrad ? a[MAX_SQS].tensors : NULL};
  const auto make = [&](auto c) {
    adam<decltype(c)> k = {};
    k.lr = aci_number_of(a[LR].tensor);
    k.step = aci_number_of(a[STEP].tensor);
    k.beta1 = a[BETA1].f;
    k.beta2 = a[BETA2].f;
    k.eps_ = a[EPS].f;
    k.weight_decay = a[DECAY].f;
    k.decoupled = DECOUPLED;
    k.maximize = a[MAXIMIZE].b;
    k.amsgrad = amsgrad;
    return k;
  };
  AC_TRY((aci_list_launch<adam>(f, "adam", a[0].n, lists, 5, 0x1du, make, e)));
  return aci_launch(f, "adam (step)", count_step, 1u, e, aci_number_of(a[STEP].tensor));
}
AC_KERNEL(cuda, adam_step_, run<false>)
AC_KERNEL(cuda, adamw_step_, run<true>)
