/* Products of few rows with a large matrix, a layer's of a small batch or a micro-batch: C^T = B^T
 * A^T instead. Called by gemm.c.
 *
 * B^T is read in place, as the micro-kernel's left side: by its rows if the values of k are
 * adjacent (a layer's forward with its weight transposed), otherwise across them. Only the few rows
 * of A are packed, as panels of the right side. Nothing of the large matrix is copied, which a
 * product of so few rows would hardly pay for. A tile of C^T is turned while it is in L1. Products
 * commute and the chains over k are the same. So are the bits, unless blocks of k are added to
 * existing values of C. */
#include "device/cpu/gemm_impl.h"

enum {
  FEW_PANELS = 24,
  LEAST_FLOPS = 1 << 19,
  LEAST_K = 256,
  MOST_PANELS = 4, /* of the right side */
  /* the longest k of rows that are read across: every tile comes back to all of them */
  ACROSS_K = 4096,
  LANES = 16 /* a turned tile has rows of whole vectors */
};

/* Fewer rows leave most of a panel empty. A short k or little work does not pay for the turning. */
bool aci_gemm_skinny_fits(const aci_gemm *g, const aci_gemm_kernel *kn) {
  if (g->round_b || g->n_batch != 1 || g->m > MOST_PANELS * kn->nr || g->m <= kn->nr / 4 ||
      g->n < 2 * (int64_t)kn->mr || g->k < LEAST_K || g->m * g->n * g->k < LEAST_FLOPS)
    return false;
  if (g->b_rs == 1) return aci_gemm_rows_lie(kn, g->in_type, g->k, g->b_cs);
  return g->b_cs == 1 && g->k <= ACROSS_K && kn->pair == 1 &&
         aci_gemm_type_bytes(g->in_type) == kn->bytes;
}

/* Columns of C^T as they are computed: the last panel may be half as wide. */
static int64_t width_of(const aci_gemm_skinny *p) {
  const int64_t nr = p->kn->nr, whole = p->g->m / nr * nr, left = p->g->m - whole;
  return whole + (left == 0 ? 0 : left <= nr / 2 ? nr / 2 : nr);
}

size_t aci_gemm_skinny_bytes(const aci_gemm_skinny *p) {
  return (size_t)(width_of(p) * p->kc * p->kn->bytes) * (size_t)p->n_kb;
}

/* rows of B^T, as they lie or packed (panel), times all panels of the right side. */
static void multiply(const aci_gemm_skinny *p, int rows, int64_t steps, const char *lying,
                     const char *panel, const char *right, char *acc, int64_t width, bool add) {
  const aci_gemm *g = p->g;
  const aci_gemm_kernel *kn = p->kn;
  const int acc_bytes = aci_gemm_type_bytes(p->acc);
  for (int64_t j = 0; j < width; j += kn->nr) {
    const int cols = (int)aci_gemm_min(kn->nr, width - j);
    const char *b = right + j * steps * kn->pair * kn->bytes;
    char *c = acc + j * acc_bytes;
    if (panel != NULL) kn->run(rows, cols, steps, panel, b, c, width, add);
    else if (g->b_rs == 1) kn->run_rows(cols, steps, lying, g->b_cs * kn->bytes, b, c, width, add);
    else kn->run_across(cols, steps, lying, g->b_rs * kn->bytes, b, c, width, add);
  }
}

/* Columns n0.. of C. False: out of memory. */
static bool run_piece(const aci_gemm_skinny *p, int64_t n0, int64_t rows) {
  const aci_gemm *g = p->g;
  const aci_gemm_kernel *kn = p->kn;
  const int64_t width = width_of(p), unit = p->panels * kn->mr, lying = rows - rows % kn->mr,
                left = rows - lying;
  const int64_t ld = (unit + LANES - 1) / LANES * LANES; /* of C^T turned */
  const int64_t acc_bytes = aci_gemm_type_bytes(p->acc);
  const int64_t tile = aci_gemm_lines(ld * width * acc_bytes),
                tail = aci_gemm_packed_bytes(kn, kn->mr, kn->mr, p->kc);
  char *acc = aci_scratch(ACI_SCRATCH_TILE, (size_t)(2 * tile + tail));
  if (acc == NULL) return false;
  char *turned = acc + tile, *panel = turned + tile;
  for (int64_t kb = 0; kb < p->n_kb; kb++) {
    const int64_t k0 = kb * p->kc, kc = aci_gemm_min(p->kc, g->k - k0),
                  steps = (kc + kn->pair - 1) / kn->pair;
    const char *right = p->packed + k0 * width * kn->bytes;
    const char *b = aci_gemm_at(g->b[0], g->in_type, n0 * g->b_cs + k0 * g->b_rs);
    for (int64_t i = 0; i < lying; i += kn->mr)
      multiply(p, kn->mr, steps, b + i * g->b_cs * kn->bytes, NULL, right,
               acc + i * width * acc_bytes, width, kb > 0);
    if (left == 0) continue;
    aci_gemm_pack(kn, g->in_type, panel, kn->mr, false, left, kc,
                  aci_gemm_at(b, g->in_type, lying * g->b_cs), g->b_cs, g->b_rs);
    multiply(p, aci_gemm_rows(kn, (int)left), steps, NULL, panel, right,
             acc + lying * width * acc_bytes, width, kb > 0);
  }
  /* C^T is rows x width: turned, m x ld */
  aci_gemm_pack(aci_gemm_kernel_for(p->acc), p->acc, turned, (int)ld, false, rows, g->m, acc, width,
                1);
  aci_gemm_finish(&p->out, (int)g->m, (int)rows, turned, ld,
                  (char *)g->c[0] + n0 * aci_gemm_type_bytes(g->out_type), g->c_rs, n0);
  return true;
}

static void pieces(void *arg, int64_t begin, int64_t end) {
  const aci_gemm_skinny *p = arg;
  const int64_t unit = p->panels * p->kn->mr;
  for (int64_t t = begin; t < end; t++)
    if (!run_piece(p, t * unit, aci_gemm_min(unit, p->g->n - t * unit))) *p->oom = true;
}

void aci_gemm_skinny_run(ac_team *team, aci_gemm_skinny *p, void *packed) {
  const aci_gemm *g = p->g;
  const int64_t width = width_of(p);
  p->packed = packed;
  for (int64_t kb = 0; kb < p->n_kb; kb++) {
    const int64_t k0 = kb * p->kc;
    aci_gemm_pack(p->kn, g->in_type, p->packed + k0 * width * p->kn->bytes, p->kn->nr, true, g->m,
                  aci_gemm_min(p->kc, g->k - k0), aci_gemm_at(g->a[0], g->in_type, k0 * g->a_cs),
                  g->a_rs, g->a_cs);
  }
  const int64_t n_panels = (g->n + p->kn->mr - 1) / p->kn->mr;
  p->panels = n_panels >= 2 * FEW_PANELS ? 4 : n_panels >= FEW_PANELS ? 2 : 1;
  const int64_t flops = 2 * p->panels * p->kn->mr * width * g->k;
  ac_parallel_for(team, (n_panels + p->panels - 1) / p->panels,
                  flops >= LEAST_FLOPS ? 1 : LEAST_FLOPS / flops, pieces, p);
}
