/* Ops of two tensors of pairs, real and imaginary part in the last dim, which broadcast: the shape
 * rule and the CPU's loop of complex_mul and complex_div. */
#ifndef ACI_OPS_COMPLEX_PAIRS_H
#define ACI_OPS_COMPLEX_PAIRS_H
#include "ops/core/op.h"

/* n numbers of x and y, sx and sy floats apart, into z without gaps. */
typedef void (*aci_pairs_fn)(int64_t n, void *z, const void *x, int64_t sx, const void *y,
                             int64_t sy, bool conj);

ac_status aci_pairs_shape(ac_frame *f, ac_err *e);
/* f->args: x, y, conj. */
ac_status aci_pairs_run(ac_frame *f, aci_pairs_fn f32, aci_pairs_fn f64, ac_err *e);

/* A loop over float or double, with a path that vectorises if nothing is strided. FORM reads a, b,
 * c, d (x = a + bi, y = c + di) and sets re and im. */
#define ACI_PAIRS_EACH(T, FORM, SX, SY)                                                \
  for (int64_t i = 0; i < n; i++) {                                                    \
    const T a = x[i * SX], b = x[i * SX + 1], c = y[i * SY], d = sign * y[i * SY + 1]; \
    T re, im;                                                                          \
    FORM(T) z[2 * i] = re;                                                             \
    z[2 * i + 1] = im;                                                                 \
  }
#define ACI_PAIRS_FN(name, T, FORM)                                                             \
  static void name(int64_t n, void *zv, const void *xv, int64_t sx, const void *yv, int64_t sy, \
                   bool conj) {                                                                 \
    T *restrict z = zv;                                                                         \
    const T *x = xv, *y = yv;                                                                   \
    const T sign = conj ? -1 : 1;                                                               \
    if (sx == 2 && sy == 2) ACI_PAIRS_EACH(T, FORM, 2, 2)                                       \
    else ACI_PAIRS_EACH(T, FORM, sx, sy)                                                        \
  }

#endif
