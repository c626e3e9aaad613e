/* Further reductions on CUDA: any, all, count_nonzero, prod with the parts of its gradient, norm,
 * var, std and logsumexp. Sums of floats are double, as the CPU's. */
#include "ops/reduce/moments_args.h"
#include "ops/reduce/prod.h"
#include "ops/reduce/reduction.cuh"

#define FOLD_FN static __device__ __forceinline__

static ac_status plan(const ac_frame *f, aci_ctype ct, int dims, aci_reduce_plan *p) {
  const ac_tensor *x = f->args[0].tensor;
  aci_reduce_plan_make(p, x, aci_reduce_mask(&f->args[dims], x->ndim), ct);
  return AC_OK;
}
static bool wide(const ac_frame *f) { return f->args[0].tensor->dtype == AC_F64; }

/* ---- nonzero elements ---- */
enum { COUNT_ANY, COUNT_ALL, COUNT_HOW_MANY };
template <class T, int WHAT> struct nonzero {
  typedef T element;
  typedef int64_t state;
  FOLD_FN state start() { return 0; }
  FOLD_FN void step(state &s, T v, int64_t, double) { s += v != 0; }
  FOLD_FN void join(state &s, const state &t) { s += t; }
  FOLD_FN void put(const aci_reduction_out &o, int64_t at, const state &s) {
    aci_put(o.dt[0], o.out[0], at,
            WHAT == COUNT_ANY   ? (int64_t)(s != 0)
            : WHAT == COUNT_ALL ? (int64_t)(s == o.count)
                                : s);
  }
};
template <int WHAT> static ac_status count(ac_frame *f, ac_err *e) {
  aci_reduce_plan p;
  const aci_ctype ct = aci_ctype_of((ac_dtype)f->args[0].tensor->dtype);
  AC_TRY(plan(f, ct, 1, &p));
  if (ct == ACI_C_F32)
    return aci_reduction_cuda<nonzero<float, WHAT>>(f, &p, 0, f->out[0], NULL, e);
  if (ct == ACI_C_F64)
    return aci_reduction_cuda<nonzero<double, WHAT>>(f, &p, 0, f->out[0], NULL, e);
  return aci_reduction_cuda<nonzero<int64_t, WHAT>>(f, &p, 0, f->out[0], NULL, e);
}
AC_KERNEL(cuda, any, count<COUNT_ANY>)
AC_KERNEL(cuda, all, count<COUNT_ALL>)
AC_KERNEL(cuda, count_nonzero, count<COUNT_HOW_MANY>)

/* ---- products ---- */
template <class T, class S> struct product {
  typedef T element;
  typedef S state;
  FOLD_FN state start() { return 1; }
  FOLD_FN void step(state &s, T v, int64_t, double) { s *= (S)v; }
  FOLD_FN void join(state &s, const state &t) { s *= t; }
  FOLD_FN void put(const aci_reduction_out &o, int64_t at, const state &s) {
    aci_put(o.dt[0], o.out[0], at, s);
  }
};
/* wraps as unsigned, stored as signed */
struct product_int : product<int64_t, uint64_t> {
  FOLD_FN void put(const aci_reduction_out &o, int64_t at, const uint64_t &s) {
    aci_put(o.dt[0], o.out[0], at, (int64_t)s);
  }
};
static ac_status prod(ac_frame *f, ac_err *e) {
  aci_reduce_plan p;
  const aci_ctype ct = aci_ctype_of((ac_dtype)f->out[0]->dtype);
  AC_TRY(plan(f, ct, 1, &p));
  if (ct == ACI_C_F32)
    return aci_reduction_cuda<product<float, double>>(f, &p, 0, f->out[0], NULL, e);
  if (ct == ACI_C_F64)
    return aci_reduction_cuda<product<double, double>>(f, &p, 0, f->out[0], NULL, e);
  return aci_reduction_cuda<product_int>(f, &p, 0, f->out[0], NULL, e);
}
AC_KERNEL(cuda, prod, prod)

/* The product of the elements that are not 0, and how many are 0 and not finite. */
template <class T> struct product_parts {
  typedef T element;
  struct state {
    double others, zeros;
  };
  FOLD_FN state start() {
    state s = {1, 0};
    return s;
  }
  FOLD_FN void step(state &s, T v, int64_t, double) {
    s.zeros += ACI_PROD_COUNT(v);
    if (v != 0) s.others *= (double)v;
  }
  FOLD_FN void join(state &s, const state &t) { s.others *= t.others, s.zeros += t.zeros; }
  FOLD_FN void put(const aci_reduction_out &o, int64_t at, const state &s) {
    aci_put(o.dt[0], o.out[0], at, s.others);
    aci_put(o.dt[1], o.out[1], at, s.zeros);
  }
};
static ac_status prod_parts(ac_frame *f, ac_err *e) {
  aci_reduce_plan p;
  AC_TRY(plan(f, wide(f) ? ACI_C_F64 : ACI_C_F32, 1, &p));
  if (wide(f)) return aci_reduction_cuda<product_parts<double>>(f, &p, 0, f->out[0], f->out[1], e);
  return aci_reduction_cuda<product_parts<float>>(f, &p, 0, f->out[0], f->out[1], e);
}
AC_KERNEL(cuda, prod_parts, prod_parts)

/* ---- norms ---- */
enum { NORM_ZERO, NORM_ONE, NORM_TWO, NORM_MOST, NORM_LEAST, NORM_OTHER };
template <class T, int P> struct norm_reduction {
  typedef T element;
  typedef double state;
  FOLD_FN state start() { return P == NORM_LEAST ? (double)INFINITY : 0; }
  FOLD_FN void step(state &s, T v, int64_t, double p) {
    const T a = m_abs(v);
    if (P == NORM_ZERO) s += v != 0 ? 1 : 0;
    else if (P == NORM_ONE) s += (double)a;
    else if (P == NORM_TWO) s = fma((double)v, (double)v, s);
    else if (P == NORM_MOST) s = m_max((double)a, s);
    else if (P == NORM_LEAST) s = m_min((double)a, s);
    else s += (double)m_pow(a, (T)p);
  }
  FOLD_FN void join(state &s, const state &t) {
    if (P == NORM_MOST) s = m_max(t, s);
    else if (P == NORM_LEAST) s = m_min(t, s);
    else s += t;
  }
  FOLD_FN void put(const aci_reduction_out &o, int64_t at, const state &s) {
    aci_put(o.dt[0], o.out[0], at, P == NORM_TWO ? sqrt(s) : P == NORM_OTHER ? pow(s, 1 / o.p) : s);
  }
};
template <class T>
static ac_status norm_of(ac_frame *f, const aci_reduce_plan *q, double p, ac_err *e) {
  if (p == 0) return aci_reduction_cuda<norm_reduction<T, NORM_ZERO>>(f, q, p, f->out[0], NULL, e);
  if (p == 1) return aci_reduction_cuda<norm_reduction<T, NORM_ONE>>(f, q, p, f->out[0], NULL, e);
  if (p == 2) return aci_reduction_cuda<norm_reduction<T, NORM_TWO>>(f, q, p, f->out[0], NULL, e);
  if (p == (double)INFINITY)
    return aci_reduction_cuda<norm_reduction<T, NORM_MOST>>(f, q, p, f->out[0], NULL, e);
  if (p == -(double)INFINITY)
    return aci_reduction_cuda<norm_reduction<T, NORM_LEAST>>(f, q, p, f->out[0], NULL, e);
  return aci_reduction_cuda<norm_reduction<T, NORM_OTHER>>(f, q, p, f->out[0], NULL, e);
}
static double number(const ac_value *v) {
  return v->scalar.kind == AC_SCALAR_FLOAT ? v->scalar.f : (double)v->scalar.i;
}
static ac_status norm(ac_frame *f, ac_err *e) {
  aci_reduce_plan p;
  AC_TRY(plan(f, wide(f) ? ACI_C_F64 : ACI_C_F32, 2, &p));
  return wide(f) ? norm_of<double>(f, &p, number(&f->args[1]), e)
                 : norm_of<float>(f, &p, number(&f->args[1]), e);
}
AC_KERNEL(cuda, norm, norm)

/* ---- var, std: count, mean and sum of squared deviations, joined as Chan et al. ---- */
template <class T, bool ROOT> struct moments {
  typedef T element;
  struct state {
    double n, mean, m2;
  };
  FOLD_FN state start() {
    state s = {0, 0, 0};
    return s;
  }
  FOLD_FN void step(state &s, T v, int64_t, double) {
    const double d = (double)v - s.mean;
    s.n += 1;
    s.mean += d / s.n;
    s.m2 = fma(d, (double)v - s.mean, s.m2);
  }
  FOLD_FN void join(state &s, const state &t) {
    if (t.n == 0) return;
    const double n = s.n + t.n, way = t.mean - s.mean, share = t.n / n;
    s.mean += way * share;
    s.m2 += t.m2 + way * way * s.n * share;
    s.n = n;
  }
  FOLD_FN void put(const aci_reduction_out &o, int64_t at, const state &s) {
    const double left = (double)o.count - o.p, var = s.m2 / (left > 0 ? left : 0);
    aci_put(o.dt[0], o.out[0], at, ROOT ? sqrt(var) : var);
  }
};
template <bool ROOT> static ac_status moments_run(ac_frame *f, ac_err *e) {
  aci_reduce_plan p;
  const double correction = aci_moments_correction(&f->args[3]);
  AC_TRY(plan(f, wide(f) ? ACI_C_F64 : ACI_C_F32, 1, &p));
  if (wide(f))
    return aci_reduction_cuda<moments<double, ROOT>>(f, &p, correction, f->out[0], NULL, e);
  return aci_reduction_cuda<moments<float, ROOT>>(f, &p, correction, f->out[0], NULL, e);
}
AC_KERNEL(cuda, var, moments_run<false>)
AC_KERNEL(cuda, std, moments_run<true>)

/* ---- logsumexp: a shift that is finite (-inf over nothing) and the sum of e^(x - shift) ---- */
template <class T> struct log_sum_exp {
  typedef T element;
  struct state {
    double shift, sum;
  };
  FOLD_FN state start() {
    state s = {-(double)INFINITY, 0};
    return s;
  }
  /* As the CPU's blocks: infinities shift by the largest float, so that e^(x - shift) is 0 or
   * infinite and not NaN. */
  FOLD_FN void step(state &s, T v, int64_t, double) {
    const double most = sizeof(T) == 4 ? 3.4028234663852886e38 : 1.7976931348623157e308;
    const double x = (double)v, shift = x != x ? 0 : x > most ? most : x < -most ? -most : x;
    const state t = {shift, (double)m_exp((T)(v - (T)shift))};
    join(s, t);
  }
  FOLD_FN void join(state &s, const state &t) {
    if (t.shift == -(double)INFINITY) return;
    if (s.shift == -(double)INFINITY) {
      s = t;
      return;
    }
    const double top = s.shift > t.shift ? s.shift : t.shift;
    const double wa = s.shift == top || s.sum == (double)INFINITY ? 1 : exp(s.shift - top);
    const double wb = t.shift == top || t.sum == (double)INFINITY ? 1 : exp(t.shift - top);
    s.sum = s.sum * wa + t.sum * wb;
    s.shift = top;
  }
  FOLD_FN void put(const aci_reduction_out &o, int64_t at, const state &s) {
    aci_put(o.dt[0], o.out[0], at, log(s.sum) + s.shift);
  }
};
static ac_status logsumexp(ac_frame *f, ac_err *e) {
  aci_reduce_plan p;
  AC_TRY(plan(f, wide(f) ? ACI_C_F64 : ACI_C_F32, 1, &p));
  if (wide(f)) return aci_reduction_cuda<log_sum_exp<double>>(f, &p, 0, f->out[0], NULL, e);
  return aci_reduction_cuda<log_sum_exp<float>>(f, &p, 0, f->out[0], NULL, e);
}
AC_KERNEL(cuda, logsumexp, logsumexp)
