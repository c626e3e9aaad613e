/* Convolutions and their transposes as products of walks with weights. Called by host/ops/conv. */
#include "device/cpu/kernels/conv.h"

#include <string.h>

#include "device/cpu/kernels/conv_impl.h"

static ac_status run(ac_team *team, aci_conv_product *p, ac_err *e) {
  return p->rows <= ACI_CONV_DIRECT ? aci_conv_run_direct(team, p, e)
                                    : aci_conv_run_blocked(team, p, e);
}

ac_status aci_conv_forward(ac_team *team, const aci_conv *c, const void *x, const void *w,
                           const void *bias, void *y, ac_err *e) {
  const int64_t taps = aci_conv_size(c->k);
  if (aci_conv_wants_upcast(c)) return aci_conv_run_upcast(team, c, false, x, w, bias, y, e);
  if (aci_conv_wants_winograd(c)) return aci_conv_run_winograd(team, c, false, x, w, bias, y, e);
  if (aci_conv_onednn_forward(team, c, x, w, bias, y)) return AC_OK;
  aci_conv_product p = {.w = {.type = c->type, .n = c->n, .channels = c->groups * c->ci, .src = x},
                        .groups = c->groups,
                        .chans = c->ci,
                        .rows = c->co,
                        .weight = w,
                        .bias = bias,
                        .w_group = c->co * c->ci * taps,
                        .w_row = c->ci * taps,
                        .w_chan = taps,
                        .k = {c->k[0], c->k[1], c->k[2]},
                        .dst = y};
  for (int d = 0; d < ACI_CONV_DIMS; d++)
    p.w.a[d] = (aci_conv_axis){.src = c->in[d],
                               .q = c->out[d],
                               .taps = c->k[d],
                               .step = c->stride[d],
                               .off = -c->pad[d],
                               .doff = c->dil[d],
                               .dtap = 1,
                               .dst = c->out[d],
                               .by = 1};
  return run(team, &p, e);
}

static int64_t gcd(int64_t a, int64_t b) {
  while (b != 0) {
    int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

/* Positions r, r + stride, ... of x: the taps k with (r + pad - k dil) divisible by stride, and the
 * positions of y that they read. */
static aci_conv_axis residue(const aci_conv *c, int d, int64_t r) {
  const int64_t s = c->stride[d], every = s / gcd(s, c->dil[d]);
  aci_conv_axis a = {.src = c->out[d],
                     .q = aci_conv_ceil(c->in[d] - r, s),
                     .step = 1,
                     .dtap = every,
                     .dst = c->in[d],
                     .at = r,
                     .by = s};
  while (a.tap0 < every && a.tap0 < c->k[d] && (r + c->pad[d] - a.tap0 * c->dil[d]) % s != 0)
    a.tap0++;
  if (a.tap0 < every && a.tap0 < c->k[d]) a.taps = (c->k[d] - 1 - a.tap0) / every + 1;
  a.off = (r + c->pad[d] - a.tap0 * c->dil[d]) / s;
  a.doff = -(every * c->dil[d] / s);
  return a;
}

enum { ZERO_PIECE = 1 << 20 };
typedef struct bytes {
  char *p;
  int64_t n;
} bytes;
static void zero_piece(void *arg, int64_t begin, int64_t end) {
  const bytes *b = arg;
  const int64_t at = begin * ZERO_PIECE;
  memset(b->p + at, 0, (size_t)(aci_conv_min(end * ZERO_PIECE, b->n) - at));
}
static void zero(ac_team *team, void *p, int64_t n) {
  bytes b = {p, n};
  if (n > 0) ac_parallel_for(team, aci_conv_ceil(n, ZERO_PIECE), 1, zero_piece, &b);
}

ac_status aci_conv_backward_input(ac_team *team, const aci_conv *c, const void *dy, const void *w,
                                  const void *bias, void *dx, ac_err *e) {
  const int64_t taps = aci_conv_size(c->k);
  int64_t n[ACI_CONV_DIMS]; /* residues */
  bool gaps = false;        /* positions that no window reads */
  if (aci_conv_wants_upcast(c)) return aci_conv_run_upcast(team, c, true, dy, w, bias, dx, e);
  if (aci_conv_wants_winograd(c)) return aci_conv_run_winograd(team, c, true, dy, w, bias, dx, e);
  if (bias == NULL && aci_conv_onednn_input(team, c, dy, w, dx)) return AC_OK;
  if (aci_conv_wants_fold(c)) return aci_conv_run_fold(team, c, dy, w, bias, dx, e);
  for (int d = 0; d < ACI_CONV_DIMS; d++) {
    n[d] = aci_conv_min(c->stride[d], c->in[d]);
    for (int64_t r = 0; r < n[d]; r++) gaps = gaps || residue(c, d, r).taps == 0;
  }
  gaps = gaps && bias == NULL;
  if (gaps)
    zero(team, dx, c->n * c->groups * c->ci * aci_conv_size(c->in) * aci_gemm_type_bytes(c->type));
  for (int64_t i = 0; i < aci_conv_size(n); i++) {
    aci_conv_product p = {
        .w = {.type = c->type, .n = c->n, .channels = c->groups * c->co, .src = dy},
        .groups = c->groups,
        .chans = c->co,
        .rows = c->ci,
        .weight = w,
        .bias = bias,
        .w_group = c->co * c->ci * taps,
        .w_row = taps,
        .w_chan = c->ci * taps,
        .k = {c->k[0], c->k[1], c->k[2]},
        .dst = dx};
    p.w.a[0] = residue(c, 0, i / (n[1] * n[2]));
    p.w.a[1] = residue(c, 1, i / n[2] % n[1]);
    p.w.a[2] = residue(c, 2, i % n[2]);
    if (gaps && p.w.a[0].taps * p.w.a[1].taps * p.w.a[2].taps == 0) continue;
    AC_TRY(run(team, &p, e));
  }
  return AC_OK;
}
