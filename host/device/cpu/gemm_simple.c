/* Integer matrix products, which are rare and need no tiles. Called by gemm.c. */
#include "base/vmath.h"
#include "device/cpu/gemm_impl.h"

double aci_gemm_load(aci_gemm_type t, const void *p, int64_t j) {
  switch (t) {
    case ACI_GEMM_F64: return ((const double *)p)[j];
    case ACI_GEMM_F32: return (double)((const float *)p)[j];
    case ACI_GEMM_BF16: return (double)aci_bf16_to_f32(((const uint16_t *)p)[j]);
    case ACI_GEMM_F16: return (double)aci_f16_to_f32(((const uint16_t *)p)[j]);
    case ACI_GEMM_I64: return (double)((const int64_t *)p)[j];
    case ACI_GEMM_I32: return (double)((const int32_t *)p)[j];
    case ACI_GEMM_I16: return (double)((const int16_t *)p)[j];
    case ACI_GEMM_I8: return (double)((const int8_t *)p)[j];
    case ACI_GEMM_U8: return (double)((const uint8_t *)p)[j];
  }
  return 0;
}

/* ---- integers: unsigned arithmetic wraps as two's complement does ---- */
static uint64_t load_int(aci_gemm_type t, const void *p, int64_t j) {
  switch (t) {
    case ACI_GEMM_I64: return (uint64_t)((const int64_t *)p)[j];
    case ACI_GEMM_I32: return (uint64_t)(int64_t)((const int32_t *)p)[j];
    case ACI_GEMM_I16: return (uint64_t)(int64_t)((const int16_t *)p)[j];
    case ACI_GEMM_I8: return (uint64_t)(int64_t)((const int8_t *)p)[j];
    case ACI_GEMM_U8: return ((const uint8_t *)p)[j];
    default: return (uint64_t)(int64_t)aci_gemm_load(t, p, j);
  }
}

static void store_int(aci_gemm_type t, void *p, int64_t j, uint64_t v) {
  switch (t) {
    case ACI_GEMM_I64: ((uint64_t *)p)[j] = v; break;
    case ACI_GEMM_I32: ((uint32_t *)p)[j] = (uint32_t)v; break;
    case ACI_GEMM_I16: ((uint16_t *)p)[j] = (uint16_t)v; break;
    case ACI_GEMM_I8:
    case ACI_GEMM_U8: ((uint8_t *)p)[j] = (uint8_t)v; break;
    default: break;
  }
}

enum { INT_COLS = 128 };

static void integer_rows(void *arg, int64_t begin, int64_t end) {
  const aci_gemm *g = arg;
  uint64_t alpha = (uint64_t)(int64_t)g->alpha, beta = (uint64_t)(int64_t)g->beta;
  for (int64_t r = begin; r < end; r++) {
    int64_t b = r / g->m, i = r % g->m;
    for (int64_t j0 = 0; j0 < g->n; j0 += INT_COLS) {
      int64_t nj = g->n - j0 < INT_COLS ? g->n - j0 : INT_COLS;
      uint64_t acc[INT_COLS] = {0};
      for (int64_t k = 0; k < g->k; k++) {
        uint64_t a = load_int(g->in_type, g->a[b], i * g->a_rs + k * g->a_cs);
        int64_t at = k * g->b_rs + j0 * g->b_cs;
        for (int64_t j = 0; j < nj; j++)
          acc[j] += a * load_int(g->in_type, g->b[b], at + j * g->b_cs);
      }
      for (int64_t j = 0; j < nj; j++) {
        int64_t at = i * g->c_rs + j0 + j;
        uint64_t v = alpha * acc[j];
        if (beta != 0) v += beta * load_int(g->out_type, g->c[b], at);
        if (g->bias != NULL) v += load_int(g->bias_type, g->bias, j0 + j);
        store_int(g->out_type, g->c[b], at, v);
      }
    }
  }
}

void aci_gemm_integer(ac_team *team, const aci_gemm *g) {
  int64_t work = g->n * (g->k + 1), grain = work >= 1 << 16 ? 1 : (1 << 16) / work;
  ac_parallel_for(team, g->n_batch * g->m, grain, integer_rows, (void *)g);
}
