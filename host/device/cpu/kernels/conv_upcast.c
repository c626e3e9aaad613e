/* Convolutions of 16-bit floats on CPUs that multiply them as f32: large ones through copies in
 * f32, some images at a time, by the ways of f32, whose results are rounded once. Called by conv.c
 * and conv_weight.c.
 *
 * The plain way widens each value as often as a tap reads it, oneDNN emulates bf16, and neither has
 * Winograd's. Images are cut by shape alone. */
#include "device/cpu/kernels/conv_impl.h"

#include "device/cpu/isa.h"
#include "device/cpu/onednn.h"

enum {
  MIN_CHANNELS = 32,
  COPIES_BYTES = 16 << 20, /* of the images at a time, in f32 */
  IMAGE_BYTES = 64 << 20,  /* of the largest image: the room for copies stays */
  PIECE = 1 << 16,         /* values */
};
static const double MIN_FLOPS = 100e6; /* below, the copies cost more than they gain */

bool aci_conv_wants_upcast(const aci_conv *c) {
  if (c->type != ACI_GEMM_BF16 && c->type != ACI_GEMM_F16) return false;
  if (aci_conv_staged_type(c->type) != ACI_GEMM_F32 || aci_onednn_forced()) return false;
  if (c->type == ACI_GEMM_BF16 && aci_onednn_amx()) return false;
  const double flops = 2.0 * (double)c->n * (double)(c->ci * c->co) * (double)aci_conv_size(c->k) *
                       (double)aci_conv_size(c->out);
  if (4 * (c->ci * aci_conv_size(c->in) + c->co * aci_conv_size(c->out)) > IMAGE_BYTES)
    return false;
  return c->groups == 1 && aci_conv_min(c->ci, c->co) >= MIN_CHANNELS && aci_conv_size(c->k) > 1 &&
         aci_conv_size(c->in) > 0 && flops >= MIN_FLOPS && aci_cpu_isa() != ACI_ISA_BASE;
}

/* ---- copies ---- */
typedef struct cast {
  aci_gemm_type type;
  bool narrow; /* f32 -> type, else type -> f32 */
  const char *from;
  char *to;
  int64_t n;
} cast;

static void cast_piece(void *arg, int64_t begin, int64_t end) {
  const cast *j = arg;
  const aci_gemm_out out = {j->type, 1, 0, NULL};
  if (j->narrow)
    aci_gemm_finish(&out, 1, (int)(end - begin), j->from + begin * 4, 0, j->to + begin * 2, 0, 0);
  else aci_gemm_widen(j->type, (float *)(void *)j->to + begin, j->from + begin * 2, end - begin);
}

static void run_cast(ac_team *team, cast j) { ac_parallel_for(team, j.n, PIECE, cast_piece, &j); }

static void widen(ac_team *team, aci_gemm_type type, const void *from, int64_t first, int64_t n,
                  float *to) {
  run_cast(team,
           (cast){.type = type, .from = (const char *)from + first * 2, .to = (char *)to, .n = n});
}

static void narrow(ac_team *team, aci_gemm_type type, const float *from, void *to, int64_t first,
                   int64_t n) {
  run_cast(team, (cast){.type = type,
                        .narrow = true,
                        .from = (const char *)from,
                        .to = (char *)to + first * 2,
                        .n = n});
}

/* ---- the three directions ---- */
typedef struct copies {
  aci_conv f32;        /* of some images */
  int64_t x, y, count; /* values of an image of either side. Weights */
  float *one, *other, *weights, *bias;
} copies;

/* sets: of weights. n_bias: values of the bias, or 0. */
static ac_status make_room(const aci_conv *c, int64_t sets, int64_t n_bias, copies *k, ac_err *e) {
  *k = (copies){.f32 = *c,
                .x = c->ci * aci_conv_size(c->in),
                .y = c->co * aci_conv_size(c->out),
                .count = c->ci * c->co * aci_conv_size(c->k)};
  k->f32.type = ACI_GEMM_F32;
  const int64_t fit = COPIES_BYTES / (4 * (k->x + k->y)),
                n = aci_conv_min(aci_conv_max(fit, 1), c->n);
  k->f32.n = aci_conv_ceil(c->n, aci_conv_ceil(c->n, n));
  const int64_t values = k->f32.n * (k->x + k->y) + sets * k->count + n_bias;
  k->one = aci_scratch(ACI_SCRATCH_WIDENED, (size_t)values * sizeof(float));
  if (k->one == NULL)
    return AC_FAIL(e, OOM, "out of memory for copies of %lld values in f32", (long long)values);
  k->other = k->one + k->f32.n * k->x;
  k->weights = k->other + k->f32.n * k->y;
  k->bias = n_bias > 0 ? k->weights + sets * k->count : NULL;
  return AC_OK;
}

ac_status aci_conv_run_upcast(ac_team *team, const aci_conv *c, bool backward, const void *src,
                              const void *weight, const void *bias, void *dst, ac_err *e) {
  copies k;
  const int64_t n_bias = bias == NULL ? 0 : backward ? c->ci : c->co;
  AC_TRY(make_room(c, 1, n_bias, &k, e));
  widen(team, c->type, weight, 0, k.count, k.weights);
  if (n_bias > 0) widen(team, c->type, bias, 0, n_bias, k.bias);
  const int64_t from = backward ? k.y : k.x, to = backward ? k.x : k.y, most = k.f32.n;
  float *source = backward ? k.other : k.one, *result = backward ? k.one : k.other;
  for (int64_t i = 0; i < c->n; i += most) {
    k.f32.n = aci_conv_min(most, c->n - i);
    widen(team, c->type, src, i * from, k.f32.n * from, source);
    AC_TRY(backward ? aci_conv_backward_input(team, &k.f32, source, k.weights, k.bias, result, e)
                    : aci_conv_forward(team, &k.f32, source, k.weights, k.bias, result, e));
    narrow(team, c->type, result, dst, i * to, k.f32.n * to);
  }
  return AC_OK;
}

ac_status aci_conv_upcast_weight(ac_team *team, const aci_conv *c, const void *dy, const void *x,
                                 void *dw, ac_err *e) {
  copies k;
  AC_TRY(make_room(c, 2, 0, &k, e));
  const int64_t most = k.f32.n;
  for (int64_t i = 0; i < c->n; i += most) {
    k.f32.n = aci_conv_min(most, c->n - i);
    widen(team, c->type, x, i * k.x, k.f32.n * k.x, k.one);
    widen(team, c->type, dy, i * k.y, k.f32.n * k.y, k.other);
    AC_TRY(aci_conv_backward_weight(team, &k.f32, k.other, k.one,
                                    i == 0 ? k.weights : k.weights + k.count, e));
    if (i > 0) aci_conv_sum_parts(team, k.weights, 2, k.count, ACI_GEMM_F32, k.weights);
  }
  narrow(team, c->type, k.weights, dw, 0, k.count);
  return AC_OK;
}
