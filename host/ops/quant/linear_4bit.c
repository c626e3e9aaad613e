/* Products with weights of 4 bits for linear_quantized: few rows straight from the packed bytes,
 * each byte read once. Many rows use panels of dequantised weights, each of which all rows read. */
#include "device/cpu/gemm.h"
#include "ops/matmul/product.h"
#include "ops/quant/dot.h"
#include "ops/quant/linear.h"

enum { FEW = 8, PANEL = 1 << 20 /* weights */, PIECE = 4096, ABSMAX = 4096 };

bool aci_linear_4bit_fits(const aci_qlinear *p) {
  return aci_layout_is_4bit(p->l) && p->m <= FEW && aci_dot_4bit_fits(p->k, p->l->blocksize) &&
         p->k / p->l->blocksize <= ABSMAX && p->x->dtype != AC_F64;
}

typedef struct dot_job {
  const aci_qlinear *p;
  const uint8_t *q;
  const float *x, *map;
  const float *absmax; /* of all blocks. NULL: nested */
  int64_t stride;
  aci_dot_round round;
} dot_job;

static void tiles(void *arg, int64_t begin, int64_t end) {
  const dot_job *j = arg;
  const aci_qlinear *p = j->p;
  /* rows */
  const int64_t blocks = p->k / p->l->blocksize,
                at_once = j->absmax != NULL ? ACI_QLINEAR_TILE : 1 + (ABSMAX - blocks) / blocks;
  float absmax[ABSMAX], y[FEW][ACI_QLINEAR_TILE];
  for (int64_t tile = begin; tile < end; tile++) {
    const int64_t first = tile * ACI_QLINEAR_TILE,
                  n = p->n - first < ACI_QLINEAR_TILE ? p->n - first : ACI_QLINEAR_TILE;
    for (int64_t i = 0; i < n; i += at_once) {
      const int64_t now = n - i < at_once ? n - i : at_once;
      const float *most = absmax;
      if (j->absmax != NULL) most = j->absmax + (first + i) * blocks;
      else aci_absmax_load(p->w, p->l, (first + i) * blocks, now * blocks, absmax);
      for (int64_t r = 0; r < p->m; r += ACI_DOT_ROWS) {
        const aci_dot_4bit_args g = {.q = j->q + (first + i) * p->k / 2,
                                     .absmax = most,
                                     .map = j->map,
                                     .x = j->x + r * j->stride,
                                     .stride = j->stride,
                                     .k = p->k,
                                     .blocksize = p->l->blocksize,
                                     .round = j->round,
                                     .m = (int)(p->m - r < ACI_DOT_ROWS ? p->m - r : ACI_DOT_ROWS),
                                     .n = now,
                                     .y = &y[r][i],
                                     .ldy = ACI_QLINEAR_TILE};
        aci_dot_4bit(&g);
      }
    }
    for (int64_t r = 0; r < p->m; r++) {
      for (int64_t i = 0; p->bias != NULL && i < n; i++) y[r][i] += p->bias[first + i];
      aci_elems_store(p->y, ACI_C_F32, r * p->n + first, n, y[r]);
    }
  }
}

ac_status aci_linear_4bit(const aci_qlinear *p, ac_err *e) {
  const aci_part values = aci_layout_part(p->l, AC_PART_VALUES);
  const int64_t stride = aci_dot_4bit_row(p->k);
  ac_block *scratch = NULL;
  int size;
  AC_TRY(ac_block_alloc(p->f->device, (size_t)(p->m * stride + p->k) * sizeof(float),
                        AC_MEM_ACTIVATION, p->f->stream, &scratch, e));
  float *x = scratch->ptr, *row = x + p->m * stride;
  const aci_dot_round round = p->x->dtype == AC_BF16  ? ACI_DOT_BF16
                              : p->x->dtype == AC_F16 ? ACI_DOT_F16
                                                      : ACI_DOT_F32;
  for (int64_t r = 0; r < p->m; r++) {
    aci_elems_load(p->x, ACI_C_F32, r * p->k, p->k, row);
    aci_dot_4bit_arrange(round, row, p->k, x + r * stride);
  }
  const aci_part absmax = aci_layout_part(p->l, AC_PART_ABSMAX);
  dot_job j = {p,
               aci_part_data(p->w, &values),
               x,
               ac_quant_map(p->l->type, &size),
               p->l->nested ? NULL : aci_part_data(p->w, &absmax),
               stride,
               round};
  ac_parallel_for(p->f->team, (p->n + ACI_QLINEAR_TILE - 1) / ACI_QLINEAR_TILE, 1, tiles, &j);
  ac_block_free(scratch);
  return AC_OK;
}

/* ---- panels ---- */
typedef struct panel_job {
  const aci_qlinear *p;
  ac_tensor *panel;
  int64_t first; /* value of the panel's first element */
} panel_job;

static void fill(void *arg, int64_t begin, int64_t end) {
  const panel_job *j = arg;
  _Alignas(64) float row[PIECE];
  for (int64_t i = begin; i < end; i++) {
    const int64_t at = i * PIECE, n = j->panel->numel - at < PIECE ? j->panel->numel - at : PIECE;
    if (j->panel->dtype == AC_BF16 && aci_dequantize_bf16(j->p->w, j->p->l, j->first + at, n,
                                                          (uint16_t *)aci_data(j->panel) + at))
      continue;
    float *to = j->panel->dtype == AC_F32 ? (float *)aci_data(j->panel) + at : row;
    aci_dequantize_load(j->p->w, j->p->l, j->first + at, n, to);
    if (to == row) aci_elems_store(j->panel, ACI_C_F32, at, n, row);
  }
}

ac_status aci_linear_panels(const aci_qlinear *p, ac_err *e) {
  const int64_t rows = p->k == 0 || p->n * p->k <= PANEL ? p->n : 1 + PANEL / p->k;
  const size_t size = aci_dsize((ac_dtype)p->x->dtype);
  ac_tensor *panel = NULL;
  ac_block *copied = NULL;
  const void *x;
  aci_gemm_type type;
  aci_product_type((ac_dtype)p->x->dtype, &type);
  AC_TRY(aci_contiguous_data(p->f, p->x, &x, &copied, e));
  ac_status st =
      ac_tensor_new(p->f->device, (ac_dtype)p->x->dtype, 2, (int64_t[]){rows, p->k}, &panel, e);
  for (int64_t first = 0; st == AC_OK && first < p->n; first += rows) {
    const int64_t n = p->n - first < rows ? p->n - first : rows;
    panel_job j = {p, panel, first * p->k};
    if (n < rows) { /* the last one */
      ac_tensor_release(panel);
      st = ac_tensor_new(p->f->device, (ac_dtype)p->x->dtype, 2, (int64_t[]){n, p->k}, &panel, e);
      if (st != AC_OK) break;
      j.panel = panel;
    }
    ac_parallel_for(p->f->team, (panel->numel + PIECE - 1) / PIECE, 4, fill, &j);
    const void *b = aci_data(panel);
    void *c = (char *)aci_data(p->y) + (size_t)first * size;
    const aci_gemm g = {.in_type = type,
                        .out_type = type,
                        .m = p->m,
                        .n = n,
                        .k = p->k,
                        .a_rs = p->k,
                        .a_cs = 1,
                        .b_rs = 1,
                        .b_cs = p->k,
                        .c_rs = p->n,
                        .n_batch = 1,
                        .a = &x,
                        .b = &b,
                        .c = &c,
                        .bias = p->wide != NULL   ? (const void *)(p->wide + first)
                                : p->bias != NULL ? (const void *)(p->bias + first)
                                                  : NULL,
                        .bias_type = p->wide != NULL ? ACI_GEMM_F64 : ACI_GEMM_F32,
                        .alpha = 1};
    st = aci_cpu_gemm(p->f->team, &g, e);
  }
  ac_tensor_release(panel);
  ac_block_free(copied);
  return st;
}
