/* Anomaly mode: which call of the forward does a NaN of the backward, or an error in it, belong to?
 * Nodes made while the mode is on remember their line. While it is on during backward, every
 * gradient is checked. */
#include "autograd/anomaly.h"

#include <stdio.h>

#include "accel/ops.h"

uint32_t aci_site(const ac_ctx *c) { return c->sites != NULL ? c->sites->here(c->sites->user) : 0; }

void ac_ctx_set_sites(ac_ctx *c, ac_sites *s) { c->sites = s; }

void ac_ctx_set_anomaly(ac_ctx *c, bool on, bool check_nan) {
  c->anomaly = on;
  c->anomaly_nan = on && check_nan;
  c->record_more = on || c->saved_hooks != NULL;
}

bool ac_ctx_anomaly(const ac_ctx *c, bool *check_nan) {
  if (check_nan != NULL) *check_nan = c->anomaly_nan;
  return c->anomaly;
}

/* By ops, so that it works on every device. Nothing of it is recorded. */
static ac_status has_nan(ac_ctx *c, ac_tensor *t, bool *yes, ac_err *e) {
  *yes = false;
  if (t->numel == 0 || t->device->kind == AC_DEV_META || !ac_dtype_is_float((ac_dtype)t->dtype))
    return AC_OK;
  ac_tensor *nan = NULL, *any = NULL;
  ac_scalar v = {.kind = AC_SCALAR_NONE};
  const bool was = ac_ctx_set_grad_enabled(c, false), check = c->check_nan;
  c->check_nan = false;
  ac_status st = ac_isnan(c, t, &nan, e);
  if (st == AC_OK) st = ac_any(c, nan, NULL, 0, false, &any, e);
  if (st == AC_OK) st = ac_tensor_item(any, 0, &v, e);
  c->check_nan = check;
  ac_ctx_set_grad_enabled(c, was);
  ac_tensor_release(nan);
  ac_tensor_release(any);
  *yes = st == AC_OK && v.i != 0;
  return st;
}

static const char *line_of(const ac_ctx *c, const ac_node *n) {
  return n->site != 0 && c->sites != NULL ? c->sites->text(c->sites->user, n->site) : NULL;
}

static ac_status nan_in(const ac_ctx *c, const ac_node *n, int k, ac_err *e) {
  char a[128];
  const aci_meta *m = &n->meta[k];
  const char *line = line_of(c, n);
  return AC_FAIL(
      e, GRAD,
      "backward of %s gave NaN as gradient of its input %d, shape %s; the forward called it at %s",
      n->name, k + 1, aci_shape_str(m->ndim, m->shape, a, sizeof a),
      line != NULL ? line
                   : "a line that was not recorded: turn anomaly mode on before the forward");
}

ac_status aci_anomaly_after(ac_ctx *c, const ac_node *n, ac_tensor *const *din, ac_status st,
                            ac_err *e) {
  for (int k = 0; k < n->n_edges && st == AC_OK && c->anomaly_nan; k++) {
    bool nan = false;
    if (din[k] == NULL) continue;
    AC_TRY(has_nan(c, din[k], &nan, e));
    if (nan) return nan_in(c, n, k, e);
  }
  const char *line = st != AC_OK && st != AC_CALLBACK && e != NULL ? line_of(c, n) : NULL;
  if (line != NULL) {
    size_t used = strlen(e->msg);
    snprintf(e->msg + used, sizeof e->msg - used, " (backward of %s, called at %s)", n->name, line);
  }
  return st;
}

ac_status aci_anomaly_seed(ac_ctx *c, ac_tensor *g, int output, ac_err *e) {
  bool nan = false;
  AC_TRY(has_nan(c, g, &nan, e));
  return nan ? AC_FAIL(e, GRAD, "the gradient given for output %d has NaN", output + 1) : AC_OK;
}
