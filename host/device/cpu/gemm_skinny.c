/* Products of few rows with a transposed matrix, the linear layer of a small batch: C^T = B^T A^T instead. Called by
 * gemm.c.
 *
 * The rows of B^T lie in memory as the micro-kernel reads its left side, so that nothing of the large matrix is packed,
 * only the few rows of A, as the one panel of the right side. A tile of C^T is turned while it is in L1. Products
 * commute and the chains over k are the same: so are the bits, unless blocks of k are added to a C that counts. */
#include "device/cpu/gemm_impl.h"

enum { FEW_PANELS = 24, LEAST_FLOPS = 1 << 19, LEAST_K = 256 };

/* Fewer rows leave most of the panel empty; a short k or little work does not pay for the turning. */
bool aci_gemm_skinny_fits(const aci_gemm *g, const aci_gemm_kernel *kn) {
  return !g->round_b && g->n_batch == 1 && g->m <= kn->nr && g->m > kn->nr / 4 && g->n >= 2 * (int64_t)kn->mr && g->k >= LEAST_K &&
         g->b_rs == 1 && g->m * g->n * g->k >= LEAST_FLOPS && aci_gemm_rows_lie(kn, g->in_type, g->k, g->b_cs);
}

static int width_of(const aci_gemm_skinny *p) { return p->g->m <= p->kn->nr / 2 ? p->kn->nr / 2 : p->kn->nr; }

size_t aci_gemm_skinny_bytes(const aci_gemm_skinny *p) {
  return (size_t)aci_gemm_packed_bytes(p->kn, width_of(p), width_of(p), p->kc) * (size_t)p->n_kb;
}

/* C^T is rows x width. */
#define TURN(T)                                                           \
  do {                                                                    \
    const T *from = acc;                                                  \
    T *to = turned;                                                       \
    for (int64_t i = 0; i < rows; i++)                                    \
      for (int64_t j = 0; j < m; j++) to[j * ld + i] = from[i * width + j]; \
  } while (0)
static void turn(aci_gemm_type t, int64_t rows, int64_t width, const void *acc, int64_t m, int64_t ld, void *turned) {
  if (t == ACI_GEMM_F64) TURN(double);
  else TURN(float);
}

/* Columns n0.. of C; false: out of memory. */
static bool run_piece(const aci_gemm_skinny *p, int64_t n0, int64_t rows) {
  const aci_gemm *g = p->g;
  const aci_gemm_kernel *kn = p->kn;
  const int width = width_of(p);
  const int64_t unit = p->panels * kn->mr, lying = rows - rows % kn->mr, left = rows - lying;
  const int64_t acc_bytes = aci_gemm_type_bytes(p->acc), row_bytes = g->b_cs * kn->bytes;
  const int64_t tile = unit * width * acc_bytes, tail = aci_gemm_packed_bytes(kn, kn->mr, kn->mr, p->kc);
  char *acc = aci_scratch(ACI_SCRATCH_TILE, (size_t)(2 * tile + tail));
  if (acc == NULL) return false;
  char *turned = acc + tile, *panel = turned + tile;
  for (int64_t kb = 0; kb < p->n_kb; kb++) {
    const int64_t k0 = kb * p->kc, kc = aci_gemm_min(p->kc, g->k - k0), steps = kc / kn->pair;
    const char *right = p->packed + k0 * width * kn->bytes;
    const char *b = aci_gemm_at(g->b[0], g->in_type, n0 * g->b_cs + k0);
    for (int64_t i = 0; i < lying; i += kn->mr)
      kn->run_rows(width, steps, b + i * row_bytes, row_bytes, right, acc + i * width * acc_bytes, width, kb > 0);
    if (left == 0) continue;
    aci_gemm_pack(kn, g->in_type, panel, kn->mr, false, left, kc, b + lying * row_bytes, g->b_cs, 1);
    kn->run(aci_gemm_rows(kn, (int)left), width, steps, panel, right, acc + lying * width * acc_bytes, width, kb > 0);
  }
  turn(p->acc, rows, width, acc, g->m, unit, turned);
  aci_gemm_finish(&p->out, (int)g->m, (int)rows, turned, unit,
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
  const int width = width_of(p);
  p->packed = packed;
  for (int64_t kb = 0; kb < p->n_kb; kb++) {
    const int64_t k0 = kb * p->kc;
    aci_gemm_pack(p->kn, g->in_type, p->packed + k0 * width * p->kn->bytes, width, false, g->m,
                  aci_gemm_min(p->kc, g->k - k0), aci_gemm_at(g->a[0], g->in_type, k0 * g->a_cs), g->a_rs, g->a_cs);
  }
  const int64_t n_panels = (g->n + p->kn->mr - 1) / p->kn->mr;
  p->panels = n_panels >= 2 * FEW_PANELS ? 4 : n_panels >= FEW_PANELS ? 2 : 1;
  const int64_t flops = 2 * p->panels * p->kn->mr * width * g->k;
  ac_parallel_for(team, (n_panels + p->panels - 1) / p->panels, flops >= LEAST_FLOPS ? 1 : LEAST_FLOPS / flops, pieces, p);
}
