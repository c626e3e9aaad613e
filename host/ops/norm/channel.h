/* Shared by batch_norm and group_norm: x is (n, c, l), l elements per sample and channel,
 * normalised by statistics that belong to sets of runs of l elements.
 *
 *   batch: one set per channel, its runs are the samples' runs          (set = channel, run =
 *   sample) group: one set per sample and group of channels, which lie one after another (run =
 *   channel of the group)
 *
 * Statistics are computed in double: blocks of elements give mean and squared deviations, merged
 * pairwise by Chan's formula in an order that follows from the shape. If a set fits into the cache,
 * it is read once from memory: one task computes its statistics and result.
 *
 * channel.c chooses. channel_run.c serves long runs. channel_column.c serves batches of short ones
 * (as of (n, c) inputs), in which a row of all channels is a vector. */
#ifndef ACI_OPS_CHANNEL_H
#define ACI_OPS_CHANNEL_H
#include <math.h>

#include "ops/norm/norm.h"

typedef struct aci_channels {
  bool batch;
  int64_t n, c, l, groups; /* groups: of channels, for the group kind */
  int64_t n_sets, n_runs;  /* runs of one set */
  int64_t members;         /* elements of one set */
  double eps;
  bool given;         /* mean and var come from the caller and are constants */
  bool want_stats;    /* mean and var are to be worked out */
  double *mean, *var; /* n_sets each: var is the mean square of the deviations */
  aci_ctype ct;
  ac_dtype dt;        /* of x, dy, y and dx */
  const char *x, *dy; /* contiguous. dy NULL: forward */
  char *y;            /* y or dx, contiguous */
  const void *w, *b;  /* c values of ct each */
  double *dw, *db;    /* c sums each */
} aci_channels;

/* Reads extents: x (n, c, ...), groups 0 for the batch kind. */
void aci_channels_extents(aci_channels *g, const ac_tensor *x, int64_t groups);
/* DTYPE unless x is floating point. SHAPE unless it is (n, c, ...). */
ac_status aci_channels_check(const ac_tensor *x, ac_err *e);
/* SHAPE or DTYPE unless argument `param` is missing or holds one value per channel: of x's dtype or
 * f32, or (any) of any float dtype. */
ac_status aci_channels_param(const ac_frame *f, const ac_tensor *x, int param, bool any, ac_err *e);

/* y := (x - mean) * rstd * weight + bias. mean and var, of n_sets values each, are filled in, or
 * read if `given`. */
ac_status aci_channels_forward(ac_frame *f, aci_channels *g, const ac_tensor *x,
                               const ac_value *weight, const ac_value *bias, double *mean,
                               double *var, ac_err *e);
/* Outputs dx, dweight and dbias. param: the weight, whose dtype the two have, or that of the
 * computation. */
ac_status aci_channels_backward_shape(ac_frame *f, const ac_tensor *dy, const ac_tensor *x,
                                      int param, ac_err *e);
/* Fills them: the latter are the sums of dy * h and of dy per channel. mean and var NULL: worked
 * out again. */
ac_status aci_channels_backward(ac_frame *f, aci_channels *g, const ac_tensor *dy,
                                const ac_tensor *x, const ac_value *weight, const double *mean,
                                const double *var, ac_err *e);

/* y in terms of plain ops, for derivatives of any order: x seen as n_dims dims of which `mask`
 * share a mean and a deviation. weight and bias are NULL or of shape (c), dim 1 of x. Computed in
 * f32 or f64. The result has x's dtype. */
ac_tensor *aci_channels_plain(ac_expr *e, ac_tensor *x, const int64_t *shape, int n_dims,
                              uint32_t mask, const ac_value *weight, const ac_value *bias,
                              double eps);

/* ---- between the files ---- */
ac_status aci_channel_run(ac_frame *f, aci_channels *g, ac_err *e);
ac_status aci_channel_column(ac_frame *f, aci_channels *g, ac_err *e);

/* count elements with mean and squared deviations m2, joined by others. */
typedef struct aci_moments {
  double count, mean, m2;
} aci_moments;
static inline void aci_moments_join(aci_moments *a, double count, double mean, double m2) {
  double all = a->count + count, d = mean - a->mean;
  if (count == 0) return;
  a->mean += d * (count / all);
  a->m2 += m2 + d * d * (a->count * (count / all));
  a->count = all;
}

/* The coefficients for a set's elements. Forward: y = ((x - mean) - rest) * rstd * w + b. Backward:
 * dx = dy * rstd * w - ((x - mean) - rest) * q - r. */
typedef struct aci_channel_coef {
  double mean, rest, rstd, q, r; /* mean: rounded to the compute type, rest: the rounding error */
} aci_channel_coef;
static inline aci_channel_coef aci_channel_coef_of(const aci_channels *g, int64_t set) {
  aci_channel_coef k = {.rstd = 1 / sqrt(g->var[set] + g->eps)};
  k.mean = g->ct == ACI_C_F32 ? (double)(float)g->mean[set] : g->mean[set];
  k.rest = g->mean[set] - k.mean;
  return k;
}
/* c1, c2: sums over the set of dy * w and of dy * w * (x - mean - rest). */
static inline void aci_channel_coef_back(const aci_channels *g, aci_channel_coef *k, double c1,
                                         double c2) {
  if (g->given) return;
  k->r = k->rstd * (c1 / (double)g->members);
  k->q = k->rstd * k->rstd * k->rstd * (c2 / (double)g->members);
}

#endif
