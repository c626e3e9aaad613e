/* Passes of adafactor_step_ over tiles of a parameter: see adafactor.h. Sums are taken in LANES
 * interleaved parts, so that they become vector code and do not depend on the ISA. */
#include "ops/optim/adafactor.h"

#include "ops/optim/step.h"

enum { LANES = 16 };

/* sums += { g^2, p^2 }, col[i] += g[i]^2. */
#define STATS(NAME, T)                                                                     \
  AC_ISA_FN(NAME, (int64_t n, const T *g, const T *p, double *restrict col, double *sums), \
            (n, g, p, col, sums)) {                                                        \
    double s[LANES] = {0}, q[LANES] = {0};                                                 \
    int64_t i = 0;                                                                         \
    for (; i + LANES <= n; i += LANES)                                                     \
      for (int k = 0; k < LANES; k++) {                                                    \
        double gg = (double)g[i + k] * (double)g[i + k];                                   \
        s[k] += gg;                                                                        \
        col[i + k] += gg;                                                                  \
        q[k] += (double)p[i + k] * (double)p[i + k];                                       \
      }                                                                                    \
    for (int k = 0; i + k < n; k++) {                                                      \
      double gg = (double)g[i + k] * (double)g[i + k];                                     \
      s[k] += gg;                                                                          \
      col[i + k] += gg;                                                                    \
      q[k] += (double)p[i + k] * (double)p[i + k];                                         \
    }                                                                                      \
    for (int k = 0; k < LANES; k++) sums[0] += s[k], sums[1] += q[k];                      \
  }
STATS(stats_f32, float)
STATS(stats_f64, double)

/* sum += u^2. v: the column factors of a matrix, or the variances themselves with row 1. */
#define LENGTH(NAME, T)                                                           \
  AC_ISA_FN(NAME, (int64_t n, const T *g, const T *v, T row, T eps, double *sum), \
            (n, g, v, row, eps, sum)) {                                           \
    double s[LANES] = {0};                                                        \
    int64_t i = 0;                                                                \
    for (; i + LANES <= n; i += LANES)                                            \
      for (int k = 0; k < LANES; k++) {                                           \
        T u = g[i + k] / m_sqrt(m_max(row * v[i + k], eps));                      \
        s[k] += (double)u * (double)u;                                            \
      }                                                                           \
    for (int k = 0; i + k < n; k++) {                                             \
      T u = g[i + k] / m_sqrt(m_max(row * v[i + k], eps));                        \
      s[k] += (double)u * (double)u;                                              \
    }                                                                             \
    for (int k = 0; k < LANES; k++) *sum += s[k];                                 \
  }
LENGTH(length_f32, float)
LENGTH(length_f64, double)

#define UPDATE(NAME, T)                                                                        \
  AC_ISA_FN(NAME,                                                                              \
            (int64_t n, T *restrict p, const T *restrict g, const T *restrict v, T row, T eps, \
             T keep, T scale),                                                                 \
            (n, p, g, v, row, eps, keep, scale)) {                                             \
    for (int64_t i = 0; i < n; i++)                                                            \
      p[i] = m_fma(scale, g[i] / m_sqrt(m_max(row * v[i], eps)), p[i] * keep);                 \
  }
UPDATE(update_f32, float)
UPDATE(update_f64, double)

static void variance_f64(int64_t n, double *v, const double *g, double w) {
  for (int64_t i = 0; i < n; i++) v[i] += w * (g[i] * g[i] - v[i]);
}
AC_ISA_FN(variance_f32, (int64_t n, float *restrict v, const float *restrict g, float w),
          (n, v, g, w)) {
  for (int64_t i = 0; i < n; i++) v[i] = aci_fma32(w, g[i] * g[i] - v[i], v[i]);
}

/* ---- tiles ---- */
typedef struct tile_range {
  int64_t b0, b1, r0, r1, c0, n, col_tile, row_tile;
} tile_range;

static tile_range tile_range_of(const aci_factor_part *a, int64_t tile) {
  int64_t per = a->row_tiles * a->col_tiles, in = tile % per;
  tile_range x = {
      .b0 = tile / per * a->per_tile, .row_tile = in / a->col_tiles, .col_tile = in % a->col_tiles};
  x.b1 = x.b0 + a->per_tile < a->batch ? x.b0 + a->per_tile : a->batch;
  x.r0 = x.row_tile * ACI_FACTOR_ROWS;
  x.r1 = x.r0 + ACI_FACTOR_ROWS < a->rows ? x.r0 + ACI_FACTOR_ROWS : a->rows;
  x.c0 = x.col_tile * ACI_FACTOR_COLS;
  x.n = x.c0 + ACI_FACTOR_COLS < a->cols ? ACI_FACTOR_COLS : a->cols - x.c0;
  return x;
}

static void *fetch(const aci_factor_part *a, const ac_tensor *t, int64_t at, int64_t n, void *buf) {
  const aci_ctype ct = a->wide ? ACI_C_F64 : ACI_C_F32;
  return aci_list_row(t, ct, aci_list_direct(t, ct), at, n, buf);
}
static void put(const aci_factor_part *a, const ac_tensor *t, int64_t at, int64_t n,
                const void *row) {
  const aci_ctype ct = a->wide ? ACI_C_F64 : ACI_C_F32;
  if (!aci_list_direct(t, ct)) aci_elems_store(t, ct, at, n, row);
}

/* ---- tiles of small matrices ---- */
static void measure_small(const aci_factor_part *a, int64_t tile) {
  _Alignas(64) char pb[ACI_FACTOR_COLS * 8], gb[ACI_FACTOR_COLS * 8];
  const tile_range x = tile_range_of(a, tile);
  const int64_t each = a->rows * a->cols, at = x.b0 * each, n = (x.b1 - x.b0) * each;
  const double *g = aci_list_row(a->g, ACI_C_F64, aci_list_direct(a->g, ACI_C_F64), at, n, gb);
  const double *p = aci_list_row(a->p, ACI_C_F64, aci_list_direct(a->p, ACI_C_F64), at, n, pb);
  double total = 0;
  for (int64_t i = 0; i < n; i++) total += p[i] * p[i];
  for (int64_t b = x.b0; b < x.b1; b++) {
    double *col = a->col_part + b * a->cols;
    memset(col, 0, (size_t)a->cols * sizeof *col);
    for (int64_t r = 0; r < a->rows; r++) {
      double sum = 0;
      for (int64_t c = 0; c < a->cols; c++) {
        double gg = *g * *g;
        g++;
        sum += gg;
        col[c] += gg;
      }
      a->row_part[b * a->rows + r] = sum;
    }
  }
  a->p_part[tile] = total;
}

static void walk_small(const aci_factor_job *j, const aci_factor_part *a, int64_t tile,
                       bool write) {
  _Alignas(64) char pb[ACI_FACTOR_COLS * 8], gb[ACI_FACTOR_COLS * 8];
  const tile_range x = tile_range_of(a, tile);
  const int64_t each = a->rows * a->cols, at = x.b0 * each, n = (x.b1 - x.b0) * each;
  const double *g = aci_list_row(a->g, ACI_C_F64, aci_list_direct(a->g, ACI_C_F64), at, n, gb);
  double v[ACI_FACTOR_COLS], *next = v;
  for (int64_t b = x.b0; b < x.b1; b++)
    for (int64_t r = 0; r < a->rows; r++)
      for (int64_t c = 0; c < a->cols; c++)
        *next++ = a->row[b * a->rows + r] * a->col[b * a->cols + c];
  if (!write) {
    a->u_part[tile] = 0;
    length_f64(n, g, v, 1, a->eps, &a->u_part[tile]);
    return;
  }
  const bool direct = aci_list_direct(a->p, ACI_C_F64);
  double *p = aci_list_row(a->p, ACI_C_F64, direct, at, n, pb);
  update_f64(n, p, g, v, 1, a->eps, j->keep, -j->sign * a->scale);
  if (!direct) aci_elems_store(a->p, ACI_C_F64, at, n, p);
}

/* Sums of g^2 along rows and columns and of p^2. Also updates the variances. */
void aci_factor_measure(const aci_factor_job *j, aci_factor_part *a, int64_t tile) {
  _Alignas(64) char pb[ACI_FACTOR_COLS * 8], gb[ACI_FACTOR_COLS * 8], vb[ACI_FACTOR_COLS * 8];
  double scrap[ACI_FACTOR_COLS], total = 0;
  tile_range x = tile_range_of(a, tile);
  if (a->per_tile > 1) {
    measure_small(a, tile);
    return;
  }
  for (int64_t b = x.b0; b < x.b1; b++) {
    double *col =
        a->v != NULL ? scrap : a->col_part + (b * a->row_tiles + x.row_tile) * a->cols + x.c0;
    memset(col, 0, (size_t)x.n * sizeof *col);
    for (int64_t r = x.r0; r < x.r1; r++) {
      int64_t at = (b * a->rows + r) * a->cols + x.c0;
      void *g = fetch(a, a->g, at, x.n, gb), *p = fetch(a, a->p, at, x.n, pb);
      double sums[2] = {0, 0};
      if (a->wide) stats_f64(x.n, g, p, col, sums);
      else stats_f32(x.n, g, p, col, sums);
      total += sums[1];
      if (a->v == NULL) {
        a->row_part[(b * a->rows + r) * a->col_tiles + x.col_tile] = sums[0];
        continue;
      }
      void *v = fetch(a, a->v, at, x.n, vb);
      if (a->wide) variance_f64(x.n, v, g, j->weight);
      else variance_f32(x.n, v, g, (float)j->weight);
      put(a, a->v, at, x.n, v);
    }
  }
  a->p_part[tile] = total;
}

/* The factors V is made of, for the columns of a tile: rows of the compute type in buf, or in the
 * variances. */
static const void *factors_of(const aci_factor_part *a, const tile_range *x, int64_t b, int64_t at,
                              void *buf) {
  if (a->v != NULL) return fetch(a, a->v, at, x->n, buf);
  const double *col = a->col + b * a->cols + x->c0;
  if (a->wide) return col;
  float *to = buf;
  for (int64_t i = 0; i < x->n; i++) to[i] = (float)col[i];
  return to;
}

/* Both passes over u. The second, with `write`, moves the parameters. */
static void walk(const aci_factor_job *j, aci_factor_part *a, int64_t tile, bool write) {
  _Alignas(64) char pb[ACI_FACTOR_COLS * 8], gb[ACI_FACTOR_COLS * 8], vb[ACI_FACTOR_COLS * 8];
  double total = 0;
  tile_range x = tile_range_of(a, tile);
  if (a->per_tile > 1) {
    walk_small(j, a, tile, write);
    return;
  }
  for (int64_t b = x.b0; b < x.b1; b++) {
    const void *v = NULL;
    for (int64_t r = x.r0; r < x.r1; r++) {
      int64_t at = (b * a->rows + r) * a->cols + x.c0;
      double row = a->v != NULL ? 1 : a->row[b * a->rows + r];
      if (v == NULL) v = factors_of(a, &x, b, at, vb);
      void *g = fetch(a, a->g, at, x.n, gb);
      if (!write) {
        if (a->wide) length_f64(x.n, g, v, row, a->eps, &total);
        else length_f32(x.n, g, v, (float)row, (float)a->eps, &total);
        continue;
      }
      void *p = fetch(a, a->p, at, x.n, pb);
      double scale = -j->sign * a->scale;
      if (a->wide) update_f64(x.n, p, g, v, row, a->eps, j->keep, scale);
      else update_f32(x.n, p, g, v, (float)row, (float)a->eps, (float)j->keep, (float)scale);
      put(a, a->p, at, x.n, p);
    }
  }
  if (!write) a->u_part[tile] = total;
}
void aci_factor_length(const aci_factor_job *j, aci_factor_part *a, int64_t tile) {
  walk(j, a, tile, false);
}
void aci_factor_update(const aci_factor_job *j, aci_factor_part *a, int64_t tile) {
  walk(j, a, tile, true);
}
