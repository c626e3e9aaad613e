/* Rows of x in int8 as linear_int8.c makes them, for its own loop of few rows and for
 * linear_int8_many.c. */
#ifndef ACI_OPS_QUANT_LINEAR_INT8_H
#define ACI_OPS_QUANT_LINEAR_INT8_H
#include "device/cpu/isa.h"
#include "ops/quant/linear.h"

typedef struct aci_int8_rows {
  const aci_qlinear *p;
  const int8_t *w, *q;
  const float *absmax, *stats; /* of rows of w and of x */
  const int64_t *sums;         /* of rows of q */
  const float *outliers;       /* (m, n_outliers) values of x */
  const int32_t *columns;      /* the columns that have outliers */
  int64_t n_outliers, stride;  /* bytes between rows of q */
} aci_int8_rows;

/* y = sum / 127^2 absmax_x absmax_w + outliers absmax_w / 127, in one order everywhere, so that the
 * ways agree to the bit. of_x: absmax_x / 127, of_w: absmax_w / 127. */
static inline AC_INLINE float aci_int8_value(float sum, float of_x, float of_w, bool has_outliers,
                                             float outliers) {
  const float y = sum * of_x * of_w;
  return has_outliers ? y + outliers * of_w : y;
}

/* Many rows, by oneDNN's products of int8 with sums in i32. *taken: false, with y untouched, if it
 * does not take these. */
ac_status aci_linear_int8_many(const aci_int8_rows *j, bool *taken, ac_err *e);

#endif
