/* grid_sample in plain ops, for second derivatives: every tap is a gather times a product of
 * weights. */
#include "ops/index/grid_sample.h"

typedef struct axis {
  ac_tensor *at[4], *inside[4], *weight[4]; /* (N, 1, positions), at in i64. weight NULL: 1 */
} axis;

static ac_tensor *plus(ac_expr *x, ac_tensor *t, double v) {
  return x_add(x, T(t), F(v), aci_float(1));
}
static ac_tensor *minus(ac_expr *x, ac_tensor *a, ac_tensor *b) {
  return x_sub(x, T(a), T(b), aci_float(1));
}

/* As aci_grid_inside of grid_taps.h. */
static ac_tensor *inside(ac_expr *x, const aci_grid *g, int64_t n, ac_tensor *c) {
  const ac_operand low_end = F(0), high_end = F((double)(n - 1));
  if (g->padding == ACI_GRID_ZEROS) return c;
  if (g->padding == ACI_GRID_REFLECTION) {
    const double low = g->corners ? 0 : -0.5, span = (double)(g->corners ? n - 1 : n);
    if (span == 0) return x_mul(x, T(c), F(0));
    ac_tensor *a = x_abs(x, plus(x, c, -low)), *flips = x_floor(x, x_div(x, T(a), F(span)));
    ac_tensor *extra = minus(x, a, x_mul(x, T(flips), F(span)));
    ac_tensor *even = x_eq(x, T(x_remainder(x, T(flips), F(2))), F(0));
    c = x_where(x, even, T(plus(x, extra, low)), T(plus(x, x_neg(x, extra), span + low)));
  }
  return x_clamp(x, c, &low_end, &high_end);
}

/* ((p[0] d + p[1]) d + p[2]) d + p[3] */
static ac_tensor *cubic(ac_expr *x, ac_tensor *d, const double *p) {
  ac_tensor *y = plus(x, x_mul(x, T(d), F(p[0])), p[1]);
  for (int i = 2; i < 4; i++) y = plus(x, x_mul(x, T(y), T(d)), p[i]);
  return y;
}

static void place(ac_expr *x, int64_t n, ac_tensor *c, axis *t, int k) {
  const ac_operand low = F(0), high = F((double)(n - 1));
  t->inside[k] = x_logical_and(x, T(x_ge(x, T(c), low)), T(x_le(x, T(c), high)));
  t->at[k] = x_cast(x, x_clamp(x, x_nan_to_num(x, c, 0, NULL, NULL), &low, &high), AC_I64);
}

static void axis_of(ac_expr *x, const aci_grid *g, int d, ac_tensor *v, axis *t) {
  static const double near_[4] = {1.25, -2.25, 0, 1}, far_[4] = {-0.75, 3.75, -6, 3};
  const int64_t n = g->in[d];
  ac_tensor *c = plus(x, v, 1);
  c = g->corners ? x_mul(x, T(c), F((double)(n - 1) / 2))
                 : plus(x, x_mul(x, T(c), F((double)n / 2)), -0.5);
  for (int k = 0; k < 4; k++) t->weight[k] = NULL;
  if (g->mode == ACI_GRID_NEAREST) {
    ac_tensor *at = x_round(x, inside(x, g, n, c), 0);
    place(x, n, at, t, 0);
    /* 1, so that the grid has a gradient, which is 0 */
    t->weight[0] = plus(x, x_mul(x, T(x_nan_to_num(x, at, 0, NULL, NULL)), F(0)), 1);
    return;
  }
  if (g->mode == ACI_GRID_BILINEAR) c = inside(x, g, n, c);
  ac_tensor *low = x_floor(x, c), *f = minus(x, c, low);
  for (int k = 0; k < aci_grid_width(g->mode); k++) {
    const double from = g->mode == ACI_GRID_BILINEAR ? k : k - 1;
    ac_tensor *at = plus(x, low, from);
    ac_tensor *distance = x_abs(x, plus(x, f, -from));
    place(x, n, g->mode == ACI_GRID_BILINEAR ? at : inside(x, g, n, at), t, k);
    t->weight[k] = g->mode == ACI_GRID_BILINEAR
                       ? plus(x, x_neg(x, distance), 1)
                       : cubic(x, distance, k == 1 || k == 2 ? near_ : far_);
  }
}

int aci_grid_composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *grid = a[1].tensor, *sum = NULL;
  const ac_frame f = {.ctx = x->ctx, .args = a, .n_args = 5};
  axis ax[ACI_GRID_DIMS] = {0};
  if (x->st != AC_OK) return 1;
  const aci_grid g = aci_grid_of(&f, t->shape, t->ndim, grid->shape, 2);
  const int64_t n = g.images, m = g.positions;
  ac_tensor *flat = x_reshape(x, t, (int64_t[]){n, g.channels, g.plane}, 3);
  for (int d = 0; d < g.space; d++)
    axis_of(x, &g, d, x_reshape(x, x_select(x, grid, -1, d), (int64_t[]){n, 1, m}, 3), &ax[d]);
  const int width = aci_grid_width(g.mode);
  for (int k = 0; k < g.taps; k++) {
    ac_tensor *at = NULL, *in = NULL, *w = NULL;
    int64_t stride = 1;
    for (int d = 0, rest = k; d < g.space; stride *= g.in[d], rest /= width, d++) {
      axis *p = &ax[d];
      const int i = rest % width;
      ac_tensor *step = x_mul(x, T(p->at[i]), ac_operand_int(stride));
      at = d == 0 ? step : x_add(x, T(at), T(step), (ac_scalar){.kind = AC_SCALAR_INT, .i = 1});
      in = d == 0 ? p->inside[i] : x_logical_and(x, T(in), T(p->inside[i]));
      if (p->weight[i] != NULL) w = d == 0 ? p->weight[i] : x_mul(x, T(w), T(p->weight[i]));
    }
    at = x_expand(x, at, (int64_t[]){n, g.channels, m}, 3);
    ac_tensor *v = x_where(x, in, T(x_gather(x, flat, 2, at)), F(0));
    if (w != NULL) v = x_mul(x, T(v), T(w));
    sum = k == 0 ? v : x_add(x, T(sum), T(v), aci_float(1));
  }
  int64_t s[AC_MAX_DIMS];
  memcpy(s, t->shape, 2 * 8);
  memcpy(s + 2, grid->shape + 1, (size_t)g.space * 8);
  out[0] = x_reshape(x, sum, s, t->ndim);
  return 1;
}
