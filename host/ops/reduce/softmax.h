/* Shared by softmax, log_softmax and cross_entropy: rows of f32 or f64 in cache, three vector
 * passes. */
#ifndef ACI_OPS_SOFTMAX_H
#define ACI_OPS_SOFTMAX_H
#include "ops/reduce/reduce.h"

ac_status aci_softmax_shape(ac_frame *f, ac_err *e);
ac_status aci_softmax_shape_backward(ac_frame *f, ac_err *e);
ac_status aci_softmax_run(ac_frame *f, bool logs, ac_err *e);
ac_status aci_softmax_run_backward(ac_frame *f, bool logs, ac_err *e);

/* Largest of n >= 1 values. If some are NaN, any of them or NaN: their exponentials are NaN
 * then. */
float aci_row_max_f32(const float *x, int64_t n);
double aci_row_max_f64(const double *x, int64_t n);
/* y[i] = e^(x[i] - m). Returns the sum. y may be x. */
double aci_row_exp_f32(const float *x, float m, int64_t n, float *y);
double aci_row_exp_f64(const double *x, double m, int64_t n, double *y);

#endif
