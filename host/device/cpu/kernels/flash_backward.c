/* Attention backward, recomputing the weights from the saved log-sum-exp. A task is a range of keys
 * of one key head, so that dk and dv are sums of one thread in one order. It walks over chunks of
 * its keys, over the query heads that share them, and over chunks of queries. For a panel of nr
 * keys and the rows of a query chunk that
 * see it:
 *
 *   S = Q K'   dP = dO V'                     (rows x nr, A panels are queries)
 *   P = 2^(S scale log2(e) - lse)             dS = P (dP - delta),  delta = sum over d of dO O
 *   dV' += dO' P    dK' += Q' dS              (d x nr, the tiles are the B panels)
 *   dQ  += dS K                               once per group of panels (dS transposed into A
 *       panels)
 *
 * The scale is applied when dk and dq are stored. dQ is summed in f32: by the task alone when it
 * has all keys of its head, else into one array per key range, which a last pass adds up in
 * order. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "device/cpu/kernels/flash_impl.h"

enum {
  CHUNK_QUERIES = 126,
  CHUNK_KEYS = 512,
  GROUP = 4 /* panels */,
  DELTA_ROWS = 64,
  LEAST_TASKS = 16
};

typedef struct backward {
  const aci_flash *f;
  const aci_flash_grads *g;
  aci_flash_kind k;
  int64_t cq, ck;          /* queries and keys per chunk */
  int64_t ldq;             /* row of a dQ accumulator: d in whole B panels */
  int64_t range, n_ranges; /* keys per task. Tasks per key head */
  char *delta, *lse2;      /* (b, hq, tq) each */
  char *dq;                /* per range (b, hq, tq + mr, ldq). NULL when there is one range */
  int64_t dq_head;         /* bytes of one head in it */
  _Atomic bool oom;
} backward;

/* Scratch of a task. */
typedef struct space {
  char *kt, *vt;            /* B panels (d x nr keys) of the key chunk */
  char *kd;                 /* B panels (group of keys x d), one set per group */
  char *dkt, *dvt;          /* accumulators (d x nr) per key panel */
  char *qa, *doa;           /* A panels (d x mr queries) of the query chunk */
  char *qt, *dot;           /* A panels (queries x mr of d) */
  char *s, *dp;             /* tiles (queries x nr). dp one per panel of the group */
  char *words, *half, *dsa; /* of dropout. dS as bf16 rows. dS as A panel (keys x mr queries) */
  char *dq, *tmp;
  int64_t kt_panel, kd_group, acc_panel, tile;
} space;

static bool space_get(const backward *w, space *s) {
  const aci_flash_kind *k = &w->k;
  const aci_flash *f = w->f;
  int64_t panels = (w->ck + k->nr - 1) / k->nr, groups = (panels + GROUP - 1) / GROUP;
  s->kt_panel = aci_flash_packed(k, k->nr, k->nr, f->d);
  s->kd_group = aci_flash_packed(k, f->d, k->nr, GROUP * k->nr);
  s->acc_panel = aci_ceil_to((f->d + k->mr) * k->nr * k->es, 64);
  s->tile = aci_ceil_to((w->cq + k->mr) * k->nr * k->es, 64);
  int64_t a = aci_flash_packed(k, w->cq, k->mr, f->d), t = aci_flash_packed(k, f->d, k->mr, w->cq);
  struct {
    char **p;
    int64_t bytes;
  } parts[] = {{&s->kt, panels * s->kt_panel},
               {&s->vt, panels * s->kt_panel},
               {&s->kd, groups * s->kd_group},
               {&s->dkt, panels * s->acc_panel},
               {&s->dvt, panels * s->acc_panel},
               {&s->qa, a},
               {&s->doa, a},
               {&s->qt, t},
               {&s->dot, t},
               {&s->s, s->tile},
               {&s->dp, GROUP * s->tile},
               {&s->words, f->drop_p > 0 ? (w->cq + 4) * k->nr * 4 : 0},
               {&s->half, k->paired ? GROUP * s->tile / 2 : 0},
               {&s->dsa, aci_flash_packed(k, k->mr, k->mr, GROUP * k->nr)},
               {&s->tmp, (aci_ceil_to(w->cq, k->nr) + 1) * 32 * k->es},
               {&s->dq, w->dq != NULL ? 0 : f->hq / f->hkv * (f->tq + k->mr) * w->ldq * k->es}};
  int64_t total = 0;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    total += aci_ceil_to(parts[i].bytes, 64);
  char *p = aci_scratch(ACI_SCRATCH_TILE, (size_t)total);
  if (p == NULL) return false;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    *parts[i].p = p;
    p += aci_ceil_to(parts[i].bytes, 64);
  }
  return true;
}

/* ---- delta and the log-sum-exp in units of log 2 ---- */
static void delta_piece(void *arg, int64_t begin, int64_t end) {
  const backward *w = arg;
  const aci_flash *f = w->f;
  for (int64_t r = begin; r < end; r++) {
    int64_t i = r % f->tq, h = r / f->tq % f->hq, b = r / f->tq / f->hq;
    const char *o = aci_flash_at(f->type, f->out, f->out_s, b, h, i),
               *g = aci_flash_at(f->type, w->g->dout, w->g->dout_s, b, h, i);
    double lse = aci_gemm_load(w->k.acc, f->lse, r);
    double lse2 = lse == -INFINITY ? INFINITY : lse * ACI_LOG2E_64,
           sum = aci_tile_dot(f->type, o, g, f->d);
    if (w->k.acc == ACI_GEMM_F64) {
      ((double *)(void *)w->delta)[r] = sum;
      ((double *)(void *)w->lse2)[r] = lse2;
    } else {
      ((float *)(void *)w->delta)[r] = (float)sum;
      ((float *)(void *)w->lse2)[r] = (float)lse2;
    }
  }
}

/* ---- one query chunk against one key panel ---- */

/* Rows r0.. (a multiple of mr) of the query chunk at q0 against the n_k keys at k0, panel p of the
 * key chunk. Scores S = Q K' and dP = dO V' are computed anew (tiles of rows x nr), become P and dS
 * = P (dP - delta), and dV += P' dO, dK += dS' Q are added to the panel's accumulators. dS stays in
 * ds for add_dq (as bf16 pairs in half, if the micro-kernel wants pairs). */
static void panel(const backward *w, const space *s, int64_t b, int64_t h, int64_t q0, int64_t r0,
                  int64_t n_q, int64_t k0, int n_k, int64_t p, char *ds, uint16_t *half) {
  const aci_flash *f = w->f;
  const aci_flash_kind *k = &w->k;
  const aci_gemm_kernel *kn = k->kn;
  int64_t steps = (f->d + kn->pair - 1) / kn->pair, a_row = steps * kn->pair * kn->bytes,
          row = k->nr * k->es;
  for (int64_t i = r0; i < n_q; i += k->mr) {
    int rows = aci_gemm_rows(kn, (int)aci_least(k->mr, n_q - i));
    kn->run(rows, k->nr, steps, s->qa + i * a_row, s->kt + p * s->kt_panel, s->s + i * row, k->nr,
            false);
    kn->run(rows, k->nr, steps, s->doa + i * a_row, s->vt + p * s->kt_panel, ds + i * row, k->nr,
            false);
  }
  aci_tile t = {f, b, h, q0 + r0, k0, n_q - r0, k->nr, false};
  int64_t at = (b * f->hq + h) * f->tq + q0 + r0, diag = f->causal ? q0 + r0 - k0 : k->nr;
  void *st = s->s + r0 * row, *dt = ds + r0 * row, *words = s->words;
  aci_drop made;
  const aci_drop *drop = aci_tile_drop(&t, words, &made);
  const bool masked = f->mask_kind != ACI_FLASH_NO_MASK, biased = f->alibi != NULL;
  const double scale = f->scale * ACI_LOG2E_64, c = masked || biased ? 1 : scale;
  if (k->acc == ACI_GEMM_F64) {
    if (masked) aci_tile_mask_f64(&t, n_k, st, scale);
    if (biased) aci_tile_alibi_f64(&t, st, masked ? 1 : scale);
    aci_tile_grad_f64(st, dt, t.rows, n_k, c, diag, (double *)(void *)w->lse2 + at,
                      (double *)(void *)w->delta + at, drop);
  } else {
    if (masked) aci_tile_mask_f32(&t, n_k, st, (float)scale);
    if (biased) aci_tile_alibi_f32(&t, st, masked ? 1 : (float)scale);
    aci_tile_grad_f32(st, dt, t.rows, n_k, (float)c, diag, (float *)(void *)w->lse2 + at,
                      (float *)(void *)w->delta + at, drop);
  }
  if (k->paired) {
    aci_tile_bf16(half + r0 * k->nr, dt, t.rows * k->nr);
    aci_tile_pairs(st, st, t.rows);
    aci_tile_pairs(dt, dt, t.rows);
  }
  int64_t tq = aci_ceil_to(n_q, kn->pair);
  for (int64_t d0 = 0; d0 < f->d; d0 += k->mr) {
    int rows = aci_gemm_rows(kn, (int)aci_least(k->mr, f->d - d0));
    int64_t from = (d0 * tq + r0 * k->mr) * kn->bytes, kc = (t.rows + kn->pair - 1) / kn->pair;
    char *dv = s->dvt + p * s->acc_panel + d0 * row, *dk = s->dkt + p * s->acc_panel + d0 * row;
    kn->run(rows, k->nr, kc, s->dot + from, st, dv, k->nr, true);
    kn->run(rows, k->nr, kc, s->qt + from, dt, dk, k->nr, true);
  }
}

/* dQ of a row panel: n panels of the group from `group` on have been computed for these rows. */
static void add_dq(const backward *w, const space *s, int64_t i, int rows, int64_t group, int64_t n,
                   char *dq) {
  const aci_flash *f = w->f;
  const aci_flash_kind *k = &w->k;
  const aci_gemm_kernel *kn = k->kn;
  for (int64_t p = 0; p < n; p++) {
    char *dst = s->dsa + p * k->nr * k->mr * kn->bytes;
    if (k->paired)
      aci_gemm_pack(kn, ACI_GEMM_BF16, dst, k->mr, false, rows, k->nr,
                    s->half + p * (s->tile / 2) + i * k->nr * 2, k->nr, 1);
    else
      aci_gemm_pack(kn, k->acc, dst, k->mr, false, rows, k->nr,
                    s->dp + p * s->tile + i * k->nr * k->es, k->nr, 1);
  }
  const char *kd = s->kd + group * s->kd_group;
  for (int64_t d0 = 0; d0 < f->d; d0 += k->nr) {
    int cols = f->d - d0 <= k->nr / 2 ? k->nr / 2 : k->nr;
    kn->run(aci_gemm_rows(kn, rows), cols, n * k->nr / kn->pair, s->dsa,
            kd + d0 * GROUP * k->nr * kn->bytes, dq + (i * w->ldq + d0) * k->es, w->ldq, true);
  }
}

/* All of one query head against the key chunk c0.. (n_c keys). dq: accumulator of the head. */
static void head(const backward *w, const space *s, int64_t b, int64_t h, int64_t c0, int64_t n_c,
                 char *dq) {
  const aci_flash *f = w->f;
  const aci_flash_grads *g = w->g;
  const aci_flash_kind *k = &w->k;
  int64_t panels = (n_c + k->nr - 1) / k->nr;
  for (int64_t q0 = f->causal ? c0 / w->cq * w->cq : 0; q0 < f->tq; q0 += w->cq) {
    int64_t n_q = aci_least(w->cq, f->tq - q0);
    const char *q = aci_flash_at(f->type, f->q, f->q_s, b, h, q0),
               *dout = aci_flash_at(f->type, g->dout, g->dout_s, b, h, q0);
    aci_gemm_pack(k->kn, f->type, s->qa, k->mr, false, n_q, f->d, q, f->q_s[2], 1);
    aci_gemm_pack(k->kn, f->type, s->qt, k->mr, false, f->d, n_q, q, 1, f->q_s[2]);
    aci_gemm_pack(k->kn, f->type, s->doa, k->mr, false, n_q, f->d, dout, g->dout_s[2], 1);
    aci_gemm_pack(k->kn, f->type, s->dot, k->mr, false, f->d, n_q, dout, 1, g->dout_s[2]);
    for (int64_t p0 = 0; p0 < panels; p0 += GROUP) {
      int64_t n_p = aci_least(GROUP, panels - p0), first[GROUP];
      for (int64_t p = 0; p < n_p; p++) {
        int64_t key = c0 + (p0 + p) * k->nr,
                r0 = f->causal && key > q0 ? (key - q0) / k->mr * k->mr : 0;
        first[p] = r0;
        if (r0 < n_q)
          panel(w, s, b, h, q0, r0, n_q, key, (int)aci_least(k->nr, c0 + n_c - key), p0 + p,
                s->dp + p * s->tile,
                (uint16_t *)(void *)(s->half + (k->paired ? p * (s->tile / 2) : 0)));
      }
      for (int64_t i = 0; i < n_q && g->dq != NULL; i += k->mr) {
        int64_t seen = 0;
        while (seen < n_p && first[seen] <= i) seen++;
        if (seen > 0)
          add_dq(w, s, i, (int)aci_least(k->mr, n_q - i), p0 / GROUP, seen,
                 dq + q0 * w->ldq * k->es);
      }
    }
  }
}

static void store_dq(const backward *w, int64_t b, int64_t h, int64_t i, int64_t rows,
                     const char *acc) {
  const aci_flash *f = w->f;
  aci_gemm_out o = {f->type, f->scale, 0, NULL};
  aci_gemm_finish(&o, (int)rows, (int)f->d, acc, w->ldq,
                  (char *)(uintptr_t)aci_flash_at(f->type, w->g->dq, w->g->dq_s, b, h, i),
                  w->g->dq_s[2], 0);
}

/* One range of keys of one key head, with all query heads that share it. This thread alone sums and
 * stores dk and dv of the range. With one range dq is stored directly. Otherwise it goes to the
 * range's own sum, which sum_piece adds up in order. Keys go in chunks of ck, which are packed
 * once: kt, vt (d x nr panels) for scores and dP, kd (keys x d) for dQ. false: out of memory. */
static bool task(const backward *w, int64_t b, int64_t hk, int64_t range) {
  const aci_flash *f = w->f;
  const aci_flash_grads *g = w->g;
  const aci_flash_kind *k = &w->k;
  int64_t share = f->hq / f->hkv, begin = range * w->range,
          end = aci_least(begin + w->range, f->tk);
  space s;
  if (!space_get(w, &s)) return false;
  char *dq = w->dq == NULL ? s.dq : w->dq + ((range * f->b + b) * f->hq + hk * share) * w->dq_head;
  memset(dq, 0, (size_t)(share * w->dq_head));
  for (int64_t c0 = begin; c0 < end; c0 += w->ck) {
    int64_t n = aci_least(w->ck, end - c0), panels = (n + k->nr - 1) / k->nr;
    const char *kp = aci_flash_at(f->type, f->k, f->k_s, b, hk, c0),
               *vp = aci_flash_at(f->type, f->v, f->v_s, b, hk, c0);
    int64_t in = aci_gemm_type_bytes(f->type);
    for (int64_t p = 0; p < panels; p++) {
      int64_t key = p * k->nr, m = aci_least(k->nr, n - key);
      aci_gemm_pack(k->kn, f->type, s.kt + p * s.kt_panel, k->nr, false, m, f->d,
                    kp + key * f->k_s[2] * in, f->k_s[2], 1);
      aci_gemm_pack(k->kn, f->type, s.vt + p * s.kt_panel, k->nr, false, m, f->d,
                    vp + key * f->v_s[2] * in, f->v_s[2], 1);
    }
    for (int64_t i = 0; i * GROUP < panels; i++) {
      /* every panel of d GROUP * nr steps long. Keys beyond the end are zeros */
      int64_t key = i * GROUP * k->nr, m = aci_least(GROUP * k->nr, n - key);
      char *dst = s.kd + i * s.kd_group;
      memset(dst, 0, (size_t)s.kd_group);
      for (int64_t d0 = 0; d0 < f->d; d0 += k->nr) {
        aci_gemm_pack(k->kn, f->type, dst + d0 * GROUP * k->nr * k->kn->bytes, k->nr, true,
                      aci_least(k->nr, f->d - d0), m, kp + key * f->k_s[2] * in + d0 * in, 1,
                      f->k_s[2]);
      }
    }
    memset(s.dkt, 0, (size_t)(panels * s.acc_panel));
    memset(s.dvt, 0, (size_t)(panels * s.acc_panel));
    for (int64_t i = 0; i < share; i++) head(w, &s, b, hk * share + i, c0, n, dq + i * w->dq_head);
    for (int64_t p = 0; p < panels; p++) {
      int64_t key = c0 + p * k->nr, m = aci_least(k->nr, end - key);
      if (g->dk != NULL)
        aci_flash_store(k, f->type, f->scale, s.dkt + p * s.acc_panel, k->nr, m, f->d,
                        (char *)(uintptr_t)aci_flash_at(f->type, g->dk, g->dk_s, b, hk, key),
                        g->dk_s[2], s.tmp);
      if (g->dv != NULL)
        aci_flash_store(k, f->type, 1, s.dvt + p * s.acc_panel, k->nr, m, f->d,
                        (char *)(uintptr_t)aci_flash_at(f->type, g->dv, g->dv_s, b, hk, key),
                        g->dv_s[2], s.tmp);
    }
  }
  if (w->dq == NULL && g->dq != NULL)
    for (int64_t i = 0; i < share; i++)
      store_dq(w, b, hk * share + i, 0, f->tq, dq + i * w->dq_head);
  return true;
}

static void task_piece(void *arg, int64_t begin, int64_t end) {
  backward *w = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t range = i % w->n_ranges, bh = i / w->n_ranges;
    if (!task(w, bh / w->f->hkv, bh % w->f->hkv, range)) w->oom = true;
  }
}

/* Adds up the ranges' dQ in order, into the first, and stores it. */
static void sum_piece(void *arg, int64_t begin, int64_t end) {
  const backward *w = arg;
  const aci_flash *f = w->f;
  int64_t per_head = (f->tq + DELTA_ROWS - 1) / DELTA_ROWS, all = f->b * f->hq * w->dq_head;
  for (int64_t t = begin; t < end; t++) {
    int64_t i = t % per_head * DELTA_ROWS, bh = t / per_head,
            rows = aci_least(DELTA_ROWS, f->tq - i);
    char *first = w->dq + bh * w->dq_head + i * w->ldq * w->k.es;
    aci_gemm_out add = {w->k.acc, 1, 1, NULL};
    for (int64_t r = 1; r < w->n_ranges; r++)
      aci_gemm_finish(&add, (int)rows, (int)w->ldq, first + r * all, w->ldq, first, w->ldq, 0);
    store_dq(w, bh / f->hq, bh % f->hq, i, rows, first);
  }
}

/* No keys or no queries: the gradients that exist are zero. */
static void zero(const aci_flash *f, void *p, const int64_t s[3], int64_t heads, int64_t length) {
  for (int64_t b = 0; b < f->b && p != NULL; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < length; i++)
        memset((char *)(uintptr_t)aci_flash_at(f->type, p, s, b, h, i), 0,
               (size_t)(f->d * aci_gemm_type_bytes(f->type)));
}

ac_status aci_flash_backward(ac_team *team, const aci_flash *f, const aci_flash_grads *g,
                             ac_err *e) {
  if (f->b * f->hq * f->d == 0) return AC_OK;
  if (f->tq == 0 || f->tk == 0) {
    zero(f, g->dq, g->dq_s, f->hq, f->tq);
    zero(f, g->dk, g->dk_s, f->hkv, f->tk);
    zero(f, g->dv, g->dv_s, f->hkv, f->tk);
    return AC_OK;
  }
  backward w = {.f = f, .g = g, .k = aci_flash_kind_of(f->type)};
  int64_t rows = f->b * f->hq * f->tq;
  w.cq = aci_ceil_to(CHUNK_QUERIES, w.k.mr);
  w.ldq = aci_ceil_to(f->d, w.k.nr);
  w.dq_head = (f->tq + w.k.mr) * w.ldq * w.k.es;
  int64_t unit = GROUP * w.k.nr;
  w.range = aci_ceil_to(f->tk, unit);
  while (w.range > 2 * unit && f->b * f->hkv * ((f->tk + w.range - 1) / w.range) < LEAST_TASKS)
    w.range = aci_ceil_to(w.range / 2, unit);
  w.n_ranges = (f->tk + w.range - 1) / w.range;
  w.ck = aci_least(aci_ceil_to(CHUNK_KEYS, unit), w.range);

  int64_t stat = aci_ceil_to(rows * w.k.es, 64),
          partial = w.n_ranges > 1 ? w.n_ranges * f->b * f->hq * w.dq_head : 0;
  char *mem = aci_scratch(ACI_SCRATCH_SHARED, (size_t)(2 * stat + partial));
  if (mem == NULL)
    return AC_FAIL(e, OOM, "out of memory for %lld bytes of scratch of attention",
                   (long long)(2 * stat + partial));
  w.delta = mem;
  w.lse2 = mem + stat;
  w.dq = partial > 0 ? mem + 2 * stat : NULL;
  ac_parallel_for(team, rows, DELTA_ROWS, delta_piece, &w);
  ac_parallel_for(team, f->b * f->hkv * w.n_ranges, 1, task_piece, &w);
  if (!w.oom && partial > 0 && g->dq != NULL)
    ac_parallel_for(team, f->b * f->hq * ((f->tq + DELTA_ROWS - 1) / DELTA_ROWS), 1, sum_piece, &w);
  if (w.oom)
    return AC_FAIL(e, OOM, "out of memory for the scratch of attention over %lld keys",
                   (long long)f->tk);
  return AC_OK;
}
