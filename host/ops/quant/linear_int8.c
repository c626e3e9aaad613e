/* Products with weights of int8 for linear_quantized, as LLM.int8(): rows of x become int8 as well,
 * the product is exact in integers, and columns of x with outliers are multiplied as they are with
 * the weights' values. Many rows are multiplied by linear_int8_many.c. */
#include "ops/quant/linear_int8.h"

#include "ops/quant/dot.h"
#include "ops/quant/rows_int8.h"

enum { PIECE_ROWS = 16, MAX_PIECES = 64 /* of rows that become int8 */ };

static float outlier_part(const aci_int8_rows *j, int64_t r, const int8_t *w) {
  const float *x = j->outliers + r * j->n_outliers;
  float sum = 0;
  for (int64_t c = 0; c < j->n_outliers; c++) sum += x[c] * (float)w[j->columns[c]];
  return sum;
}

static void tiles(void *arg, int64_t begin, int64_t end) {
  const aci_int8_rows *j = arg;
  const aci_qlinear *p = j->p;
  float y[ACI_QLINEAR_TILE];
  int64_t part[ACI_DOT_ROWS * ACI_QLINEAR_TILE];
  for (int64_t tile = begin; tile < end; tile++) {
    const int64_t first = tile * ACI_QLINEAR_TILE,
                  n = p->n - first < ACI_QLINEAR_TILE ? p->n - first : ACI_QLINEAR_TILE;
    const int8_t *w = j->w + first * p->k;
    for (int64_t r = 0; r < p->m; r += ACI_DOT_ROWS) {
      const int rows = (int)(p->m - r < ACI_DOT_ROWS ? p->m - r : ACI_DOT_ROWS);
      aci_dot_int8(w, n, j->q + r * j->stride, j->stride, j->sums + r, rows, p->k, part);
      for (int s = 0; s < rows; s++) {
        for (int64_t i = 0; i < n; i++) {
          const float outliers = j->n_outliers > 0 ? outlier_part(j, r + s, w + i * p->k) : 0;
          y[i] = aci_int8_value((float)part[s * n + i], j->stats[r + s] * (1.0f / 127),
                                j->absmax[first + i] * (1.0f / 127), j->n_outliers > 0, outliers);
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

AC_ISA_FN(join, (uint8_t *restrict into, const uint8_t *restrict marks, int64_t n),
          (into, marks, n)) {
  for (int64_t i = 0; i < n; i++) into[i] = (uint8_t)(into[i] | marks[i]);
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

/* ---- x in int8, by pieces of rows ---- */
typedef struct rows_job {
  const aci_qlinear *p;
  float threshold;
  int64_t stride, rows; /* of a piece */
  float *x;             /* a row of values for each piece */
  int8_t *q;
  float *stats;
  int64_t *sums;
  uint8_t *marks; /* a row for each piece: which columns have outliers */
  int64_t n_outliers;
  int32_t *columns;
  float *outliers;
} rows_job;

static void quantize_piece(void *arg, int64_t begin, int64_t end) {
  const rows_job *j = arg;
  const int64_t k = j->p->k;
  for (int64_t piece = begin; piece < end; piece++) {
    float *x = j->x + piece * k;
    uint8_t *marks = j->marks + piece * k;
    const int64_t last = (piece + 1) * j->rows < j->p->m ? (piece + 1) * j->rows : j->p->m;
    if (k > 0) memset(marks, 0, (size_t)k);
    for (int64_t r = piece * j->rows; r < last; r++) {
      aci_elems_load(j->p->x, ACI_C_F32, r * k, k, x);
      if (j->p->x->dtype != AC_F16) aci_row_through_f16(x, k);
      aci_row_int8(x, k, j->threshold, j->q + r * j->stride, &j->stats[r]);
      if (j->threshold > 0) aci_row_outliers(x, k, j->threshold, marks);
    }
  }
}

/* Moves columns with outliers out of the rows and keeps their values, then computes the rows'
 * sums. */
static void part_piece(void *arg, int64_t begin, int64_t end) {
  const rows_job *j = arg;
  const int64_t k = j->p->k, n = j->n_outliers;
  for (int64_t piece = begin; piece < end; piece++) {
    float *x = j->x + piece * k;
    const int64_t last = (piece + 1) * j->rows < j->p->m ? (piece + 1) * j->rows : j->p->m;
    for (int64_t r = piece * j->rows; r < last; r++) {
      int8_t *q = j->q + r * j->stride;
      if (n > 0) aci_elems_load(j->p->x, ACI_C_F32, r * k, k, x);
      for (int64_t c = 0; c < n; c++) {
        q[j->columns[c]] = 0;
        j->outliers[r * n + c] = x[j->columns[c]];
      }
      sum_bytes(q, k, &j->sums[r]);
    }
  }
}

/* The columns that any piece has marked. *kept holds them and the values. */
static ac_status find_outliers(rows_job *j, int64_t pieces, ac_block **kept, ac_err *e) {
  const int64_t k = j->p->k;
  for (int64_t piece = 1; piece < pieces; piece++) join(j->marks, j->marks + piece * k, k);
  count(j->marks, k, &j->n_outliers);
  if (j->n_outliers == 0) return AC_OK;
  AC_TRY(ac_block_alloc(j->p->f->device, (size_t)(j->n_outliers * 4 * (j->p->m + 1)),
                        AC_MEM_ACTIVATION, j->p->f->stream, kept, e));
  j->columns = (*kept)->ptr;
  j->outliers = (float *)(j->columns + j->n_outliers);
  for (int64_t c = 0, at = 0; c < k; c++)
    if (j->marks[c]) j->columns[at++] = (int32_t)c;
  return AC_OK;
}

ac_status aci_linear_int8(const aci_qlinear *p, float threshold, ac_err *e) {
  const aci_part values = aci_layout_part(p->l, AC_PART_VALUES),
                 absmax = aci_layout_part(p->l, AC_PART_ABSMAX);
  const int64_t most = (p->m + PIECE_ROWS - 1) / PIECE_ROWS,
                pieces = most < MAX_PIECES ? most : MAX_PIECES;
  const size_t m = (size_t)p->m, k = (size_t)p->k;
  rows_job j = {.p = p,
                .threshold = threshold,
                .stride = (p->k + 63) / 64 * 64,
                .rows = (p->m + pieces - 1) / pieces};
  ac_block *scratch = NULL, *kept = NULL;
  AC_TRY(ac_block_alloc(p->f->device, m * (8 + 4 + (size_t)j.stride) + (size_t)pieces * k * 5 + 64,
                        AC_MEM_ACTIVATION, p->f->stream, &scratch, e));
  j.q = scratch->ptr;
  j.sums = (int64_t *)(void *)(j.q + m * (size_t)j.stride);
  j.stats = (float *)(j.sums + m);
  j.x = j.stats + m;
  j.marks = (uint8_t *)(j.x + (size_t)pieces * k);
  ac_parallel_for(p->f->team, pieces, 1, quantize_piece, &j);
  ac_status st = threshold > 0 ? find_outliers(&j, pieces, &kept, e) : AC_OK;
  if (st == AC_OK) {
    ac_parallel_for(p->f->team, pieces, 1, part_piece, &j);
    aci_int8_rows rows = {.p = p,
                          .w = aci_part_data(p->w, &values),
                          .q = j.q,
                          .absmax = aci_part_data(p->w, &absmax),
                          .stats = j.stats,
                          .sums = j.sums,
                          .outliers = j.outliers,
                          .columns = j.columns,
                          .n_outliers = j.n_outliers,
                          .stride = j.stride};
    bool taken = false;
    st = aci_linear_int8_many(&rows, &taken, e);
    if (st == AC_OK && !taken)
      ac_parallel_for(p->f->team, (p->n + ACI_QLINEAR_TILE - 1) / ACI_QLINEAR_TILE, 1, tiles,
                      &rows);
  }
  ac_block_free(kept);
  ac_block_free(scratch);
  return st;
}
