/* The frame of an optimizer op: lists of parameters, gradients and states walked together in one pass.
 *
 * An op file gives its formula once, over n elements of every list, and says which lists and factors go in:
 *
 *   typedef struct factors { double lr; } factors;
 *   #define FORMULA(T)                                                        \
 *     const T lr = (T)-k->lr;                                                 \
 *     for (int64_t i = 0; i < n; i++) p[i] = m_fma(lr, g[i], p[i]);
 *   ACI_STEP2(plain, FORMULA, p, g)
 *   ...
 *   aci_step s = {.n = 2, .lists = {f->args[0].tensors, f->args[1].tensors}, .reads = ACI_STEP_GRADS,
 *                 .k = &factors, ACI_STEP_FNS(plain)};
 *   return aci_step_run(f, &s, e);
 *
 * Rows are computed in f32, in f64 where any list of that parameter is f64; other dtypes and strided memory
 * pass through buffers. Names of the rows are the formula's own; `k` is a pointer to the file's `factors`. */
#ifndef ACI_OPS_STEP_H
#define ACI_OPS_STEP_H
#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "ops/optim/lists.h"

enum { ACI_STEP_LISTS = 5, ACI_STEP_GRADS = 1 << 1 };

/* n elements of every list; i: the parameter they belong to. */
typedef void (*aci_step_fn)(int64_t n, void *const *row, const void *k, int i);

typedef struct aci_step {
  int n;                                   /* lists of the formula */
  ac_tensor *const *lists[ACI_STEP_LISTS]; /* the first is walked; NULL: the formula gets NULL for it */
  uint32_t reads;                          /* bit k: list k is not written */
  const void *k;
  aci_step_fn f32, f64;
} aci_step;

/* Over every tensor of argument 0. OOM before anything is written. */
ac_status aci_step_run(ac_frame *f, const aci_step *s, ac_err *e);

/* Shape rule: every list has as many tensors as the first, of the same shapes, all floats; every single tensor
 * has one element. Lists that are none are left out. */
ac_status aci_step_shape(ac_frame *f, ac_err *e);
/* INVALID unless arguments first .. last are not below zero. */
ac_status aci_step_not_negative(const ac_frame *f, int first, int last, ac_err *e);
/* INVALID unless arguments at and at + 1 lie in [0, 1). */
ac_status aci_step_betas(const ac_frame *f, int at, ac_err *e);

/* The tensors of an optional list, NULL when it is none. */
static inline ac_tensor *const *aci_step_list(const ac_frame *f, int arg) {
  return ARG_NONE(f, arg) ? NULL : f->args[arg].tensors;
}
/* The count of this step: one more than argument arg holds. */
static inline double aci_step_count(const ac_frame *f, int arg) { return aci_number_get(ARG_T(f, arg)) + 1; }

/* x + w (y - x) for formulas, exact at both ends. */
#define ACI_LERP(x, y, w) m_fma((w) < 0.5f ? (w) : (w)-1, (y) - (x), (w) < 0.5f ? (x) : (y))

#define ACI_STEP_FNS(NAME) .f32 = NAME##_rows_f32, .f64 = NAME##_rows_f64
#define ACI_STEP_ROWS(NAME, sfx, ...)                                              \
  static void NAME##_rows_##sfx(int64_t n, void *const *r, const void *k, int i) { \
    (void)i;                                                                       \
    NAME##_##sfx(n, __VA_ARGS__, k);                                               \
  }
#define ACI_STEP_FN1(NAME, T, sfx, F, a)                                \
  AC_ISA_FN(NAME##_##sfx, (int64_t n, T *restrict a, const factors *k), \
            (n, a, k)){F(T)} ACI_STEP_ROWS(NAME, sfx, r[0])
#define ACI_STEP_FN2(NAME, T, sfx, F, a, b)                                            \
  AC_ISA_FN(NAME##_##sfx, (int64_t n, T *restrict a, T *restrict b, const factors *k), \
            (n, a, b, k)){F(T)} ACI_STEP_ROWS(NAME, sfx, r[0], r[1])
#define ACI_STEP_FN3(NAME, T, sfx, F, a, b, c)                                                        \
  AC_ISA_FN(NAME##_##sfx, (int64_t n, T *restrict a, T *restrict b, T *restrict c, const factors *k), \
            (n, a, b, c, k)){F(T)} ACI_STEP_ROWS(NAME, sfx, r[0], r[1], r[2])
#define ACI_STEP_FN4(NAME, T, sfx, F, a, b, c, d)                                                      \
  AC_ISA_FN(NAME##_##sfx,                                                                              \
            (int64_t n, T *restrict a, T *restrict b, T *restrict c, T *restrict d, const factors *k), \
            (n, a, b, c, d, k)){F(T)} ACI_STEP_ROWS(NAME, sfx, r[0], r[1], r[2], r[3])
#define ACI_STEP_FN5(NAME, T, sfx, F, a, b, c, d, x)                                               \
  AC_ISA_FN(NAME##_##sfx,                                                                          \
            (int64_t n, T *restrict a, T *restrict b, T *restrict c, T *restrict d, T *restrict x, \
             const factors *k),                                                                    \
            (n, a, b, c, d, x, k)){F(T)} ACI_STEP_ROWS(NAME, sfx, r[0], r[1], r[2], r[3], r[4])

#define ACI_STEP1(NAME, F, ...) \
  ACI_STEP_FN1(NAME, float, f32, F, __VA_ARGS__) ACI_STEP_FN1(NAME, double, f64, F, __VA_ARGS__)
#define ACI_STEP2(NAME, F, ...) \
  ACI_STEP_FN2(NAME, float, f32, F, __VA_ARGS__) ACI_STEP_FN2(NAME, double, f64, F, __VA_ARGS__)
#define ACI_STEP3(NAME, F, ...) \
  ACI_STEP_FN3(NAME, float, f32, F, __VA_ARGS__) ACI_STEP_FN3(NAME, double, f64, F, __VA_ARGS__)
#define ACI_STEP4(NAME, F, ...) \
  ACI_STEP_FN4(NAME, float, f32, F, __VA_ARGS__) ACI_STEP_FN4(NAME, double, f64, F, __VA_ARGS__)
#define ACI_STEP5(NAME, F, ...) \
  ACI_STEP_FN5(NAME, float, f32, F, __VA_ARGS__) ACI_STEP_FN5(NAME, double, f64, F, __VA_ARGS__)

#endif
