/* Products of many rows of int8, for linear_int8.c: oneDNN multiplies (AMX or VNNI) a block of y at
 * a time into i32, which is then scaled, joined with the products of columns with outliers, and
 * stored. aci_onednn_wants decides. Sums are exact, so the results equal few rows' results to the
 * bit. The block has a size of its own, however many rows there are. */
#include "device/cpu/onednn.h"
#include "ops/index/index.h"
#include "ops/quant/linear_int8.h"

enum {
  SUM_BYTES = 8 << 20, /* of i32 at a time */
  /* at least, if there are so many: fewer would read the rows of x too often */
  PANEL_COLUMNS = 512,
  PANEL_ROWS = SUM_BYTES / 4 / PANEL_COLUMNS,
  ROWS_AT_ONCE = 8
};

typedef struct many_job {
  const aci_int8_rows *j;
  const int32_t *sums;
  const int8_t *w;          /* (n_outliers, cols) of the weight */
  int64_t top, first, cols; /* the block's first row and column, and its columns */
} many_job;

/* sum[i] += x w[i] */
AC_ISA_FN(add_column, (float *restrict sum, const int8_t *restrict w, float x, int64_t n),
          (sum, w, x, n)) {
  for (int64_t i = 0; i < n; i++) sum[i] += x * (float)w[i];
}

AC_ISA_FN(scale_row,
          (float *restrict y, const int32_t *restrict sum, const float *restrict outliers,
           const float *restrict absmax, float of_x, bool any, int64_t n),
          (y, sum, outliers, absmax, of_x, any, n)) {
  for (int64_t i = 0; i < n; i++)
    y[i] = aci_int8_value((float)sum[i], of_x, absmax[i] * (1.0f / 127), any, outliers[i]);
}

AC_ISA_FN(add_bias, (float *restrict y, const float *restrict bias, int64_t n), (y, bias, n)) {
  for (int64_t i = 0; i < n; i++) y[i] += bias[i];
}

static void finish_rows(void *arg, int64_t begin, int64_t end) { /* rows of the block */
  const many_job *m = arg;
  const aci_int8_rows *j = m->j;
  const aci_qlinear *p = j->p;
  float y[ACI_QLINEAR_TILE], outliers[ACI_QLINEAR_TILE] = {0};
  for (int64_t i = begin; i < end; i++)
    for (int64_t at = 0; at < m->cols; at += ACI_QLINEAR_TILE) {
      const int64_t r = m->top + i;
      const int64_t n = m->cols - at < ACI_QLINEAR_TILE ? m->cols - at : ACI_QLINEAR_TILE;
      if (j->n_outliers > 0) memset(outliers, 0, sizeof outliers);
      for (int64_t c = 0; c < j->n_outliers; c++)
        add_column(outliers, m->w + c * m->cols + at, j->outliers[r * j->n_outliers + c], n);
      scale_row(y, m->sums + i * m->cols + at, outliers, j->absmax + m->first + at,
                j->stats[r] * (1.0f / 127), j->n_outliers > 0, n);
      if (p->bias != NULL) add_bias(y, p->bias + m->first + at, n);
      aci_elems_store(p->y, ACI_C_F32, r * p->n + m->first + at, n, y);
    }
}

/* Columns of the weight that meet outliers, next to one another. */
static void gather(const aci_int8_rows *j, int64_t first, int64_t cols, int8_t *to) {
  for (int64_t i = 0; i < cols; i++)
    for (int64_t c = 0; c < j->n_outliers; c++)
      to[c * cols + i] = j->w[(first + i) * j->p->k + j->columns[c]];
}

/* Blocks of about as many rows each, so that none has few. */
static int64_t block_rows(int64_t m) {
  const int64_t blocks = (m + PANEL_ROWS - 1) / PANEL_ROWS;
  return (m + blocks - 1) / blocks;
}

ac_status aci_linear_int8_many(const aci_int8_rows *j, bool *taken, ac_err *e) {
  const aci_qlinear *p = j->p;
  *taken = false;
  if (p->m < 1) return AC_OK;
  const int64_t rows = block_rows(p->m);
  int64_t cols = SUM_BYTES / 4 / rows / PANEL_COLUMNS * PANEL_COLUMNS;
  if (cols > p->n) cols = p->n;
  aci_gemm g = {.in_type = ACI_GEMM_I8,
                .out_type = ACI_GEMM_I32,
                .m = rows,
                .n = cols,
                .k = p->k,
                .a_rs = j->stride,
                .a_cs = 1,
                .b_rs = 1,
                .b_cs = p->k,
                .c_rs = cols,
                .n_batch = 1,
                .alpha = 1};
  ac_block *scratch = NULL;
  if (!aci_onednn_wants(&g)) return AC_OK;
  const ac_status st =
      ac_block_alloc(p->f->device, (size_t)cols * (4 * (size_t)rows + (size_t)j->n_outliers),
                     AC_MEM_ACTIVATION, p->f->stream, &scratch, e);
  if (st != AC_OK) return st == AC_OOM ? AC_OK : st; /* the caller's loop does without */
  int32_t *sums = scratch->ptr;
  int8_t *w = (int8_t *)(sums + cols * rows);
  void *c = sums;
  *taken = true;
  for (int64_t first = 0; *taken && first < p->n; first += cols) {
    const void *b = j->w + first * p->k;
    many_job m = {.j = j,
                  .sums = sums,
                  .w = w,
                  .first = first,
                  .cols = p->n - first < cols ? p->n - first : cols};
    gather(j, first, m.cols, w);
    for (m.top = 0; *taken && m.top < p->m; m.top += rows) {
      const void *a = j->q + m.top * j->stride;
      g.a = &a;
      g.b = &b;
      g.c = &c;
      g.m = p->m - m.top < rows ? p->m - m.top : rows;
      g.n = g.c_rs = m.cols;
      *taken = aci_onednn_gemm(p->f->team, &g); /* false: the caller's loop writes all of y */
      if (*taken) ac_parallel_for(p->f->team, g.m, ROWS_AT_ONCE, finish_rows, &m);
    }
  }
  ac_block_free(scratch);
  return AC_OK;
}
