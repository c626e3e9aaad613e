/* batch_norm for channels with few elements per sample (channel.h): a sample is a row of c * l
 * columns, and every loop runs along rows. Columns of one channel are combined after the rows. */
#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "ops/norm/channel.h"
#include "ops/reduce/slots.h"

/* Statistics are taken from tiles of ROWS x TILE. f32 sums of ROWS rows, double between them. */
enum { ROWS = 32, TILE = 256, MAX_PIECES = 64, GRAIN = 1 << 15 };

#define T float
#define sfx f32
#include "ops/norm/channel_column_rows.h"

#define T double
#define sfx f64
#include "ops/norm/channel_column_rows.h"

enum { MEAN, REST, A, B, Q, C, N_ROWS }; /* rows of coefficients */

typedef struct channel_column_job {
  const aci_channels *g;
  bool direct;
  size_t es, cs;
  int64_t width, n_tiles, n_pieces, piece_rows;
  double *part; /* per piece: two rows of sums or moments */
  char *coef;   /* N_ROWS rows of the compute type */
  aci_slots *slots;
} channel_column_job;

static void *coef(const channel_column_job *j, int row, int64_t i) {
  return j->coef + (size_t)(row * j->width + i) * j->cs;
}
static void put(const channel_column_job *j, int row, int64_t i, double v) {
  void *p = coef(j, row, i);
  if (j->g->ct == ACI_C_F32) *(float *)p = (float)v;
  else *(double *)p = v;
}

/* rows x n elements from row r, column i on, in the compute type. buf holds ROWS x TILE of them. */
static const void *load(const channel_column_job *j, const char *base, int64_t r, int64_t i,
                        int64_t rows, int64_t n, char *buf, int64_t *step) {
  const char *p = base + (r * j->width + i) * (int64_t)j->es;
  *step = j->width;
  if (j->direct) return p;
  for (int64_t k = 0; k < rows; k++)
    aci_load(j->g->ct, buf + (size_t)(k * TILE) * j->cs, j->g->dt,
             p + k * j->width * (int64_t)j->es, 1, n);
  *step = TILE;
  return buf;
}

/* Moments, or sums of the backward, of one tile of columns over the rows of one piece. */
static void gather(void *arg, int64_t first, int64_t last) {
  const channel_column_job *j = arg;
  const aci_channels *g = j->g;
  const bool f32 = g->ct == ACI_C_F32;
  int slot = aci_slots_take(j->slots);
  char *bx = aci_slots_at(j->slots, slot), *bg = bx + (size_t)(ROWS * TILE) * j->cs;
  for (int64_t task = first; task < last; task++) {
    int64_t piece = task / j->n_tiles, i = task % j->n_tiles * TILE, r = piece * j->piece_rows,
            n = j->width - i < TILE ? j->width - i : TILE,
            end = r + j->piece_rows < g->n ? r + j->piece_rows : g->n;
    double *p = j->part + piece * 2 * j->width + i, *q = p + j->width, seen = 0;
    for (int64_t k = 0; k < n; k++) p[k] = q[k] = 0;
    for (; r < end; r += ROWS) {
      int64_t rows = end - r < ROWS ? end - r : ROWS, xs, gs;
      const void *x = load(j, g->x, r, i, rows, n, bx, &xs);
      if (g->dy != NULL) {
        const void *dy = load(j, g->dy, r, i, rows, n, bg, &gs), *mean = coef(j, MEAN, i);
        if (f32) dots_f32(dy, gs, x, xs, mean, rows, n, p, q);
        else dots_f64(dy, gs, x, xs, mean, rows, n, p, q);
      } else if (f32) {
        moments_f32(x, xs, rows, n, seen, p, q);
      } else {
        moments_f64(x, xs, rows, n, seen, p, q);
      }
      seen += (double)rows;
    }
  }
  aci_slots_give(j->slots, slot);
}

static void join_moments(void *arg, int64_t first, int64_t last) {
  const channel_column_job *j = arg;
  const aci_channels *g = j->g;
  for (int64_t c = first; c < last; c++) {
    aci_moments m = {0, 0, 0};
    for (int64_t piece = 0; piece < j->n_pieces; piece++) {
      int64_t r = piece * j->piece_rows, rows = g->n - r < j->piece_rows ? g->n - r : j->piece_rows;
      const double *p = j->part + piece * 2 * j->width + c * g->l;
      for (int64_t i = 0; i < g->l; i++) aci_moments_join(&m, (double)rows, p[i], p[i + j->width]);
    }
    g->mean[c] = m.mean;
    g->var[c] = m.m2 / m.count;
  }
}

static double value(const aci_channels *g, const void *p, int64_t c) {
  return g->ct == ACI_C_F32 ? (double)((const float *)p)[c] : ((const double *)p)[c];
}

/* Rows of coefficients from the statistics. In the backward Q and C follow when the sums are
 * known. */
static void fill(void *arg, int64_t first, int64_t last) {
  const channel_column_job *j = arg;
  const aci_channels *g = j->g;
  for (int64_t c = first; c < last; c++) {
    const aci_channel_coef k = aci_channel_coef_of(g, c);
    for (int64_t i = c * g->l; i < (c + 1) * g->l; i++) {
      put(j, MEAN, i, k.mean);
      put(j, REST, i, k.rest);
      put(j, A, i, k.rstd * value(g, g->w, c));
      put(j, B, i, value(g, g->b, c));
    }
  }
}

static void join_sums(void *arg, int64_t first, int64_t last) {
  const channel_column_job *j = arg;
  const aci_channels *g = j->g;
  for (int64_t c = first; c < last; c++) {
    aci_channel_coef k = aci_channel_coef_of(g, c);
    double s = 0, d = 0, w = value(g, g->w, c);
    for (int64_t piece = 0; piece < j->n_pieces; piece++) {
      const double *p = j->part + piece * 2 * j->width + c * g->l;
      for (int64_t i = 0; i < g->l; i++) {
        s += p[i];
        d += p[i + j->width];
      }
    }
    d -= k.rest * s;
    g->db[c] = s;
    g->dw[c] = d * k.rstd;
    aci_channel_coef_back(g, &k, w * s, w * d);
    for (int64_t i = c * g->l; i < (c + 1) * g->l; i++) {
      put(j, Q, i, k.q);
      put(j, C, i, k.r);
    }
  }
}

/* y or dx, row by row. */
static void finish(void *arg, int64_t first, int64_t last) {
  const channel_column_job *j = arg;
  const aci_channels *g = j->g;
  const bool f32 = g->ct == ACI_C_F32;
  int slot = aci_slots_take(j->slots);
  char *bx = aci_slots_at(j->slots, slot), *bg = bx + (size_t)(ROWS * TILE) * j->cs;
  const int64_t most = j->direct ? j->width : ROWS * TILE;
  for (int64_t r = first; r < last; r++)
    for (int64_t i = 0; i < j->width; i += most) {
      int64_t n = j->width - i < most ? j->width - i : most, step;
      char *dst = g->y + (r * j->width + i) * (int64_t)j->es;
      const void *x = load(j, g->x, r, i, 1, n, bx, &step), *m = coef(j, MEAN, i),
                 *rest = coef(j, REST, i), *a = coef(j, A, i), *b = coef(j, B, i),
                 *q = coef(j, Q, i), *c = coef(j, C, i);
      const void *dy = g->dy != NULL ? load(j, g->dy, r, i, 1, n, bg, &step) : NULL;
      void *y = j->direct ? (void *)dst : bx;
      if (dy == NULL && f32) apply_f32(x, m, rest, a, b, n, y);
      else if (dy == NULL) apply_f64(x, m, rest, a, b, n, y);
      else if (g->given && f32) scale_f32(dy, a, n, y);
      else if (g->given) scale_f64(dy, a, n, y);
      else if (f32) back_f32(dy, x, m, rest, a, q, c, n, y);
      else back_f64(dy, x, m, rest, a, q, c, n, y);
      if (!j->direct) aci_store(g->ct, y, g->dt, dst, 1, n);
    }
  aci_slots_give(j->slots, slot);
}

ac_status aci_channel_column(ac_frame *f, aci_channels *g, ac_err *e) {
  aci_slots slots;
  channel_column_job j = {.g = g,
                          .es = aci_dsize(g->dt),
                          .cs = aci_ctype_bytes(g->ct),
                          .width = g->c * g->l,
                          .slots = &slots};
  j.direct = j.es == j.cs;
  j.n_tiles = (j.width + TILE - 1) / TILE;
  j.piece_rows = ((g->n + MAX_PIECES - 1) / MAX_PIECES + ROWS - 1) / ROWS * ROWS;
  j.n_pieces = (g->n + j.piece_rows - 1) / j.piece_rows;
  const int64_t tasks = j.n_pieces * j.n_tiles, grain = GRAIN / (j.piece_rows * TILE) + 1,
                channels = GRAIN / (64 * g->l) + 1, rows = GRAIN / j.width + 1;
  const size_t part = (size_t)(j.n_pieces * 2 * j.width) * sizeof(double);
  ac_block *block;
  AC_TRY(ac_block_alloc(f->device, part + (size_t)(N_ROWS * j.width) * j.cs, AC_MEM_ACTIVATION,
                        f->stream, &block, e));
  ac_status st =
      aci_slots_open(&slots, f, tasks > g->n ? tasks : g->n, 2 * (size_t)(ROWS * TILE) * j.cs, e);
  if (st == AC_OK) {
    j.part = ac_block_ptr(block);
    j.coef = (char *)ac_block_ptr(block) + part;
    if (g->want_stats) {
      ac_parallel_for(f->team, tasks, grain, gather, &j);
      ac_parallel_for(f->team, g->c, channels, join_moments, &j);
    }
    ac_parallel_for(f->team, g->c, channels, fill, &j);
    if (g->dy != NULL) {
      ac_parallel_for(f->team, tasks, grain, gather, &j);
      ac_parallel_for(f->team, g->c, channels, join_sums, &j);
    }
    ac_parallel_for(f->team, g->n, rows, finish, &j);
    aci_slots_close(&slots);
  }
  ac_block_free(block);
  return st;
}
