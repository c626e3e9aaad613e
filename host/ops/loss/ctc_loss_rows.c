/* ctc_loss_rows: minus the logarithm of the probability that each row of log_probs spells its row of
   targets, over all alignments with blanks (Graves et al. 2006). nn.functional.ctc_loss checks the
   arguments and reduces. alpha[n, t, s] is the logarithm of all paths to state s at time t, which
   the gradient needs. Infinite if the target does not fit. ctc_loss_rows_backward: dlog_probs =
   minus dloss times the probability of the class at that time among the alignments.
   log_probs (T, N, C) floats, targets (N, S) i64, input_lengths, target_lengths (N) i64 -> loss
   (N), alpha (N, T, 2 S + 1). Rows with dloss 0 have gradient 0. */
#include "ops/loss/ctc_loss.h"

#include <math.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "ops/core/op.h"
#include "ops/index/index.h"
#include "ops/reduce/slots.h"

enum { LOG_PROBS, TARGETS, INPUT_LENGTHS, TARGET_LENGTHS, BLANK };

static ac_status check(const ac_tensor *const *t, int64_t blank, ac_err *e) {
  const ac_tensor *lp = t[0];
  bool ok = lp->ndim == 3 && t[1]->ndim == 2 && ac_dtype_is_float((ac_dtype)lp->dtype);
  for (int i = 1; ok && i < 4; i++)
    ok = t[i]->dtype == AC_I64 && t[i]->shape[0] == lp->shape[1] && t[i]->ndim == (i == 1 ? 2 : 1);
  ok = ok && blank >= 0 && blank < lp->shape[2];
  return ok ? AC_OK
            : AC_FAIL(e, SHAPE,
                      "log_probs (T, N, C), targets (N, S), lengths (N) and blank do not belong "
                      "together");
}
static ac_dtype computed(const ac_tensor *t) { return t->dtype == AC_F64 ? AC_F64 : AC_F32; }

typedef struct ctc_job {
  aci_ctc c;
  const ac_tensor *log_probs, *targets, *inputs, *lengths, *loss, *dloss;
  ac_tensor *out, *alpha; /* loss or dlog_probs */
  aci_ctype ct;
  int64_t cb, table; /* table: bytes of the classes of states */
  aci_slots slots;
} ctc_job;

/* The target of a row: its number of states, and their classes. -1 if a number is out of range. */
static int64_t states_of(const ctc_job *j, int64_t n, int32_t *cls, uint8_t *skip) {
  const aci_ctc *c = &j->c;
  const int64_t length = *((const int64_t *)aci_data(j->lengths) + n * j->lengths->stride[0]);
  const int64_t *row = (const int64_t *)aci_data(j->targets) + n * j->targets->stride[0];
  if (length < 0 || length > c->width) return -1;
  for (int64_t s = 0; s < 2 * length + 1; s++) {
    const int64_t v = s % 2 == 0 ? c->blank : row[s / 2 * j->targets->stride[1]];
    if (v < 0 || v >= c->classes) return -1;
    cls[s] = (int32_t)v;
    /* a path may pass over the blank between two different classes */
    skip[s] = s % 2 != 0 && s > 1 && cls[s - 2] != cls[s];
  }
  return 2 * length + 1;
}
static int64_t times_of(const ctc_job *j, int64_t n) {
  const int64_t t = *((const int64_t *)aci_data(j->inputs) + n * j->inputs->stride[0]);
  return t < 0 || t > j->c.times ? -1 : t;
}

#define T float
#define SFX f32
#include "ops/loss/ctc_loss_rows.h"

#define T double
#define SFX f64
#include "ops/loss/ctc_loss_rows.h"

static void forward_piece(void *arg, int64_t begin, int64_t end) {
  ctc_job *j = arg;
  const int slot = aci_slots_take(&j->slots);
  char *at = aci_slots_at(&j->slots, slot);
  for (int64_t n = begin; n < end; n++) {
    if (j->ct == ACI_C_F64) forward_f64(j, n, at);
    else forward_f32(j, n, at);
  }
  aci_slots_give(&j->slots, slot);
}
static void backward_piece(void *arg, int64_t begin, int64_t end) {
  ctc_job *j = arg;
  const int slot = aci_slots_take(&j->slots);
  char *at = aci_slots_at(&j->slots, slot);
  for (int64_t n = begin; n < end; n++) {
    if (j->ct == ACI_C_F64) backward_f64(j, n, at);
    else backward_f32(j, n, at);
  }
  aci_slots_give(&j->slots, slot);
}

/* Scratch of a row: classes and skips of the states, three rows of states (with two more before or
 * after), two rows of classes. */
static ac_status run(ac_frame *f, ctc_job *j, ac_range_fn fn, ac_err *e) {
  j->ct = computed(j->log_probs) == AC_F64 ? ACI_C_F64 : ACI_C_F32;
  j->cb = (int64_t)aci_ctype_bytes(j->ct);
  j->table = (j->c.states * 5 + 63) / 64 * 64;
  if (j->c.rows == 0) return AC_OK;
  AC_TRY(aci_slots_open(&j->slots, f, j->c.rows,
                        (size_t)(j->table + (3 * (j->c.states + 2) + 2 * j->c.classes) * j->cb),
                        e));
  ac_parallel_for(f->team, j->c.rows, 1, fn, j);
  aci_slots_close(&j->slots);
  return AC_OK;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *t[4] = {ARG_T(f, 0), ARG_T(f, 1), ARG_T(f, 2), ARG_T(f, 3)};
  AC_TRY(check(t, ARG_I(f, BLANK), e));
  const aci_ctc c = aci_ctc_of(t[0], t[1], ARG_I(f, BLANK));
  AC_TRY(ac_frame_out(f, computed(t[0]), 1, &c.rows, e));
  return ac_frame_out(f, computed(t[0]), 3, (int64_t[]){c.rows, c.times, c.states}, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) {
  ctc_job j = {.c = aci_ctc_of(ARG_T(f, 0), ARG_T(f, 1), ARG_I(f, BLANK)),
               .log_probs = ARG_T(f, 0),
               .targets = ARG_T(f, 1),
               .inputs = ARG_T(f, 2),
               .lengths = ARG_T(f, 3),
               .out = f->out[0],
               .alpha = f->out[1]};
  return run(f, &j, forward_piece, e);
}
static void grad(ac_grad *g) {
  if (g->dout[0] == NULL) return;
  ac_grad_set(g, 0,
              x_ctc_loss_rows_backward(&g->x, g->dout[0], ARG_T(g, 0), ARG_T(g, 1), ARG_T(g, 2),
                                       ARG_T(g, 3), ARG_I(g, BLANK), g->out[0], g->out[1]));
}
static int64_t flops(const ac_frame *f) {
  const aci_ctc c = aci_ctc_of(ARG_T(f, 0), ARG_T(f, 1), 0);
  return 30 * c.rows * c.times * c.states;
}

static ac_status shape_back(ac_frame *f, ac_err *e) {
  const ac_tensor *t[4] = {ARG_T(f, 1), ARG_T(f, 2), ARG_T(f, 3), ARG_T(f, 4)};
  AC_TRY(check(t, ARG_I(f, 5), e));
  return ac_frame_out(f, (ac_dtype)t[0]->dtype, 3, t[0]->shape, e);
}
static ac_status cpu_back(ac_frame *f, ac_err *e) {
  ctc_job j = {.c = aci_ctc_of(ARG_T(f, 1), ARG_T(f, 2), ARG_I(f, 5)),
               .dloss = ARG_T(f, 0),
               .log_probs = ARG_T(f, 1),
               .targets = ARG_T(f, 2),
               .inputs = ARG_T(f, 3),
               .lengths = ARG_T(f, 4),
               .loss = ARG_T(f, 6),
               .alpha = ARG_T(f, 7),
               .out = f->out[0]};
  return run(f, &j, backward_piece, e);
}

AC_OP(
    ctc_loss_rows,
    .sig =
        "ctc_loss_rows(log_probs: tensor, targets: tensor, input_lengths: tensor, target_lengths: tensor, blank: int) -> "
        "(loss: tensor, alpha: tensor)",
    .shape = shape, .cpu = cpu, .grad = grad, .hidden = true, .flops = flops,
    .save = AC_SAVE_IN(0) | AC_SAVE_IN(1) | AC_SAVE_IN(2) | AC_SAVE_IN(3) | AC_SAVE_OUT(0) |
            AC_SAVE_OUT(1),
    .autocast = AC_CAST_F32);
AC_OP(
    ctc_loss_rows_backward,
    .sig =
        "ctc_loss_rows_backward(dloss: tensor, log_probs: tensor, targets: tensor, input_lengths: tensor, "
        "target_lengths: tensor, blank: int, loss: tensor, alpha: tensor) -> tensor",
    .shape = shape_back, .cpu = cpu_back, .hidden = true);
