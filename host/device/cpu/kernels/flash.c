/* Attention forward. A task is a range of queries of one head. It walks over chunks of keys, packs
 * them once, and gives every block of nr queries the online softmax over the chunk:
 *
 *   S' = K Q'  (keys x nr queries, the micro-kernel's A panels are keys)     t = S' scale log2(e) +
 *              mask - ALiBi
 *   P' = 2^(t - max)                                                        in place: P' is the B
 *   panel of
 *   O' = O' 2^(old max - max) + V' P'   (d x nr)                            and O'/l is transposed
 *                                       out at the
 * end
 *
 * The maximum and the sum run down columns, so nothing is reduced within a vector. */
#include "device/cpu/kernels/flash.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "device/cpu/kernels/flash_impl.h"

enum { CHUNK_KEYS = 256, TASK_QUERIES = 512 };

void aci_flash_store(const aci_flash_kind *k, aci_gemm_type type, double alpha, const void *x,
                     int64_t ldx, int64_t n, int64_t d, void *out, int64_t out_stride, void *tmp) {
  aci_gemm_out o = {type, alpha, 0, NULL};
  for (int64_t d0 = 0; d0 < d; d0 += 32) {
    int w = (int)aci_least(32, d - d0);
    aci_gemm_pack(k->wide, k->acc, tmp, 32, false, w, n, (const char *)x + d0 * ldx * k->es, ldx,
                  1);
    aci_gemm_finish(&o, (int)n, w, tmp, 32, (char *)out + d0 * aci_gemm_type_bytes(type),
                    out_stride, 0);
  }
}

int64_t aci_flash_rows(int64_t heads, int64_t length, int64_t most, int64_t least) {
  int64_t rows = most;
  while (rows > least && heads * ((length + rows - 1) / rows) < 32) rows /= 2;
  return rows;
}

typedef struct forward {
  const aci_flash *f;
  aci_flash_kind k;
  int64_t chunk, rows, n_ranges; /* keys per chunk. Queries per task. Tasks per head */
  _Atomic bool oom;
} forward;

/* Scratch of a task. State of a query block: O' ((d + mr) x nr), m (nr), l (nr). */
typedef struct space {
  char *kp, *vp, *qp, *tile, *words, *tmp, *state;
  int64_t state_bytes;
} space;

static bool space_get(const forward *w, space *s) {
  const aci_flash_kind *k = &w->k;
  const aci_flash *f = w->f;
  int64_t n_blocks = (w->rows + k->nr - 1) / k->nr;
  int64_t kp = aci_flash_packed(k, w->chunk, k->mr, f->d),
          vp = aci_flash_packed(k, f->d, k->mr, w->chunk);
  int64_t qp = aci_flash_packed(k, k->nr, k->nr, f->d),
          tile = aci_ceil_to((w->chunk + k->mr) * k->nr * k->es, 64);
  int64_t words = f->drop_p > 0 ? aci_ceil_to((w->chunk + 4) * k->nr * 4, 64) : 0,
          tmp = aci_ceil_to((k->nr + 1) * 32 * k->es, 64);
  s->state_bytes = aci_ceil_to((f->d + k->mr + 2) * k->nr * k->es, 64);
  char *p = aci_scratch(ACI_SCRATCH_TILE,
                        (size_t)(kp + vp + qp + tile + words + tmp + n_blocks * s->state_bytes));
  if (p == NULL) return false;
  s->kp = p;
  s->vp = s->kp + kp;
  s->qp = s->vp + vp;
  s->tile = s->qp + qp;
  s->words = s->tile + tile;
  s->tmp = s->words + words;
  s->state = s->tmp + tmp;
  return true;
}

#define S f32
#define T float
#include "device/cpu/kernels/flash_softmax.h"

#define S f64
#define T double
#include "device/cpu/kernels/flash_softmax.h"

/* Query block of n_q queries from q0 over keys c0.., n_keys of them, packed in s. */
static void block(const forward *w, const space *s, int64_t b, int64_t h, int64_t q0, int n_q,
                  int64_t c0, int64_t n_keys, char *o) {
  const aci_flash *f = w->f;
  const aci_flash_kind *k = &w->k;
  const aci_gemm_kernel *kn = k->kn;
  int64_t dp = aci_ceil_to(f->d, kn->pair);
  aci_gemm_pack(kn, f->type, s->qp, k->nr, false, n_q, f->d,
                aci_flash_at(f->type, f->q, f->q_s, b, h, q0), f->q_s[2], 1);
  for (int64_t i = 0; i < n_keys; i += k->mr)
    kn->run(aci_gemm_rows(kn, (int)aci_least(k->mr, n_keys - i)), k->nr, dp / kn->pair,
            s->kp + i * dp * kn->bytes, s->qp, s->tile + i * k->nr * k->es, k->nr, false);

  aci_tile t = {f, b, h, c0, q0, n_keys, k->nr, true};
  void *tile = s->tile, *words = s->words, *state = o;
  if (k->acc == ACI_GEMM_F64) softmax_f64(w, &t, n_q, tile, words, state, c0 == 0);
  else softmax_f32(w, &t, n_q, tile, words, state, c0 == 0);
  if (k->paired) aci_tile_pairs(tile, tile, n_keys);

  int64_t cp = aci_ceil_to(aci_least(w->chunk, f->tk - c0),
                           kn->pair); /* as V was packed: maybe more keys than are seen */
  for (int64_t d0 = 0; d0 < f->d; d0 += k->mr)
    kn->run(aci_gemm_rows(kn, (int)aci_least(k->mr, f->d - d0)), k->nr,
            (n_keys + kn->pair - 1) / kn->pair, s->vp + d0 * cp * kn->bytes, s->tile,
            o + d0 * k->nr * k->es, k->nr, c0 > 0);
}

#define FINISH(S, T)                                                                          \
  static void finish_##S(const forward *w, int64_t b, int64_t h, int64_t q0, int n_q, T *o) { \
    const aci_flash *f = w->f;                                                                \
    T *m = o + (f->d + w->k.mr) * w->k.nr, *l = m + w->k.nr, by[ACI_GEMM_NR_MAX],             \
      lse[ACI_GEMM_NR_MAX];                                                                   \
    aci_tile_lse_##S(m, l, by, lse);                                                          \
    if (f->lse != NULL)                                                                       \
      memcpy((T *)f->lse + (b * f->hq + h) * f->tq + q0, lse, (size_t)n_q * sizeof(T));       \
    aci_tile_scale_##S(o, f->d, by);                                                          \
  }
FINISH(f32, float)
FINISH(f64, double)

static bool task(const forward *w, int64_t b, int64_t h, int64_t q_begin, int64_t q_end) {
  const aci_flash *f = w->f;
  const aci_flash_kind *k = &w->k;
  space s;
  if (!space_get(w, &s)) return false;
  int64_t hk = h / (f->hq / f->hkv), seen = f->causal ? aci_least(f->tk, q_end) : f->tk;
  for (int64_t c0 = 0; c0 < seen; c0 += w->chunk) {
    int64_t n = aci_least(w->chunk, f->tk - c0);
    aci_gemm_pack(k->kn, f->type, s.kp, k->mr, false, n, f->d,
                  aci_flash_at(f->type, f->k, f->k_s, b, hk, c0), f->k_s[2], 1);
    aci_gemm_pack(k->kn, f->type, s.vp, k->mr, false, f->d, n,
                  aci_flash_at(f->type, f->v, f->v_s, b, hk, c0), 1, f->v_s[2]);
    for (int64_t q0 = q_begin; q0 < q_end; q0 += k->nr) {
      int n_q = (int)aci_least(k->nr, q_end - q0);
      int64_t n_keys = f->causal ? aci_least(n, q0 + n_q - c0) : n;
      if (n_keys > 0)
        block(w, &s, b, h, q0, n_q, c0, n_keys, s.state + (q0 - q_begin) / k->nr * s.state_bytes);
    }
  }
  for (int64_t q0 = q_begin; q0 < q_end; q0 += k->nr) {
    int n_q = (int)aci_least(k->nr, q_end - q0);
    void *o = s.state + (q0 - q_begin) / k->nr * s.state_bytes;
    if (seen == 0) memset(o, 0, (size_t)s.state_bytes);
    if (k->acc == ACI_GEMM_F64) finish_f64(w, b, h, q0, n_q, o);
    else finish_f32(w, b, h, q0, n_q, o);
    aci_flash_store(k, f->type, 1, o, k->nr, n_q, f->d,
                    (char *)(uintptr_t)aci_flash_at(f->type, f->out, f->out_s, b, h, q0),
                    f->out_s[2], s.tmp);
  }
  return true;
}

static void piece(void *arg, int64_t begin, int64_t end) {
  forward *w = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t range = i % w->n_ranges, bh = i / w->n_ranges, q0 = range * w->rows;
    if (!task(w, bh / w->f->hq, bh % w->f->hq, q0, aci_least(q0 + w->rows, w->f->tq)))
      w->oom = true;
  }
}

ac_status aci_flash_forward(ac_team *team, const aci_flash *f, ac_err *e) {
  if (f->b * f->hq * f->tq * f->d == 0 || aci_flash_decode(team, f)) return AC_OK;
  forward w = {.f = f, .k = aci_flash_kind_of(f->type)};
  /* dropout draws 4 keys at once */
  w.chunk = aci_ceil_to(CHUNK_KEYS, w.k.mr % 4 == 0 ? w.k.mr : 2 * w.k.mr);
  w.rows = aci_flash_rows(f->b * f->hq, f->tq, TASK_QUERIES, w.k.nr);
  w.n_ranges = (f->tq + w.rows - 1) / w.rows;
  ac_parallel_for(team, f->b * f->hq * w.n_ranges, 1, piece, &w);
  if (w.oom)
    return AC_FAIL(e, OOM, "out of memory for the scratch of attention over %lld keys",
                   (long long)f->tk);
  return AC_OK;
}
