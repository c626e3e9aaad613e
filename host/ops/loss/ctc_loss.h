/* Connectionist temporal classification: arguments of ctc_loss_rows and of its gradient, for the
 * CPU and for device modules. The states of row n are its target with blanks between and around:
 * state s of 2 L + 1 is a blank if s is even, otherwise class s / 2 of the target. */
#ifndef ACI_OPS_CTC_LOSS_H
#define ACI_OPS_CTC_LOSS_H
#include "tensor/tensor_impl.h"

typedef struct aci_ctc {
  int64_t times, rows, classes, width, states, blank; /* width: of targets. states: 2 width + 1 */
} aci_ctc;

/* log_probs (T, N, C), targets (N, S) */
static inline aci_ctc aci_ctc_of(const ac_tensor *log_probs, const ac_tensor *targets,
                                 int64_t blank) {
  aci_ctc c;
  c.times = log_probs->shape[0];
  c.rows = log_probs->shape[1];
  c.classes = log_probs->shape[2];
  c.width = targets->shape[1];
  c.states = 2 * c.width + 1;
  c.blank = blank;
  return c;
}

#endif
