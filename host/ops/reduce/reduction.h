/* Reductions that carry a few words of state per output: prod, norm, var, logsumexp, any, all,
 * count_nonzero. An op defines how elements join a state and the result of a finished state. This
 * file walks the tensor: rows of contiguous lists, whole rows added to a tile of outputs if the
 * kept dims are the contiguous ones, chunks of long lists in parallel. The cut and the order follow
 * from shape and strides alone. */
#ifndef ACI_OPS_REDUCTION_H
#define ACI_OPS_REDUCTION_H
#include "base/vmath.h"
#include "ops/reduce/lanes.h"
#include "ops/reduce/reduce.h"

enum { ACI_REDUCTION_WORDS = 3, ACI_REDUCTION_TILE = 256, ACI_REDUCTION_ROWS = 16 };

typedef union aci_word {
  double f;
  uint64_t u;
} aci_word;

/* Word k of output i stands at s[k * ACI_REDUCTION_TILE + i]. p: the op's number (an exponent, a
 * correction). */
typedef struct aci_reduction {
  ac_dtype reads; /* type of x below: F32 F64 I64, or BOOL for plain bytes */
  int words;
  bool whole;                          /* results are integers (word u), else floats */
  aci_word start[ACI_REDUCTION_WORDS]; /* of no elements */
  /* Joins lists of n <= ACI_RED_BLOCK elements, step apart, one per output. */
  void (*rows)(aci_word *s, const void *x, int64_t step, int64_t n_rows, int64_t n, double p);
  /* Joins m <= ACI_REDUCTION_ROWS rows with one element for each of n outputs. */
  void (*columns)(aci_word *s, const void *const *x, int64_t m, int64_t n, double p);
  /* s := s, then t. n outputs */
  void (*join)(aci_word *s, const aci_word *t, int64_t n, double p);
  /* y[i] := the result of output i's state. count: elements under each. NULL: word 0 itself. */
  void (*finish)(aci_word *y, const aci_word *s, int64_t n, int64_t count, double p);
} aci_reduction;

/* DTYPE when x (argument 0) is of a dtype for storage only. */
ac_status aci_reduction_check(const ac_frame *f, ac_err *e);
/* out (contiguous) := the reduction of the elements under each output. The second result, if
 * wanted, is word 1. */
ac_status aci_reduction_run(ac_frame *f, const ac_tensor *x, uint32_t mask,
                            const aci_reduction *reduction, double p, ac_tensor *out,
                            ac_tensor *second, ac_err *e);

/* A reduction of one word: rows, columns and join from two macros, STEP(a, v) for an element and
 * JOIN(a, b) for two states, with STEP##_X(a, i) for element i of x. ACC: the type of lanes. W: the
 * member of the word. */
#define ACI_REDUCTION_ONE(name, T, ACC, W, START, STEP, JOIN)                                      \
  AC_ISA_FN(name##_rows,                                                                           \
            (aci_word * s, const void *xv, int64_t step, int64_t n_rows, int64_t n, double p),     \
            (s, xv, step, n_rows, n, p)) {                                                         \
    (void)p;                                                                                       \
    for (int64_t r = 0; r < n_rows; r++) {                                                         \
      const T *restrict x = (const T *)xv + r * step;                                              \
      ACI_LANES_RUN(ACC, v, n, START, STEP##_X, JOIN);                                             \
      s[r].W = JOIN(s[r].W, v);                                                                    \
    }                                                                                              \
  }                                                                                                \
  AC_ISA_FN(name##_columns, (aci_word * s, const void *const *xv, int64_t m, int64_t n, double p), \
            (s, xv, m, n, p)) {                                                                    \
    int64_t r = 0;                                                                                 \
    (void)p;                                                                                       \
    for (; r + 4 <= m; r += 4) {                                                                   \
      const T *a = xv[r], *b = xv[r + 1], *c = xv[r + 2], *d = xv[r + 3];                          \
      _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) s[i].W =                                \
          STEP(STEP(STEP(STEP(s[i].W, a[i]), b[i]), c[i]), d[i]);                                  \
    }                                                                                              \
    for (; r < m; r++) {                                                                           \
      const T *a = xv[r];                                                                          \
      _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) s[i].W = STEP(s[i].W, a[i]);            \
    }                                                                                              \
  }                                                                                                \
  static void name##_join(aci_word *s, const aci_word *t, int64_t n, double p) {                   \
    (void)p;                                                                                       \
    for (int64_t i = 0; i < n; i++) s[i].W = JOIN(s[i].W, t[i].W);                                 \
  }

#endif
