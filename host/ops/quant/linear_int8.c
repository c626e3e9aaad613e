/* Products with weights of int8 for linear_quantized, as LLM.int8(): rows of x become int8 as well, the product is exact in integers, and
 * columns of x with outliers are multiplied as they are with the weights' values. */
#include "device/cpu/isa.h"
#include "ops/quant/dot.h"
#include "ops/quant/linear.h"
#include "ops/quant/rows_int8.h"

typedef struct int8_job {
  const aci_qlinear *p;
  const int8_t *w, *q;
  const float *absmax, *stats; /* of rows of w and of x */
  const int64_t *sums;         /* of rows of q */
  const float *outliers;       /* (m, n_outliers) values of x */
  const int32_t *columns;
  int64_t n_outliers, stride;
} int8_job;

static float outlier_part(const int8_job *j, int64_t r, const int8_t *w) {
  const float *x = j->outliers + r * j->n_outliers;
  float sum = 0;
  for (int64_t c = 0; c < j->n_outliers; c++) sum += x[c] * (float)w[j->columns[c]];
  return sum;
}

static void tiles(void *arg, int64_t begin, int64_t end) {
  const int8_job *j = arg;
  const aci_qlinear *p = j->p;
  float y[ACI_QLINEAR_TILE];
  int64_t part[ACI_DOT_ROWS * ACI_QLINEAR_TILE];
  for (int64_t tile = begin; tile < end; tile++) {
    const int64_t first = tile * ACI_QLINEAR_TILE, n = p->n - first < ACI_QLINEAR_TILE ? p->n - first : ACI_QLINEAR_TILE;
    const int8_t *w = j->w + first * p->k;
    for (int64_t r = 0; r < p->m; r += ACI_DOT_ROWS) {
      const int rows = (int)(p->m - r < ACI_DOT_ROWS ? p->m - r : ACI_DOT_ROWS);
      aci_dot_int8(w, n, j->q + r * j->stride, j->stride, j->sums + r, rows, p->k, part);
      for (int s = 0; s < rows; s++) {
        for (int64_t i = 0; i < n; i++) {
          const float scale = j->absmax[first + i] * (1.0f / 127);
          y[i] = (float)part[s * n + i] * (j->stats[r + s] * (1.0f / 127)) * scale;
          if (j->n_outliers > 0) y[i] += outlier_part(j, r + s, w + i * p->k) * scale;
          if (p->bias != NULL) y[i] += p->bias[first + i];
        }
        aci_elems_store(p->y, ACI_C_F32, (r + s) * p->n + first, n, y);
      }
    }
  }
}

AC_ISA_FN(count, (const uint8_t *restrict marks, int64_t n, int64_t *total), (marks, n, total)) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; i++) sum += marks[i];
  *total = sum;
}

/* Pieces short enough for an i32. */
AC_ISA_FN(sum_bytes, (const int8_t *restrict q, int64_t n, int64_t *total), (q, n, total)) {
  *total = 0;
  for (int64_t at = 0; at < n; at += 1 << 20) {
    const int64_t end = n - at < 1 << 20 ? n : at + (1 << 20);
    int32_t sum = 0;
    for (int64_t i = at; i < end; i++) sum += q[i];
    *total += sum;
  }
}

/* x in int8; which columns have outliers; the sums of rows. */
static void quantize_rows(const aci_qlinear *p, float threshold, float *x, int8_t *q, int64_t stride, float *stats, int64_t *sums,
                          uint8_t *outlier, int64_t *n_outliers) {
  if (p->k > 0) memset(outlier, 0, (size_t)p->k);
  for (int64_t r = 0; r < p->m; r++) {
    aci_elems_load(p->x, ACI_C_F32, r * p->k, p->k, x);
    if (p->x->dtype != AC_F16) aci_row_through_f16(x, p->k);
    aci_row_int8(x, p->k, threshold, q + r * stride, &stats[r]);
    if (threshold > 0) aci_row_outliers(x, p->k, threshold, outlier);
  }
  *n_outliers = 0;
  if (threshold > 0) count(outlier, p->k, n_outliers);
  for (int64_t c = 0; *n_outliers > 0 && c < p->k; c++) {
    for (int64_t r = 0; outlier[c] && r < p->m; r++) q[r * stride + c] = 0;
  }
  for (int64_t r = 0; r < p->m; r++) sum_bytes(q + r * stride, p->k, &sums[r]);
}

ac_status aci_linear_int8(const aci_qlinear *p, float threshold, ac_err *e) {
  const aci_part values = aci_layout_part(p->l, AC_PART_VALUES), absmax = aci_layout_part(p->l, AC_PART_ABSMAX);
  const int64_t stride = (p->k + 63) / 64 * 64;
  const size_t m = (size_t)p->m, k = (size_t)p->k;
  ac_block *scratch = NULL, *kept = NULL;
  AC_TRY(ac_block_alloc(p->f->device, m * (8 + 4 + (size_t)stride) + k * 5 + 64, AC_MEM_ACTIVATION, p->f->stream, &scratch, e));
  int64_t *sums = scratch->ptr;
  float *stats = (float *)(sums + m), *x = stats + m;
  int8_t *q = (int8_t *)(x + k);
  uint8_t *outlier = (uint8_t *)(q + m * (size_t)stride);
  int8_job j = {.p = p, .w = aci_part_data(p->w, &values), .q = q, .absmax = aci_part_data(p->w, &absmax), .stats = stats, .sums = sums,
                .stride = stride};
  quantize_rows(p, threshold, x, q, stride, stats, sums, outlier, &j.n_outliers);
  if (j.n_outliers > 0) {
    const size_t n = (size_t)j.n_outliers;
    const ac_status st = ac_block_alloc(p->f->device, n * 4 * (m + 1), AC_MEM_ACTIVATION, p->f->stream, &kept, e);
    if (st != AC_OK) {
      ac_block_free(scratch);
      return st;
    }
    int32_t *columns = kept->ptr;
    float *value = (float *)(columns + n);
    for (int64_t c = 0, at = 0; c < p->k; c++)
      if (outlier[c]) columns[at++] = (int32_t)c;
    for (size_t r = 0; r < m; r++) {
      aci_elems_load(p->x, ACI_C_F32, (int64_t)(r * k), p->k, x);
      for (size_t c = 0; c < n; c++) value[r * n + c] = x[columns[c]];
    }
    j.columns = columns;
    j.outliers = value;
  }
  ac_parallel_for(p->f->team, (p->n + ACI_QLINEAR_TILE - 1) / ACI_QLINEAR_TILE, 1, tiles, &j);
  ac_block_free(kept);
  ac_block_free(scratch);
  return AC_OK;
}
