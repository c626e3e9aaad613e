/* Optimizers on CUDA: the formulas of the .c files (formula.h), which the build collects into
 * gen/cuda/map_*.cu. The macros have the names used in the formulas and replace those of step.h.
 *
 * A first kernel of one thread reads learning rate, step count and the like on the device, so that
 * a captured step replays with new ones. It computes the factors from them and updates them. Then
 * all tensors go in a few launches, an element of every list at a time. */
#ifndef ACI_OPS_STEP_CUH
#define ACI_OPS_STEP_CUH
#include "ops/optim/formula.h"
#include "ops/optim/lists.cuh"
#include "ops/optim/schedule_free.h"

struct aci_step_numbers {
  void *ptr[AC_MAX_ARGS]; /* NULL: an option, which is in value */
  double value[AC_MAX_ARGS];
  unsigned char dt[AC_MAX_ARGS];
  int n;
  uint32_t writes, given;
};
aci_step_numbers aci_step_numbers_of(const ac_frame *f);

/* The factors that prepare leaves for later kernels. */
template <class T> struct aci_step_factors {
  T of;
  bool skip;
};

/* P::factors, P::run(args, factors): an op's prepare. */
template <class P>
__global__ void aci_step_prepare(const __grid_constant__ aci_step_numbers m,
                                 aci_step_factors<typename P::type> *k) {
  if (aci_first() != 0) return;
  aci_step_args a = {};
  a.given = m.given;
  for (int i = 0; i < m.n; i++) {
    a.x[i] = m.ptr[i] != NULL ? aci_get<double>((ac_dtype)m.dt[i], m.ptr[i], 0) : m.value[i];
    if (m.ptr[i] != NULL && m.dt[i] == AC_F64) a.wide |= 1u << i;
  }
  typename P::type own;
  P::run(&a, &own);
  k->of = own;
  k->skip = a.skip;
  for (int i = 0; i < m.n && !a.skip; i++)
    if (m.writes >> i & 1) aci_put((ac_dtype)m.dt[i], m.ptr[i], 0, a.x[i]);
}

/* Formula N without the lists of a mask, as lists.cuh takes formulas. */
template <class N, unsigned MISSING> struct aci_step_formula {
  template <class T> struct run {
    enum { LISTS = N::LISTS };
    const aci_step_factors<typename N::type> *from;
    typename N::type own;
    __device__ __forceinline__ bool prepare() {
      own = from->of;
      return !from->skip;
    }
    __device__ __forceinline__ void element(T *v, const aci_list_batch &b, int t) const {
      T *row[ACI_STEP_LISTS];
#pragma unroll
      for (int k = 0; k < LISTS; k++) row[k] = MISSING >> k & 1 ? (T *)NULL : v + k;
      N::run(row, &own, b.scale[t]);
    }
  };
};

template <class N, unsigned MISSING>
ac_status aci_step_walk(const aci_lists *l, const char *name, unsigned writes, ac_err *e) {
  const auto make = [&](auto c) {
    typename aci_step_formula<N, MISSING>::template run<decltype(c)> k = {};
    k.from = (const aci_step_factors<typename N::type> *)l->room->ptr;
    return k;
  };
  return aci_lists_run<aci_step_formula<N, MISSING>::template run>(l, name, writes, make, e);
}

template <class N, class P, unsigned OPTIONAL, unsigned GATED, int GATE>
ac_status aci_step_launch(ac_frame *f, ac_err *e) {
  typedef aci_step_factors<typename N::type> factors;
  const aci_step_lists s = aci_step_lists_of(f, GATED, GATE);
  aci_lists l = {f, s.n, s.n_lists, {}, s.scale};
  unsigned missing = 0;
  for (int k = 0; k < s.n_lists; k++) {
    l.list[k] = s.lists[k];
    missing |= s.lists[k] == NULL ? 1u << k : 0;
  }
  AC_TRY(aci_lists_open(&l, sizeof(factors), e));
  const char *name = f->op->name;
  ac_status st = aci_launch(f, name, aci_step_prepare<P>, 1u, e, aci_step_numbers_of(f),
                            (factors *)l.room->ptr);
  if (st == AC_OK) switch (missing & OPTIONAL) { /* of equal cases one kernel is made */
      case 4: st = aci_step_walk<N, 4 & OPTIONAL>(&l, name, s.writes, e); break;
      case 8: st = aci_step_walk<N, 8 & OPTIONAL>(&l, name, s.writes, e); break;
      case 16: st = aci_step_walk<N, 16 & OPTIONAL>(&l, name, s.writes, e); break;
      case 24: st = aci_step_walk<N, 24 & OPTIONAL>(&l, name, s.writes, e); break;
      default: st = aci_step_walk<N, 0>(&l, name, s.writes, e);
    }
  ac_block_free(l.room); /* the next user works after us in the same order */
  return st;
}

/* ---- macros for formulas ---- */
#define ACI_STEP_FACTORS static __device__ __forceinline__
#define ACI_STEP_FORMULA(NAME, K, F, CALL, ...)                                               \
  struct NAME##_formula {                                                                     \
    typedef factors type;                                                                     \
    enum { LISTS = K };                                                                       \
    template <class T>                                                                        \
    static __device__ __forceinline__ void row(__VA_ARGS__, const factors *k, double scale) { \
      const int64_t n = 1;                                                                    \
      (void)scale;                                                                            \
      F(T)                                                                                    \
    }                                                                                         \
    template <class T>                                                                        \
    static __device__ __forceinline__ void run(T *const *r, const factors *k, double scale) { \
      row<T> CALL;                                                                            \
    }                                                                                         \
  };
#define ACI_STEP1(NAME, F, a) ACI_STEP_FORMULA(NAME, 1, F, (r[0], k, scale), T *a)
#define ACI_STEP2(NAME, F, a, b) ACI_STEP_FORMULA(NAME, 2, F, (r[0], r[1], k, scale), T *a, T *b)
#define ACI_STEP3(NAME, F, a, b, c) \
  ACI_STEP_FORMULA(NAME, 3, F, (r[0], r[1], r[2], k, scale), T *a, T *b, T *c)
#define ACI_STEP4(NAME, F, a, b, c, d) \
  ACI_STEP_FORMULA(NAME, 4, F, (r[0], r[1], r[2], r[3], k, scale), T *a, T *b, T *c, T *d)
#define ACI_STEP5(NAME, F, a, b, c, d, x)                                                        \
  ACI_STEP_FORMULA(NAME, 5, F, (r[0], r[1], r[2], r[3], r[4], k, scale), T *a, T *b, T *c, T *d, \
                   T *x)

#define ACI_STEP_KERNEL(op, NAME, PREPARE) ACI_STEP_KERNEL_OPT(op, NAME, PREPARE, 0, 0, 0)
#define ACI_STEP_KERNEL_OPT(op, NAME, PREPARE, OPTIONAL, GATED, GATE)                        \
  struct op##factors {                                                                       \
    typedef factors type;                                                                    \
    static __device__ __forceinline__ void run(aci_step_args *a, type *k) { PREPARE(a, k); } \
  };                                                                                         \
  AC_KERNEL(cuda, op, (aci_step_launch<NAME##_formula, op##factors, OPTIONAL, GATED, GATE>))

#endif
