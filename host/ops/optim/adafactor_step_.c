/* adafactor_step_: one Adafactor update of a list of parameters (Shazeer and Stern, with PyTorch's arithmetic).
   The second moment of a parameter of two dims or more is kept as its means over rows and over columns.
   step += 1,  w = step^beta2_decay,  g = -g when maximizing
   alpha = max(eps2, rms(p)) min(lr, 1 / sqrt(step)), or lr without scale_parameter,  p *= 1 - lr weight_decay
   two dims or more: R += w (mean of g^2 along the last dim - R),  C += w (mean of g^2 along the one before - C)
   V = R C / max(mean of R, eps1),  fewer: v += w (g^2 - v), V = v
   u = g / sqrt(max(V, eps1^2)),  p -= alpha / max(1, rms(u) / d) u
   params, grads: lists of equal length and shapes, any floats. row_vars (R, the last extent 1) and col_vars (C,
   the extent before it 1): one for each parameter of two dims or more, in their order. variances (v): one for each
   other. lr and step: one element each. eps1 none: the machine epsilon of the parameter's dtype. Sums in f64, the
   rest in f32, in f64 if the parameter or its gradient is f64.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.adafactor_step_({p}, {p * 1}, {}, {}, {p * 0}, p * 0.1, p * 0) return p --> { 0.9 } */
#include <float.h>
#include <stdlib.h>

#include "ops/core/ctx_impl.h"
#include "ops/optim/adafactor.h"
#include "ops/optim/step.h"

enum {
  PARAMS,
  GRADS,
  ROWS,
  COLS,
  VARS,
  LR,
  STEP,
  BETA2_DECAY,
  EPS1,
  EPS2,
  D,
  DECAY,
  MAXIMIZE,
  SCALED
};

static void tiles(void *arg, int64_t begin, int64_t end) {
  const aci_factor_job *j = arg;
  int lo = 0, hi = j->n;
  while (hi - lo > 1) {
    int mid = (lo + hi) / 2;
    if (j->first[mid] <= begin) lo = mid;
    else hi = mid;
  }
  for (int64_t t = begin; t < end; t++) {
    while (t >= j->first[lo + 1]) lo++;
    j->tile(j, &j->parts[lo], t - j->first[lo]);
  }
}

/* ---- per parameter ---- */
static double mean_squares(const double *sums, int64_t n, int64_t numel) {
  double s = 0;
  for (int64_t i = 0; i < n; i++) s += sums[i];
  return s / (double)numel;
}

/* Running means of rows and columns from the sums of the tiles. */
static void factor(const aci_factor_job *j, aci_factor_part *a) {
  const int64_t n_rows = a->batch * a->rows, n_cols = a->batch * a->cols;
  aci_elems_load(a->r, ACI_C_F64, 0, n_rows, a->row);
  aci_elems_load(a->c, ACI_C_F64, 0, n_cols, a->col);
  for (int64_t i = 0; i < n_rows; i++)
    a->row[i] += j->weight *
                 (mean_squares(a->row_part + i * a->col_tiles, a->col_tiles, a->cols) - a->row[i]);
  for (int64_t b = 0; b < a->batch; b++) {
    double *sum = a->col_part + b * a->row_tiles * a->cols, *col = a->col + b * a->cols;
    for (int64_t t = 1; t < a->row_tiles; t++)
      for (int64_t c = 0; c < a->cols; c++) sum[c] += sum[t * a->cols + c];
    for (int64_t c = 0; c < a->cols; c++) col[c] += j->weight * (sum[c] / (double)a->rows - col[c]);
  }
  aci_elems_store(a->r, ACI_C_F64, 0, n_rows, a->row);
  aci_elems_store(a->c, ACI_C_F64, 0, n_cols, a->col);
  for (int64_t b = 0; b < a->batch; b++) {
    double *row = a->row + b * a->rows, sum = 0;
    for (int64_t r = 0; r < a->rows; r++) sum += row[r];
    double by = m_max(sum / (double)a->rows, a->eps1);
    for (int64_t r = 0; r < a->rows; r++) row[r] /= by;
  }
}

static void settle(void *arg, int64_t begin, int64_t end) {
  const aci_factor_job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    aci_factor_part *a = &j->parts[i];
    if (a->p->numel == 0) continue;
    double rms = sqrt(mean_squares(a->p_part, j->first[i + 1] - j->first[i], a->p->numel));
    a->alpha = j->scaled ? m_max(rms, j->eps2) * j->rho : j->rho;
    if (a->v == NULL) factor(j, a);
  }
}

/* ---- the call ---- */
static bool is_factored(const ac_tensor *p) { return p->ndim > 1; }

/* State `at` of a list must have the shape of p, with the extent `one` positions before the end (0:
 * none) set to 1. */
static ac_status match(const ac_frame *f, int arg, int at, const ac_tensor *p, int one, ac_err *e) {
  const ac_value *list = &f->args[arg];
  int64_t want[AC_MAX_DIMS];
  char a[128], b[128], c[128];
  const char *name = aci_op_sig(f->op)->param[arg].name;
  if (at >= list->n)
    return AC_FAIL(e, INVALID,
                   "%d %s are too few: parameters of two dims or more need row_vars and col_vars, "
                   "others variances",
                   list->n, name);
  const ac_tensor *t = list->tensors[at];
  memcpy(want, p->shape, (size_t)p->ndim * 8);
  if (one > 0) want[p->ndim - one] = 1;
  if (t->ndim != p->ndim || memcmp(t->shape, want, (size_t)p->ndim * 8) != 0)
    return AC_FAIL(e, SHAPE, "%s: tensor %d has shape %s, a parameter of shape %s needs %s", name,
                   at + 1, aci_shape_str(t->ndim, t->shape, a, sizeof a),
                   aci_shape_str(p->ndim, p->shape, b, sizeof b),
                   aci_shape_str(p->ndim, want, c, sizeof c));
  return AC_OK;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  int factored = 0, plain = 0;
  for (int i = PARAMS; i <= VARS; i++) AC_TRY(aci_list_floats(f, i, e));
  AC_TRY(aci_list_match(f, GRADS, e));
  for (int i = 0; i < f->args[PARAMS].n; i++) {
    const ac_tensor *p = f->args[PARAMS].tensors[i];
    if (is_factored(p)) {
      AC_TRY(match(f, ROWS, factored, p, 1, e));
      AC_TRY(match(f, COLS, factored++, p, 2, e));
    } else {
      AC_TRY(match(f, VARS, plain++, p, 0, e));
    }
  }
  if (f->args[ROWS].n != factored || f->args[COLS].n != factored || f->args[VARS].n != plain)
    return AC_FAIL(
        e, INVALID,
        "%d row_vars, %d col_vars and %d variances for %d params of two dims or more and %d others",
        f->args[ROWS].n, f->args[COLS].n, f->args[VARS].n, factored, plain);
  AC_TRY(aci_number_check(f, LR, e));
  AC_TRY(aci_number_check(f, STEP, e));
  if (!(ARG_F(f, BETA2_DECAY) <= 0))
    return AC_FAIL(e, INVALID, "beta2_decay must not be positive, got %g", ARG_F(f, BETA2_DECAY));
  if (!(ARG_F(f, D) >= 1)) return AC_FAIL(e, INVALID, "d must be at least 1, got %g", ARG_F(f, D));
  if (!ARG_NONE(f, EPS1)) AC_TRY(aci_step_not_negative(f, EPS1, EPS1, e));
  AC_TRY(aci_step_not_negative(f, EPS2, EPS2, e));
  return aci_step_not_negative(f, DECAY, DECAY, e);
}

static double epsilon(ac_dtype dt) {
  return dt == AC_F64    ? DBL_EPSILON
         : dt == AC_F32  ? (double)FLT_EPSILON
         : dt == AC_BF16 ? 0x1p-7
                         : 0x1p-10;
}

/* Sizes of a part, its tiles and how many doubles it needs. */
static int64_t plan(const ac_frame *f, aci_factor_part *a, int64_t *n_tiles) {
  const ac_tensor *p = a->p;
  a->wide = p->dtype == AC_F64 || a->g->dtype == AC_F64;
  a->eps1 = ARG_NONE(f, EPS1) ? epsilon((ac_dtype)p->dtype) : ARG_F(f, EPS1);
  a->eps = a->eps1 * a->eps1;
  a->batch = a->rows = 1;
  a->cols = p->numel;
  if (is_factored(p) && p->numel > 0) {
    a->cols = p->shape[p->ndim - 1];
    a->rows = p->shape[p->ndim - 2];
    a->batch = p->numel / (a->rows * a->cols);
  }
  const int64_t each = a->rows * a->cols;
  const bool small = a->v == NULL && each > 0 && each <= ACI_FACTOR_SMALL;
  a->per_tile = small ? ACI_FACTOR_COLS / each : 1;
  a->row_tiles = small ? 1 : (a->rows + ACI_FACTOR_ROWS - 1) / ACI_FACTOR_ROWS;
  a->col_tiles = small ? 1 : (a->cols + ACI_FACTOR_COLS - 1) / ACI_FACTOR_COLS;
  *n_tiles =
      p->numel == 0 ? 0 : (a->batch + a->per_tile - 1) / a->per_tile * a->row_tiles * a->col_tiles;
  int64_t own =
      a->v != NULL ? 0 : a->batch * (a->rows * (a->col_tiles + 1) + a->cols * (a->row_tiles + 1));
  return own + 2 * *n_tiles;
}

static void deal(aci_factor_part *a, int64_t n_tiles, double *at) {
  a->p_part = at;
  a->u_part = at + n_tiles;
  if (a->v != NULL) return;
  a->row_part = a->u_part + n_tiles;
  a->col_part = a->row_part + a->batch * a->rows * a->col_tiles;
  a->row = a->col_part + a->batch * a->row_tiles * a->cols;
  a->col = a->row + a->batch * a->rows;
}

static void pass(const ac_frame *f, aci_factor_job *j,
                 void (*tile)(const aci_factor_job *, aci_factor_part *, int64_t)) {
  j->tile = tile;
  if (j->first[j->n] > 0) ac_parallel_for(f->team, j->first[j->n], 1, tiles, j);
}

static void run(const ac_frame *f, aci_factor_job *j) {
  pass(f, j, aci_factor_measure);
  ac_parallel_for(f->team, j->n, 1, settle, j);
  pass(f, j, aci_factor_length);
  for (int i = 0; i < j->n; i++) {
    aci_factor_part *a = &j->parts[i];
    if (a->p->numel == 0) continue;
    double rms = sqrt(mean_squares(a->u_part, j->first[i + 1] - j->first[i], a->p->numel));
    a->scale = a->alpha / m_max(1.0, rms / j->d);
  }
  pass(f, j, aci_factor_update);
}

/* parts[i] describes parameter i. Its tiles are numbers first[i] .. first[i + 1] - 1 of the passes.
 * One block holds the scratch of all parameters, which plan() sizes and deal() hands out, so that
 * nothing is allocated once parameters change. */
static ac_status cpu(ac_frame *f, ac_err *e) {
  const int n = f->args[PARAMS].n;
  double lr = aci_number_get(ARG_T(f, LR)), step = aci_number_get(ARG_T(f, STEP)) + 1,
         rho = 1 / sqrt(step);
  ac_block *block = NULL;
  ac_status st = AC_OK;
  int64_t total = 0, factored = 0, plain = 0;
  aci_factor_job j = {.n = n,
                      .parts = calloc((size_t)n + 1, sizeof(aci_factor_part)),
                      .first = calloc((size_t)n + 1, sizeof(int64_t)),
                      .weight = pow(step, ARG_F(f, BETA2_DECAY)),
                      .keep = 1 - lr * ARG_F(f, DECAY),
                      .sign = ARG_B(f, MAXIMIZE) ? -1 : 1,
                      .eps2 = ARG_F(f, EPS2),
                      .rho = lr < rho || !ARG_B(f, SCALED) ? lr : rho,
                      .scaled = ARG_B(f, SCALED),
                      .d = ARG_F(f, D)};
  if (j.parts == NULL || j.first == NULL) {
    st = AC_FAIL(e, OOM, "no memory for a list of %d tensors", n);
    goto done;
  }
  for (int i = 0; i < n; i++) {
    aci_factor_part *a = &j.parts[i];
    a->p = f->args[PARAMS].tensors[i];
    a->g = f->args[GRADS].tensors[i];
    if (is_factored(a->p)) {
      a->r = f->args[ROWS].tensors[factored];
      a->c = f->args[COLS].tensors[factored++];
    } else {
      a->v = f->args[VARS].tensors[plain++];
    }
    int64_t n_tiles;
    total += plan(f, a, &n_tiles);
    j.first[i + 1] = j.first[i] + n_tiles;
  }
  AC_GOTO(
      done, st,
      ac_block_alloc(f->device, (size_t)(total + 1) * 8, AC_MEM_ACTIVATION, f->stream, &block, e));
  double *at = ac_block_ptr(block);
  for (int i = 0; i < n; i++) {
    int64_t n_tiles;
    int64_t used = plan(f, &j.parts[i], &n_tiles);
    deal(&j.parts[i], n_tiles, at);
    at += used;
  }
  if (n > 0) run(f, &j);
  aci_number_set(ARG_T(f, STEP), step);
done:
  ac_block_free(block);
  free(j.first);
  free(j.parts);
  return st;
}

AC_OP(
    adafactor_step_,
    .sig =
        "adafactor_step_(params!: tensors, grads: tensors, row_vars!: tensors, col_vars!: tensors, "
        "variances!: tensors, lr: tensor, step!: tensor, beta2_decay: float = -0.8, eps1: float?, "
        "eps2: float = 0.001, d: float = 1, weight_decay: float = 0, maximize: bool = false, "
        "scale_parameter: bool = true) -> ()",
    .shape = shape, .cpu = cpu, .nondiff = true);
