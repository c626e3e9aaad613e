/* The kernels of cross_entropy, and helpers shared with linear_cross_entropy. Arguments of a
 * forward frame: input, target, weight, ignore_index, reduction, label_smoothing. A backward frame
 * has dy in front. */
#ifndef ACI_OPS_CROSS_ENTROPY_H
#define ACI_OPS_CROSS_ENTROPY_H
#include "ops/reduce/reduce.h"

/* mask: the dim of classes. Target classes are checked before anything is written. */
ac_status aci_ce_run(ac_frame *f, uint32_t mask, ac_err *e);
ac_status aci_ce_run_backward(ac_frame *f, uint32_t mask, ac_err *e);

/* The classes that rows are to have, and the weights of all classes. */
typedef struct aci_ce_targets {
  const int64_t *id; /* per row. NULL if targets are probabilities */
  int64_t n_rows, ignore;
  aci_ctype ct;
  const void *w; /* of the compute type. NULL: all 1 */
  double sum_w;  /* over the classes */
  double total;  /* of the weights of rows that are not ignored: the divisor of mean */
  ac_block *id_block, *w_block;
} aci_ce_targets;
/* target NULL: only the weights are read. INDEX names the first value that is not a class. Call
 * aci_ce_targets_free, also after a failure. */
ac_status aci_ce_targets_read(ac_frame *f, const ac_tensor *target, int64_t n_classes,
                              int64_t ignore, const ac_tensor *weight, aci_ctype ct,
                              aci_ce_targets *y, ac_err *e);
void aci_ce_targets_free(aci_ce_targets *y);
static inline double aci_ce_weight(const aci_ce_targets *y, int64_t c) {
  return y->w == NULL         ? 1.0
         : y->ct == ACI_C_F32 ? (double)((const float *)y->w)[c]
                              : ((const double *)y->w)[c];
}

/* DTYPE / SHAPE / INVALID unless weight (or NULL) is a float per class and smoothing lies between 0
 * and 1. */
ac_status aci_ce_check_options(const ac_tensor *weight, int64_t n_classes, double smoothing,
                               ac_err *e);

#endif
