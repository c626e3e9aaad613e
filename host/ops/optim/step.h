/* The frame of an optimizer op on the CPU: lists of parameters, gradients and states walked
 * together in one pass by the op's formula.
 * formula.h explains formulas.
 *
 * Rows are computed in f32, in f64 if any list of that parameter is f64. Other dtypes and strided
 * memory pass through buffers.
 *
 * Map of the folder. One op, one file of its name: <optimizer>_step_ and the ops on lists of
 * gradients. Shared files:
 *
 *   formula.h               how the formula of an optimizer is written, once for the CPU and for
 *                           CUDA
 *   step.[ch]               this frame. step.cu and step.cuh on CUDA
 *   lists.[ch]              lists of tensors walked in chunks. lists.cu and lists.cuh on CUDA
 *   adam.[ch] schedule_free.h   code shared by variants of one optimizer
 *   adafactor.[ch]          the passes of adafactor_step_ over tiles
 *   amp.cu                  amp_foreach_unscale_ and amp_update_scale_ on CUDA (loss scaling) */
#ifndef ACI_OPS_STEP_H
#define ACI_OPS_STEP_H
#include "device/cpu/isa.h"
#include "ops/optim/formula.h"
#include "ops/optim/lists.h"

/* n elements of every list (NULL: it is missing). scale: the parameter's own number. */
typedef void (*aci_step_fn)(int64_t n, void *const *row, const void *k, double scale);

typedef struct aci_step {
  aci_step_fn f32, f64;
  void (*prepare)(aci_step_args *a, void *k);
  uint32_t gated; /* lists that are missing if argument `gate` is 0 */
  int gate;
} aci_step;

/* The step of an op. OOM before anything is written. */
ac_status aci_step_run(ac_frame *f, const aci_step *s, ac_err *e);

/* Shape rule: every list has as many tensors as the first, of the same shapes, all floats. Every
 * single tensor has one element. Lists that are none are left out. */
ac_status aci_step_shape(ac_frame *f, ac_err *e);
/* INVALID unless arguments first .. last are not below zero. */
ac_status aci_step_not_negative(const ac_frame *f, int first, int last, ac_err *e);
/* INVALID unless arguments at and at + 1 lie in [0, 1). */
ac_status aci_step_betas(const ac_frame *f, int at, ac_err *e);

#define ACI_STEP_FACTORS static
#define ACI_STEP_KERNEL(op, NAME, PREPARE) ACI_STEP_KERNEL_OPT(op, NAME, PREPARE, 0, 0, 0)
#define ACI_STEP_KERNEL_OPT(op, NAME, PREPARE, OPTIONAL, GATED, GATE)                          \
  _Static_assert(sizeof(factors) <= ACI_STEP_BYTES && ((GATED) & ~(OPTIONAL)) == 0,            \
                 "factors of " #op);                                                           \
  static void op##prepare(aci_step_args *a, void *k) { PREPARE(a, k); }                        \
  ac_status aci_cpu_##op(ac_frame *f, ac_err *e);                                              \
  ac_status aci_cpu_##op(ac_frame *f, ac_err *e) {                                             \
    static const aci_step step = {NAME##_rows_f32, NAME##_rows_f64, op##prepare, GATED, GATE}; \
    return aci_step_run(f, &step, e);                                                          \
  }

#define ACI_STEP_ROWS(NAME, sfx, ...)                                                     \
  static void NAME##_rows_##sfx(int64_t n, void *const *r, const void *k, double scale) { \
    NAME##_##sfx(n, __VA_ARGS__, k, scale);                                               \
  }
#define ACI_STEP_FN1(NAME, T, sfx, F, a)                                              \
  AC_ISA_FN(NAME##_##sfx, (int64_t n, T *restrict a, const factors *k, double scale), \
            (n, a, k, scale)) {                                                       \
    (void)scale;                                                                      \
    F(T)                                                                              \
  }                                                                                   \
  ACI_STEP_ROWS(NAME, sfx, r[0])
#define ACI_STEP_FN2(NAME, T, sfx, F, a, b)                                            \
  AC_ISA_FN(NAME##_##sfx,                                                              \
            (int64_t n, T *restrict a, T *restrict b, const factors *k, double scale), \
            (n, a, b, k, scale)) {                                                     \
    (void)scale;                                                                       \
    F(T)                                                                               \
  }                                                                                    \
  ACI_STEP_ROWS(NAME, sfx, r[0], r[1])
#define ACI_STEP_FN3(NAME, T, sfx, F, a, b, c)                                                  \
  AC_ISA_FN(                                                                                    \
      NAME##_##sfx,                                                                             \
      (int64_t n, T *restrict a, T *restrict b, T *restrict c, const factors *k, double scale), \
      (n, a, b, c, k, scale)) {                                                                 \
    (void)scale;                                                                                \
    F(T)                                                                                        \
  }                                                                                             \
  ACI_STEP_ROWS(NAME, sfx, r[0], r[1], r[2])
#define ACI_STEP_FN4(NAME, T, sfx, F, a, b, c, d)                                   \
  AC_ISA_FN(NAME##_##sfx,                                                           \
            (int64_t n, T *restrict a, T *restrict b, T *restrict c, T *restrict d, \
             const factors *k, double scale),                                       \
            (n, a, b, c, d, k, scale)) {                                            \
    (void)scale;                                                                    \
    F(T)                                                                            \
  }                                                                                 \
  ACI_STEP_ROWS(NAME, sfx, r[0], r[1], r[2], r[3])
#define ACI_STEP_FN5(NAME, T, sfx, F, a, b, c, d, x)                                               \
  AC_ISA_FN(NAME##_##sfx,                                                                          \
            (int64_t n, T *restrict a, T *restrict b, T *restrict c, T *restrict d, T *restrict x, \
             const factors *k, double scale),                                                      \
            (n, a, b, c, d, x, k, scale)) {                                                        \
    (void)scale;                                                                                   \
    F(T)                                                                                           \
  }                                                                                                \
  ACI_STEP_ROWS(NAME, sfx, r[0], r[1], r[2], r[3], r[4])

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
