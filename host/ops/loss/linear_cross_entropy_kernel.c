/* The passes of linear_cross_entropy over its tiles. Forward takes from each tile its rows' values:
 * the largest logit m and S = sum of e^(x - m) so far, the logit of the target, with smoothing the
 * sum of the weighted logits. A row's loss is then a sum of r[c] * (lse - x[c]) with lse = m + ln S
 * and r as in cross_entropy_kernel.c. Backward makes each tile again (or takes its kept values),
 * turns it into gradients of logits, and multiplies those by the tile's part of linear_weight,
 * which adds to dinput, and by input, which gives the tile's part of dlinear. */
#include <math.h>

#include "ops/index/index.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/matmul/product.h"

/* ---- forward ---- */
static double row_loss(const aci_lce *j, int64_t i) {
  const int64_t id = j->y.id[i];
  const aci_lce_state *s = &j->state[i];
  if (id == j->y.ignore) return 0;
  const double lse = s->max + log(s->sum), most = (1 - j->smooth) * aci_ce_weight(&j->y, id);
  double l = j->smooth < 1 ? most * (lse - s->at_target) : 0;
  if (j->smooth > 0) l += j->smooth / (double)j->v * (j->y.sum_w * lse - s->weighted);
  return l;
}

static ac_status forward(aci_lce *j, double *loss, double *lse, ac_err *e) {
  for (int64_t i = 0; i < j->n; i++) j->state[i] = (aci_lce_state){.max = -INFINITY};
  for (int64_t j0 = 0; j0 < j->v; j0 += j->cols) {
    aci_lce_to_classes(j, j0);
    for (int64_t i0 = 0; i0 < j->n; i0 += j->rows) {
      aci_lce_to_rows(j, i0);
      AC_TRY(aci_lce_logits(j, e));
      aci_lce_take_rows(j);
    }
  }
  for (int64_t i = 0; i < j->n; i++) {
    lse[i] = j->y.id[i] == j->y.ignore ? 0 : j->state[i].max + log(j->state[i].sum);
    loss[i] = row_loss(j, i);
  }
  return AC_OK;
}

ac_status aci_lce_run(ac_frame *f, ac_err *e) {
  aci_lce j;
  const ac_tensor *out = f->out[0];
  const int reduction = (int)ARG_I(f, ACI_LCE_REDUCTION);
  double *loss = NULL, *lse = aci_data(f->out[1]);
  ac_status st = aci_lce_prepare(&j, f, 0, f->out[2], f->out[3], e);
  if (st == AC_OK && j.n > 0) {
    st = aci_lce_take(&j, (size_t)j.n * sizeof *loss, &loss, e);
    if (st == AC_OK) st = aci_lce_take(&j, (size_t)j.n * sizeof *j.state, &j.state, e);
    if (st == AC_OK) st = forward(&j, loss, lse, e);
  }
  if (st == AC_OK && reduction == AC_LINEAR_CROSS_ENTROPY_REDUCTION_NONE) {
    aci_store(ACI_C_F64, loss, (ac_dtype)out->dtype, aci_data(out), 1, out->numel);
  } else if (st == AC_OK) {
    double v = aci_sum_f64(loss, j.n);
    if (reduction == AC_LINEAR_CROSS_ENTROPY_REDUCTION_MEAN) v /= j.y.total;
    aci_store(ACI_C_F64, &v, (ac_dtype)out->dtype, aci_data(out), 1, 1);
  }
  aci_lce_release(&j);
  return st;
}

/* ---- backward ---- */

/* Every row's numbers from dy and lse. */
static ac_status prepare_rows(aci_lce *j, ac_err *e) {
  const ac_tensor *dy = ARG_T(j->f, ACI_LCE_DY);
  const int reduction = (int)ARG_I(j->f, ACI_LCE_BACK + ACI_LCE_REDUCTION);
  double *g;
  AC_TRY(aci_lce_take(j, (size_t)j->n * sizeof *j->back, &j->back, e));
  AC_TRY(aci_lce_take(j, (size_t)j->n * 2 * sizeof *g, &g, e));
  double *lse = g + j->n;
  aci_elems_load(dy, ACI_C_F64, 0, dy->numel, g);
  aci_elems_load(ARG_T(j->f, ACI_LCE_LSE), ACI_C_F64, 0, j->n, lse);
  const double whole = dy->numel > 0 ? g[0] : 0;
  for (int64_t i = 0; i < j->n; i++) {
    const double dl = reduction == AC_LINEAR_CROSS_ENTROPY_REDUCTION_NONE   ? g[i]
                      : reduction == AC_LINEAR_CROSS_ENTROPY_REDUCTION_MEAN ? whole / j->y.total
                                                                            : whole;
    if (j->y.id[i] == j->y.ignore) continue;
    const double wy = (1 - j->smooth) * aci_ce_weight(&j->y, j->y.id[i]),
                 each = j->smooth / (double)j->v;
    /* lse as the row's type rounds it. The rounding error goes into the factor */
    const double shift = j->acc == AC_F64 ? lse[i] : (double)(float)lse[i];
    j->back[i] = (aci_lce_back){.shift = shift,
                                .scale = dl * (wy + each * j->y.sum_w) *
                                         (shift == lse[i] ? 1 : exp(shift - lse[i])),
                                .each = dl * each,
                                .at_target = dl * wy};
  }
  return AC_OK;
}

/* The sum of the tile's rows, added to dbias. */
static void add_bias(void *arg, int64_t begin, int64_t end) {
  const aci_lce *j = arg;
  enum { PIECE = 64 };
  double buf[PIECE];
  for (int64_t p = begin; p < end; p++) {
    const int64_t c = p * PIECE, n = aci_lce_min(PIECE, j->n_cols - c);
    for (int64_t i = 0; i < j->n_rows; i++) {
      aci_load(ACI_C_F64, buf, j->product, aci_lce_row(j, i) + c * (int64_t)aci_dsize(j->product),
               1, n);
      for (int64_t k = 0; k < n; k++) j->dbias[c + k] += buf[k];
    }
  }
}

/* A gradient under summation: the accumulator of the products, which is a copy if the result has
 * another dtype. */
typedef struct target {
  ac_tensor *out; /* NULL: not wanted */
  char *sum;
  ac_dtype dtype; /* of sum */
} target;

/* direct: one product makes each element, which may be rounded at once. */
static ac_status open_target(aci_lce *j, int result, int64_t rows, bool direct, target *t,
                             ac_err *e) {
  *t = (target){.dtype = j->acc};
  if (!ARG_B(j->f, ACI_LCE_NEEDS + result)) return AC_OK;
  t->out = j->f->out[result];
  const ac_dtype dt = (ac_dtype)t->out->dtype;
  if (dt == j->acc || (direct && dt == j->product)) {
    t->sum = aci_data(t->out);
    t->dtype = dt;
    return AC_OK;
  }
  return aci_lce_take(j, (size_t)(rows * j->k) * aci_dsize(j->acc), &t->sum, e);
}
static bool is_copy(const target *t) { return t->out != NULL && t->sum != aci_data(t->out); }
static void *at_row(void *base, int64_t row, int64_t k, ac_dtype d) {
  return (char *)base + row * k * (int64_t)aci_dsize(d);
}

static ac_status add_dinput(const aci_lce *j, const target *t, int64_t step, ac_err *e) {
  aci_gemm g = {.m = j->n_rows,
                .n = j->k,
                .k = j->n_cols,
                .a_rs = step,
                .a_cs = 1,
                .b_rs = j->w_rs,
                .b_cs = j->w_cs,
                .c_rs = j->k,
                .beta = j->j0 > 0};
  aci_product_type(t->dtype, &g.out_type);
  return aci_lce_multiply(j, &g, j->tile, j->w, at_row(t->sum, j->i0, j->k, t->dtype), e);
}

static ac_status add_dlinear(const aci_lce *j, const target *t, int64_t step, ac_err *e) {
  aci_gemm g = {.m = j->n_cols,
                .n = j->k,
                .k = j->n_rows,
                .a_rs = 1,
                .a_cs = step,
                .b_rs = j->x_rs,
                .b_cs = j->x_cs,
                .c_rs = j->k,
                .beta = j->i0 > 0};
  aci_product_type(t->dtype, &g.out_type);
  return aci_lce_multiply(j, &g, j->tile, aci_lce_x(j),
                          at_row(t->sum, is_copy(t) ? 0 : j->j0, j->k, t->dtype), e);
}

static ac_status backward(aci_lce *j, ac_err *e) {
  /* elements of the product's dtype from row to row of a tile whose rows are of the
   * accumulator's */
  const int64_t step = j->ld * (int64_t)(aci_dsize(j->acc) / aci_dsize(j->product));
  const ac_tensor *db = ARG_B(j->f, ACI_LCE_NEEDS + 2) ? j->f->out[2] : NULL;
  target dx, dw;
  AC_TRY(prepare_rows(j, e));
  AC_TRY(open_target(j, 0, j->n, j->cols >= j->v, &dx, e));
  AC_TRY(open_target(j, 1, j->cols, j->rows >= j->n, &dw, e));
  if (db != NULL) AC_TRY(aci_lce_take(j, (size_t)j->cols * sizeof(double), &j->dbias, e));
  for (int64_t j0 = 0; j0 < j->v; j0 += j->cols) {
    aci_lce_to_classes(j, j0);
    if (db != NULL) memset(j->dbias, 0, (size_t)j->n_cols * sizeof(double));
    for (int64_t i0 = 0; i0 < j->n; i0 += j->rows) {
      aci_lce_to_rows(j, i0);
      if (j->kept == NULL) AC_TRY(aci_lce_logits(j, e));
      aci_lce_turn_rows(j);
      if (dx.out != NULL) AC_TRY(add_dinput(j, &dx, step, e));
      if (dw.out != NULL) AC_TRY(add_dlinear(j, &dw, step, e));
      if (db != NULL) ac_parallel_for(j->f->team, (j->n_cols + 63) / 64, 1, add_bias, j);
    }
    if (is_copy(&dw))
      aci_lce_convert(j, j->n_cols, j->k,
                      at_row(aci_data(dw.out), j0, j->k, (ac_dtype)dw.out->dtype),
                      (ac_dtype)dw.out->dtype, dw.sum, dw.dtype, j->k, 1);
    if (db != NULL)
      aci_store(ACI_C_F64, j->dbias, (ac_dtype)db->dtype,
                at_row(aci_data(db), j0, 1, (ac_dtype)db->dtype), 1, j->n_cols);
  }
  if (is_copy(&dx))
    aci_lce_convert(j, j->n, j->k, aci_data(dx.out), (ac_dtype)dx.out->dtype, dx.sum, dx.dtype,
                    j->k, 1);
  return AC_OK;
}

ac_status aci_lce_run_backward(ac_frame *f, ac_err *e) {
  aci_lce j;
  ac_status st =
      aci_lce_prepare(&j, f, ACI_LCE_BACK, ARG_T(f, ACI_LCE_KEPT), ARG_T(f, ACI_LCE_SHIFTS), e);
  if (st == AC_OK && j.n > 0 && j.v > 0) st = backward(&j, e);
  if (j.n == 0 || j.v == 0) /* no product writes the existing results */
    for (int i = 0; i < 3; i++)
      if (f->out[i]->numel > 0)
        memset(aci_data(f->out[i]), 0,
               (size_t)f->out[i]->numel * aci_dsize((ac_dtype)f->out[i]->dtype));
  aci_lce_release(&j);
  return st;
}
