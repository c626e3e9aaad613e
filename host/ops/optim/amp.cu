/* Loss scaling on CUDA: amp_foreach_unscale_ and amp_update_scale_, which never wait for the
 * device. */
#include "ops/optim/lists.cuh"

template <class T> struct unscale {
  enum { LISTS = 1 };
  aci_number found, factor;
  T by;
  __device__ __forceinline__ bool prepare() {
    by = (T)factor.get();
    return true;
  }
  __device__ __forceinline__ void element(T *v, const aci_list_batch &b, int t) const {
    const int dt = b.dt[0][t];
    v[0] *= by;
    /* the largest value that still rounds to a finite number of the dtype */
    const T most = dt == AC_F16    ? (T)0x1.ffdffep+15f
                   : dt == AC_BF16 ? (T)0x1.fefffep+127f
                   : dt == AC_F32  ? (T)0x1.fffffep+127f
                                   : (T)1.7976931348623157e308;
    if (!(m_abs(v[0]) <= most)) found.set(1); /* all threads that get here write the same value */
  }
};

static ac_status foreach_unscale(ac_frame *f, ac_err *e) {
  const ac_value *a = f->args;
  const auto make = [&](auto c) {
    unscale<decltype(c)> k = {};
    k.found = aci_number_of(a[1].tensor);
    k.factor = aci_number_of(a[2].tensor);
    return k;
  };
  return aci_list_launch<unscale>(f, "unscale", &a[0], make, e);
}
AC_KERNEL(cuda, amp_foreach_unscale_, foreach_unscale)

static __global__ void update_kernel(aci_number scale, aci_number tracker, aci_number found,
                                     double growth, double backoff, double interval) {
  if (aci_first() != 0) return;
  const double now = scale.get(), good = tracker.get() + 1;
  if (found.get() != 0) {
    scale.set(now * backoff);
    tracker.set(0);
  } else if (good >= interval) {
    scale.set(now * growth);
    if (!(fabs(scale.get()) <= 1.7976931348623157e308)) scale.set(now);
    tracker.set(0);
  } else {
    tracker.set(good);
  }
}
static ac_status update_scale(ac_frame *f, ac_err *e) {
  const ac_value *a = f->args;
  return aci_launch(f, "update_scale", update_kernel, 1u, e, aci_number_of(a[0].tensor),
                    aci_number_of(a[1].tensor), aci_number_of(a[2].tensor), a[3].f, a[4].f,
                    (double)a[5].i);
}
AC_KERNEL(cuda, amp_update_scale_, update_scale)
