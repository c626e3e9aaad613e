/* batch_norm and group_norm over runs of consecutive elements (channel.h): one task works on a set,
 * or, if there are few sets, on a piece of the runs of a set. */
#include "base/vmath.h"
#include "ops/norm/channel.h"
#include "ops/reduce/lanes.h"

/* BLOCK: elements between two merges, a compile-time bound of the buffers of a task. */
enum { BLOCK = 1024, LEAST_TASKS = 32, LEAST_PIECE = 1 << 14, GRAIN = 1 << 15 };

/* s += A(i) and q += B(i, q) over n elements in one pass, in lanes as ACI_LANES_RUN. */
#define PAIR_RUN(T, s, q, n, A, B)       \
  T s = 0, q = 0;                        \
  do {                                   \
    T s_[PAIR_LANES], q_[PAIR_LANES];    \
    int64_t i_ = 0;                      \
    PAIR_LOOP(PAIR_LANES, s, q, n, A, B) \
    PAIR_LOOP(PAIR_FEW, s, q, n, A, B)   \
    for (; i_ < (n); i_++) {             \
      s += A(i_);                        \
      q = B(i_, q);                      \
    }                                    \
  } while (0)
#define PAIR_LOOP(LANES, s, q, n, A, B)                     \
  if (i_ + LANES <= (n)) {                                  \
    for (int k_ = 0; k_ < LANES; k_++) s_[k_] = q_[k_] = 0; \
    for (; i_ + LANES <= (n); i_ += LANES)                  \
      for (int k_ = 0; k_ < LANES; k_++) {                  \
        s_[k_] += A(i_ + k_);                               \
        q_[k_] = B(i_ + k_, q_[k_]);                        \
      }                                                     \
    if (LANES == PAIR_LANES) {                              \
      PAIR_HALVE(32)                                        \
      PAIR_HALVE(16)                                        \
      PAIR_HALVE(8)                                         \
    }                                                       \
    PAIR_HALVE(4)                                           \
    PAIR_HALVE(2)                                           \
    s += s_[0] + s_[1];                                     \
    q += q_[0] + q_[1];                                     \
  }
#define PAIR_HALVE(w) ACI_LANES_HALVE(s_, w, ACI_JOIN_ADD) ACI_LANES_HALVE(q_, w, ACI_JOIN_ADD)
enum { PAIR_LANES = 64, PAIR_FEW = 8 };

#define OFF(i) (v[i] - mean)
#define OFF_SQUARE(i, a) m_fma(v[i] - mean, v[i] - mean, a)
#define GRAD(i) (g[i])
#define GRAD_OFF(i, a) m_fma(g[i], v[i] - mean, a)

#define T float
#define sfx f32
#include "ops/norm/channel_run_rows.h"

#define T double
#define sfx f64
#include "ops/norm/channel_run_rows.h"

typedef struct channel_run_job {
  const aci_channels *g;
  bool direct;              /* elements are of the compute type: no copies */
  size_t es;                /* bytes of an element in memory */
  int64_t n_pieces, n_runs; /* of a set. Runs of a piece */
  aci_moments *part;        /* per set and piece, when a set has several pieces */
  double *sums;             /* per set and run: of dy and of dy * (x - mean as rounded) */
  double *scale;            /* per set: rstd and the rounding error of the mean */
} channel_run_job;

/* Part of a set: whole runs, or a block of one long run. */
typedef struct tile {
  int64_t run, runs, at, len;
} tile;

static bool next(const channel_run_job *j, int64_t end, tile *t) {
  const int64_t l = j->g->l;
  t->at += t->len;
  if (t->at >= l) {
    t->run += t->runs;
    t->at = 0;
  }
  if (t->run >= end) return false;
  t->runs = l >= BLOCK ? 1 : BLOCK / l < end - t->run ? BLOCK / l : end - t->run;
  t->len = l < BLOCK ? l : l - t->at < BLOCK ? l - t->at : BLOCK;
  return true;
}

/* Elements from one run of a set to the next, and from the beginning to a tile. */
static int64_t step_of(const channel_run_job *j) {
  return j->g->batch ? j->g->c * j->g->l : j->g->l;
}
static int64_t offset_of(const channel_run_job *j, int64_t set, const tile *t) {
  const aci_channels *g = j->g;
  return (g->batch ? (t->run * g->c + set) * g->l : (set * g->n_runs + t->run) * g->l) + t->at;
}

/* The tile in the compute type: in place, or in buf. */
static const void *load(const channel_run_job *j, const char *base, int64_t set, const tile *t,
                        void *buf, int64_t *step) {
  const aci_channels *g = j->g;
  const char *p = base + offset_of(j, set, t) * (int64_t)j->es;
  *step = step_of(j);
  if (j->direct) return p;
  const int64_t joined = t->len == *step ? t->runs : 1;
  for (int64_t r = 0; r < t->runs; r += joined)
    aci_load(g->ct, (char *)buf + (size_t)(r * t->len) * aci_ctype_bytes(g->ct), g->dt,
             p + r * *step * (int64_t)j->es, 1, t->len * joined);
  *step = t->len;
  return buf;
}

static void *target(const channel_run_job *j, int64_t set, const tile *t, void *buf,
                    int64_t *step) {
  *step = j->direct ? step_of(j) : t->len;
  return j->direct ? j->g->y + offset_of(j, set, t) * (int64_t)j->es : buf;
}
static void store(const channel_run_job *j, int64_t set, const tile *t, const void *buf) {
  const aci_channels *g = j->g;
  char *p = g->y + offset_of(j, set, t) * (int64_t)j->es;
  const int64_t step = step_of(j), joined = t->len == step ? t->runs : 1;
  if (j->direct) return;
  for (int64_t r = 0; r < t->runs; r += joined)
    aci_store(g->ct, (const char *)buf + (size_t)(r * t->len) * aci_ctype_bytes(g->ct), g->dt,
              p + r * step * (int64_t)j->es, 1, t->len * joined);
}

static void tile_moments(aci_ctype ct, const void *x, const tile *t, int64_t step, double mean,
                         double *out) {
  /* one after another: as one */
  const int64_t n = t->runs * t->len, runs = step == t->len ? 1 : t->runs;
  if (ct == ACI_C_F32) moments_f32(x, runs, step, n / runs, (float)mean, out);
  else moments_f64(x, runs, step, n / runs, mean, out);
}

/* Deviations are taken from the mean so far: its error is part of the variance of the set. */
static aci_moments moments(const channel_run_job *j, int64_t set, int64_t begin, int64_t end) {
  _Alignas(64) double buf[BLOCK];
  aci_moments m = {0, 0, 0};
  for (tile t = {.run = begin}; next(j, end, &t);) {
    int64_t step;
    double out[2];
    const void *x = load(j, j->g->x, set, &t, buf, &step);
    tile_moments(j->g->ct, x, &t, step, m.mean, out);
    if (m.count == 0) { /* nothing was known of the mean */
      tile_moments(j->g->ct, x, &t, step, out[0], out);
    }
    aci_moments_join(&m, (double)(t.runs * t.len), out[0], out[1]);
  }
  return m;
}

static void take_moments(const channel_run_job *j, int64_t set, const aci_moments *m) {
  j->g->mean[set] = m->mean;
  j->g->var[set] = m->m2 / m->count;
}

/* Address of value i of w or b, and from one run of a set to the next. */
static const void *param(const aci_channels *g, const void *p, int64_t set, int64_t run) {
  int64_t i = g->batch ? set : set % g->groups * g->n_runs + run;
  return (const char *)p + (size_t)i * aci_ctype_bytes(g->ct);
}

static void apply(const channel_run_job *j, int64_t set, int64_t begin, int64_t end) {
  _Alignas(64) double in[BLOCK], out[BLOCK];
  const aci_channels *g = j->g;
  const aci_channel_coef k = aci_channel_coef_of(g, set);
  const int64_t ws = g->batch ? 0 : 1;
  for (tile t = {.run = begin}; next(j, end, &t);) {
    int64_t xs, ys;
    const void *x = load(j, g->x, set, &t, in, &xs), *w = param(g, g->w, set, t.run),
               *b = param(g, g->b, set, t.run);
    void *y = target(j, set, &t, out, &ys);
    if (g->ct == ACI_C_F32)
      apply_f32(x, xs, (float)k.mean, (float)k.rest, (float)k.rstd, w, b, ws, t.runs, t.len, y, ys);
    else apply_f64(x, xs, k.mean, k.rest, k.rstd, w, b, ws, t.runs, t.len, y, ys);
    store(j, set, &t, y);
  }
}

static void dots(const channel_run_job *j, int64_t set, int64_t begin, int64_t end) {
  _Alignas(64) double in[BLOCK], more[BLOCK];
  const aci_channels *g = j->g;
  const aci_channel_coef k = aci_channel_coef_of(g, set);
  double *sums = j->sums + 2 * set * g->n_runs;
  for (int64_t i = 2 * begin; i < 2 * end; i++) sums[i] = 0;
  if (begin == 0) {
    j->scale[2 * set] = k.rstd;
    j->scale[2 * set + 1] = k.rest;
  }
  for (tile t = {.run = begin}; next(j, end, &t);) {
    int64_t xs, gs;
    const void *x = load(j, g->x, set, &t, in, &xs), *dy = load(j, g->dy, set, &t, more, &gs);
    if (g->ct == ACI_C_F32) dots_f32(dy, gs, x, xs, (float)k.mean, t.runs, t.len, sums + 2 * t.run);
    else dots_f64(dy, gs, x, xs, k.mean, t.runs, t.len, sums + 2 * t.run);
  }
}

static double weight_of(const aci_channels *g, int64_t set, int64_t run) {
  const void *w = param(g, g->w, set, run);
  return g->ct == ACI_C_F32 ? (double)*(const float *)w : *(const double *)w;
}

static void back(const channel_run_job *j, int64_t set, int64_t begin, int64_t end) {
  _Alignas(64) double in[BLOCK], more[BLOCK], out[BLOCK];
  const aci_channels *g = j->g;
  const int64_t ws = g->batch ? 0 : 1;
  const double *sums = j->sums + 2 * set * g->n_runs;
  aci_channel_coef k = aci_channel_coef_of(g, set);
  double c1 = 0, c2 = 0;
  for (int64_t r = 0; r < g->n_runs; r++) {
    double w = weight_of(g, set, r);
    c1 += w * sums[2 * r];
    c2 += w * (sums[2 * r + 1] - k.rest * sums[2 * r]);
  }
  aci_channel_coef_back(g, &k, c1, c2);
  for (tile t = {.run = begin}; next(j, end, &t);) {
    int64_t xs, gs, ds;
    const void *x = load(j, g->x, set, &t, in, &xs), *dy = load(j, g->dy, set, &t, more, &gs),
               *w = param(g, g->w, set, t.run);
    void *dx = target(j, set, &t, out, &ds);
    if (g->given && g->ct == ACI_C_F32)
      apply_f32(dy, gs, 0, 0, (float)k.rstd, w, g->b, 0, t.runs, t.len, dx, ds);
    else if (g->given) apply_f64(dy, gs, 0, 0, k.rstd, w, g->b, 0, t.runs, t.len, dx, ds);
    else if (g->ct == ACI_C_F32)
      back_f32(dy, gs, x, xs, (float)k.mean, (float)k.rest, (float)k.rstd, (float)k.q, (float)k.r,
               w, ws, t.runs, t.len, dx, ds);
    else back_f64(dy, gs, x, xs, k.mean, k.rest, k.rstd, k.q, k.r, w, ws, t.runs, t.len, dx, ds);
    store(j, set, &t, dx);
  }
}

/* ---- tasks ---- */
static int64_t piece_begin(const channel_run_job *j, int64_t p) { return p * j->n_runs; }
static int64_t piece_end(const channel_run_job *j, int64_t p) {
  int64_t end = (p + 1) * j->n_runs;
  return end < j->g->n_runs ? end : j->g->n_runs;
}
#define PIECES(name, body)                                                                 \
  static void name(void *arg, int64_t first, int64_t last) {                               \
    const channel_run_job *j = arg;                                                        \
    for (int64_t i = first; i < last; i++) {                                               \
      const int64_t set = i / j->n_pieces, p = i % j->n_pieces, begin = piece_begin(j, p), \
                    end = piece_end(j, p);                                                 \
      body                                                                                 \
    }                                                                                      \
  }
PIECES(moments_piece, j->part[i] = moments(j, set, begin, end);)
PIECES(apply_piece, apply(j, set, begin, end);)
PIECES(dots_piece, dots(j, set, begin, end);)
PIECES(back_piece, back(j, set, begin, end);)
PIECES(forward_whole, {
  if (j->g->want_stats) {
    aci_moments m = moments(j, set, begin, end);
    take_moments(j, set, &m);
  }
  apply(j, set, begin, end);
})
PIECES(backward_whole, {
  if (j->g->want_stats) {
    aci_moments m = moments(j, set, begin, end);
    take_moments(j, set, &m);
  }
  dots(j, set, begin, end);
  back(j, set, begin, end);
})

static void join_moments(const channel_run_job *j) {
  for (int64_t s = 0; s < j->g->n_sets; s++) {
    aci_moments m = {0, 0, 0};
    for (int64_t p = 0; p < j->n_pieces; p++) {
      const aci_moments *o = &j->part[s * j->n_pieces + p];
      aci_moments_join(&m, o->count, o->mean, o->m2);
    }
    take_moments(j, s, &m);
  }
}

/* dweight and dbias: over the samples in order. The sums of a group kind's sample lie in the order
 * of channels. */
static void add_sums(const channel_run_job *j, int64_t c, int64_t set, int64_t run) {
  const double *s = j->sums + 2 * (set * j->g->n_runs + run), *k = j->scale + 2 * set;
  j->g->db[c] += s[0];
  j->g->dw[c] += k[0] * (s[1] - k[1] * s[0]);
}
static void channel_sums(void *arg, int64_t first, int64_t last) {
  const channel_run_job *j = arg;
  const aci_channels *g = j->g;
  for (int64_t c = first; c < last && g->batch; c++)
    for (int64_t i = 0; i < g->n; i++) add_sums(j, c, c, i);
  for (int64_t i = 0; i < g->n && !g->batch; i++) {
    int64_t set = i * g->groups + first / g->n_runs, run = first % g->n_runs;
    for (int64_t c = first; c < last; c++) {
      add_sums(j, c, set, run);
      if (++run == g->n_runs) {
        run = 0;
        set++;
      }
    }
  }
}

ac_status aci_channel_run(ac_frame *f, aci_channels *g, ac_err *e) {
  const bool backward = g->dy != NULL;
  channel_run_job j = {.g = g, .es = aci_dsize(g->dt), .n_pieces = 1, .n_runs = g->n_runs};
  j.direct = j.es == aci_ctype_bytes(g->ct);
  if (g->n_sets < LEAST_TASKS) {
    int64_t most = g->members / LEAST_PIECE, want = (LEAST_TASKS + g->n_sets - 1) / g->n_sets;
    if (want > most) want = most;
    if (want > g->n_runs) want = g->n_runs;
    if (want > 1) j.n_runs = (g->n_runs + want - 1) / want;
    j.n_pieces = (g->n_runs + j.n_runs - 1) / j.n_runs;
  }
  const int64_t tasks = g->n_sets * j.n_pieces, grain = GRAIN / (g->members / j.n_pieces + 1) + 1;
  const size_t part = g->want_stats && j.n_pieces > 1 ? (size_t)tasks * sizeof(aci_moments) : 0,
               sums = backward ? (size_t)(g->n_sets * g->n_runs) * 2 * sizeof(double) : 0,
               scale = backward ? (size_t)g->n_sets * 2 * sizeof(double) : 0;
  ac_block *block;
  AC_TRY(
      ac_block_alloc(f->device, part + sums + scale + 8, AC_MEM_ACTIVATION, f->stream, &block, e));
  j.part = ac_block_ptr(block);
  j.sums = (double *)(void *)((char *)ac_block_ptr(block) + part);
  j.scale = (double *)(void *)((char *)ac_block_ptr(block) + part + sums);
  if (j.n_pieces == 1) {
    ac_parallel_for(f->team, tasks, grain, backward ? backward_whole : forward_whole, &j);
  } else {
    if (g->want_stats) {
      ac_parallel_for(f->team, tasks, grain, moments_piece, &j);
      join_moments(&j);
    }
    if (backward) ac_parallel_for(f->team, tasks, grain, dots_piece, &j);
    ac_parallel_for(f->team, tasks, grain, backward ? back_piece : apply_piece, &j);
  }
  if (backward) ac_parallel_for(f->team, g->c, GRAIN / (4 * g->n) + 16, channel_sums, &j);
  ac_block_free(block);
  return AC_OK;
}
