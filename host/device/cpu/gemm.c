/* The matrix product of the CPU: choice of path, cut into tiles, and the tile loop around the micro-kernels.
 *
 * Three plans. Shared: B is packed once for everybody before tiles of C are computed, and A too unless its rows can
 * be read where they lie, or it is huge (then every tile packs its rows); for products with many rows. Own: every
 * tile packs its part of both operands; for batches of small products and for few rows, where B is read about once
 * anyway. Thin: gemm_thin.c. All cut by shape alone. */
#include "device/cpu/gemm.h"

#include <stdatomic.h>

#include "device/cpu/gemm_impl.h"
#include "device/cpu/onednn.h"

enum {
  KC_BYTES = 1536,        /* of one row of a packed block: an A panel and a B panel together fit L1 */
  TN_MAX = 512,           /* columns of a tile: its packed B stays in L2 */
  SHARED_BYTES = 8 << 20, /* of packed B at a time */
  SHARED_A_BYTES = 16 << 20,
  MANY_TASKS = 40,        /* enough to balance a few dozen threads */
  OWN_FLOPS = 1 << 20,    /* a piece of work worth handing out, of many */
  LEAST_FLOPS = 1 << 19,  /* and of few */
  FEW_TASKS = 12,
  TN_OWN = 256,
};
static const double SHARED_FLOPS = 8e6; /* a product of the batch that gets a pass of its own */

typedef struct plan {
  const aci_gemm *g;
  const aci_gemm_kernel *kn;
  aci_gemm_out out;  /* with the bias in the accumulator's type */
  aci_gemm_type acc; /* F32 or F64 */
  bool direct;       /* accumulators may be added up in C itself */
  bool rows;         /* whole panels of A are read where they lie */
  int64_t kc, n_kb;
  int64_t tm, tn, n_mt, n_nt;
  /* shared plan: columns j0.. of batch entry b, packed, and all its rows (NULL: not) */
  int64_t b, j0, cols;
  char *packed_b, *packed_a;
  _Atomic bool *oom;
} plan;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t block_len(const plan *p, int64_t kb) { return aci_gemm_min(p->kc, p->g->k - kb * p->kc); }

/* Rows (columns) of a packed operand that lie before block kb of its row i: the whole operand, padded to
 * panels, block by block. */
static int64_t packed_at(int64_t extent, int panel, int64_t k0, int64_t kp, int64_t i) {
  return k0 * ceil_div(extent, panel) * panel + i * kp;
}

static inline void multiply(const plan *p, bool lies, int rows, int cols, int64_t steps, const char *a, const char *b,
                            void *c, int64_t ldc, bool add) {
  if (lies) p->kn->run_rows(cols, steps, a, p->g->a_rs * p->kn->bytes, b, c, ldc, add);
  else p->kn->run(rows, cols, steps, a, b, c, ldc, add);
}

/* Columns of B, `at` elements into batch entry b, in panels. */
static void pack_b(const plan *p, int64_t b, int64_t at, int64_t cols, int64_t kc, void *dst) {
  const aci_gemm *g = p->g;
  if (g->round_b) {
    const float *src = g->b[b] == NULL ? NULL : (const float *)g->b[b] + at;
    aci_gemm_pack_rounded(p->kn, dst, p->kn->nr, true, cols, kc, src, g->b_cs, g->b_rs);
  } else {
    aci_gemm_pack(p->kn, g->in_type, dst, p->kn->nr, true, cols, kc, aci_gemm_at(g->b[b], g->in_type, at), g->b_cs, g->b_rs);
  }
}

/* One tile of C: rows i0.., columns j0.. of batch entry b. What the plan has not packed is packed here.
 * false: out of memory. */
static bool run_tile(const plan *p, int64_t b, int64_t i0, int64_t rows, int64_t j0, int64_t cols) {
  const aci_gemm *g = p->g;
  const aci_gemm_kernel *kn = p->kn;
  int acc_bytes = aci_gemm_type_bytes(p->acc);
  const int64_t lying = p->rows ? rows - rows % kn->mr : 0; /* whole panels of rows as they are */
  const int64_t packed = p->packed_a != NULL ? rows : lying; /* rows not to pack here */
  const int64_t row_bytes = g->a_rs * aci_gemm_type_bytes(g->in_type);
  int64_t a_bytes = (aci_gemm_packed_bytes(kn, rows - packed, kn->mr, p->kc) + 63) / 64 * 64;
  int64_t b_bytes = p->packed_b != NULL ? 0 : (aci_gemm_packed_bytes(kn, cols, kn->nr, p->kc) + 63) / 64 * 64;
  /* accumulators: of one micro-tile when k is one block or C holds the sum, else of the whole tile */
  bool whole = p->n_kb > 1 && !p->direct;
  int64_t ldt = whole ? ceil_div(cols, kn->nr) * kn->nr : kn->nr;
  int64_t t_bytes = (whole ? ceil_div(rows, kn->mr) * kn->mr : kn->mr) * ldt * acc_bytes;
  char *pa = aci_scratch(ACI_SCRATCH_TILE, (size_t)(a_bytes + b_bytes + t_bytes));
  if (pa == NULL) return false;
  char *pb = pa + a_bytes, *tile = pb + b_bytes;

  for (int64_t kb = 0; kb < p->n_kb; kb++) {
    int64_t k0 = kb * p->kc, kc = block_len(p, kb), steps = ceil_div(kc, kn->pair), kp = steps * kn->pair;
    const char *block_a = pa, *block_b = pb;
    const char *rows_a = aci_gemm_at(g->a[b], g->in_type, i0 * g->a_rs + k0 * g->a_cs);
    if (p->packed_a != NULL)
      block_a = p->packed_a + packed_at(g->m, kn->mr, k0, kp, i0) * kn->bytes;
    else if (packed < rows)
      aci_gemm_pack(kn, g->in_type, pa, kn->mr, false, rows - packed, kc,
                    aci_gemm_at(rows_a, g->in_type, packed * g->a_rs), g->a_rs, g->a_cs);
    if (p->packed_b != NULL)
      block_b = p->packed_b + packed_at(p->cols, kn->nr, k0, kp, j0 - p->j0) * kn->bytes;
    else
      pack_b(p, b, k0 * g->b_rs + j0 * g->b_cs, cols, kc, pb);
    bool last = kb == p->n_kb - 1;

    for (int64_t j = 0; j < cols; j += kn->nr) {
      int nc = (int)aci_gemm_min(kn->nr, cols - j), width = nc <= kn->nr / 2 ? kn->nr / 2 : kn->nr;
      for (int64_t i = 0; i < rows; i += kn->mr) {
        int nr = (int)aci_gemm_min(kn->mr, rows - i), computed = aci_gemm_rows(kn, nr);
        const bool lies = i < lying;
        const char *panel_a = lies ? rows_a + i * row_bytes : block_a + (i - lying) * kp * kn->bytes;
        const char *panel_b = block_b + j * kp * kn->bytes;
        char *c = (char *)g->c[b] + ((i0 + i) * g->c_rs + j0 + j) * aci_gemm_type_bytes(g->out_type);
        if (p->direct) {
          bool add = kb > 0 || g->beta != 0;
          if (computed == nr && width == nc) {
            multiply(p, lies, nr, nc, steps, panel_a, panel_b, c, g->c_rs, add);
          } else {
            multiply(p, lies, computed, width, steps, panel_a, panel_b, tile, ldt, false);
            aci_gemm_out edge = {g->out_type, 1, add, NULL};
            aci_gemm_finish(&edge, nr, nc, tile, ldt, c, g->c_rs, 0);
          }
        } else {
          char *t = whole ? tile + (i * ldt + j) * acc_bytes : tile;
          multiply(p, lies, computed, width, steps, panel_a, panel_b, t, ldt, kb > 0);
          if (last) aci_gemm_finish(&p->out, nr, nc, t, ldt, c, g->c_rs, j0 + j);
        }
      }
    }
  }
  return true;
}

/* ---- own plan: one index over batch entries, row tiles, column tiles ---- */
static void own_piece(void *arg, int64_t begin, int64_t end) {
  const plan *p = arg;
  for (int64_t t = begin; t < end; t++) {
    int64_t jt = t % p->n_nt, it = t / p->n_nt % p->n_mt, b = t / p->n_nt / p->n_mt;
    int64_t i0 = it * p->tm, j0 = jt * p->tn;
    if (!run_tile(p, b, i0, aci_gemm_min(p->tm, p->g->m - i0), j0, aci_gemm_min(p->tn, p->g->n - j0))) *p->oom = true;
  }
}

static void run_own(ac_team *team, plan *p) {
  const aci_gemm *g = p->g;
  p->tm = aci_gemm_min(g->m, (int64_t)p->kn->mr * 12);
  p->n_mt = ceil_div(g->m, p->tm);
  p->n_nt = ceil_div(g->n, TN_OWN);
  /* one product in few tiles: narrower ones, down to what is worth handing out, so that all threads have some */
  const double total = 2.0 * (double)g->m * (double)g->n * (double)g->k * (double)g->n_batch / LEAST_FLOPS;
  const int64_t want = total < FEW_TASKS ? (int64_t)total : FEW_TASKS;
  const int64_t others = g->n_batch * p->n_mt;
  if (others * p->n_nt < want) p->n_nt = aci_gemm_min(ceil_div(want, others), ceil_div(g->n, p->kn->nr));
  p->tn = ceil_div(ceil_div(g->n, p->n_nt), p->kn->nr) * p->kn->nr;
  p->n_nt = ceil_div(g->n, p->tn);
  double flops = 2.0 * (double)p->tm * (double)p->tn * (double)(g->k + 8);
  int64_t grain = flops >= OWN_FLOPS ? 1 : (int64_t)(OWN_FLOPS / flops);
  ac_parallel_for(team, g->n_batch * p->n_mt * p->n_nt, grain, own_piece, p);
}

/* ---- shared plan ---- */
enum { PACK_PANELS = 4 };

/* Panels of an operand, from row `first`; B's from the chunk's. */
static void pack_rows(const plan *p, bool b, int64_t first, int64_t end) {
  const aci_gemm *g = p->g;
  const aci_gemm_kernel *kn = p->kn;
  const int panel = b ? kn->nr : kn->mr;
  const int64_t extent = b ? p->cols : g->m, n = aci_gemm_min(end, extent) - first;
  for (int64_t kb = 0; kb < p->n_kb; kb++) {
    int64_t k0 = kb * p->kc, kc = block_len(p, kb), kp = ceil_div(kc, kn->pair) * kn->pair;
    char *dst = (b ? p->packed_b : p->packed_a) + packed_at(extent, panel, k0, kp, first) * kn->bytes;
    if (b) pack_b(p, p->b, k0 * g->b_rs + (p->j0 + first) * g->b_cs, n, kc, dst);
    else
      aci_gemm_pack(kn, g->in_type, dst, panel, false, n, kc,
                    aci_gemm_at(g->a[p->b], g->in_type, k0 * g->a_cs + first * g->a_rs), g->a_rs, g->a_cs);
  }
}

static void pack_piece_a(void *arg, int64_t begin, int64_t end) {
  const plan *p = arg;
  pack_rows(p, false, begin * 2 * PACK_PANELS * p->kn->mr, end * 2 * PACK_PANELS * p->kn->mr);
}

static void pack_piece_b(void *arg, int64_t begin, int64_t end) {
  const plan *p = arg;
  pack_rows(p, true, begin * PACK_PANELS * p->kn->nr, end * PACK_PANELS * p->kn->nr);
}

static void shared_piece(void *arg, int64_t begin, int64_t end) {
  const plan *p = arg;
  for (int64_t t = begin; t < end; t++) {
    int64_t i0 = t % p->n_mt * p->tm, j = t / p->n_mt * p->tn; /* neighbours share their columns of B */
    if (!run_tile(p, p->b, i0, aci_gemm_min(p->tm, p->g->m - i0), p->j0 + j, aci_gemm_min(p->tn, p->cols - j)))
      *p->oom = true;
  }
}

/* Columns per chunk, so that the packed chunk stays below SHARED_BYTES. */
static int64_t chunk_cols(const plan *p) {
  int64_t fit = SHARED_BYTES / ((p->g->k + p->kn->pair) * p->kn->bytes) / p->kn->nr * p->kn->nr;
  int64_t least = 4 * (int64_t)p->kn->nr;
  return aci_gemm_min(fit > least ? fit : least, ceil_div(p->g->n, p->kn->nr) * p->kn->nr);
}

static void run_shared(ac_team *team, plan *p, int64_t chunk) {
  const aci_gemm *g = p->g;
  int64_t unit = p->kn->nr;
  for (p->b = 0; p->b < g->n_batch; p->b++) {
    if (p->packed_a != NULL)
      ac_parallel_for(team, ceil_div(g->m, 2 * PACK_PANELS * p->kn->mr), 1, pack_piece_a, p);
    for (p->j0 = 0; p->j0 < g->n; p->j0 += chunk) {
      p->cols = aci_gemm_min(chunk, g->n - p->j0);
      p->n_nt = ceil_div(p->cols, TN_MAX);
      p->tn = ceil_div(ceil_div(p->cols, p->n_nt), unit) * unit;
      p->n_nt = ceil_div(p->cols, p->tn);
      /* 56 rows where that leaves enough tiles, down to one panel where it does not */
      int64_t panels = 56 / p->kn->mr;
      while (panels > 1 && ceil_div(g->m, panels * p->kn->mr) * p->n_nt < MANY_TASKS) panels /= 2;
      p->tm = panels * p->kn->mr;
      p->n_mt = ceil_div(g->m, p->tm);
      ac_parallel_for(team, ceil_div(p->cols, PACK_PANELS * unit), 1, pack_piece_b, p);
      ac_parallel_for(team, p->n_mt * p->n_nt, 1, shared_piece, p);
    }
  }
}

/* ---- entry ---- */
static bool is_float(aci_gemm_type t) { return t <= ACI_GEMM_F16; }

static ac_status check(const aci_gemm *g, ac_err *e) {
  bool narrow = g->in_type == ACI_GEMM_BF16 || g->in_type == ACI_GEMM_F16;
  if (g->out_type != g->in_type && !(narrow && g->out_type == ACI_GEMM_F32))
    return AC_FAIL(e, UNSUPPORTED, "matrix product of types %d -> %d", (int)g->in_type, (int)g->out_type);
  if (g->round_b && g->in_type != ACI_GEMM_BF16)
    return AC_FAIL(e, UNSUPPORTED, "matrix product of type %d with an f32 matrix to round", (int)g->in_type);
  if (g->bias != NULL && !is_float(g->bias_type) && g->bias_type != g->in_type)
    return AC_FAIL(e, UNSUPPORTED, "matrix product of type %d with a bias of type %d", (int)g->in_type,
                   (int)g->bias_type);
  return AC_OK;
}

/* The bias in the accumulator's type; dst has room for n of them, or is unused when the type is right
 * already. */
static const void *bias_as(aci_gemm_type acc, aci_gemm_type type, const void *bias, int64_t n, void *dst) {
  if (type == acc) return bias;
  for (int64_t j = 0; j < n; j++) {
    double v = aci_gemm_load(type, bias, j);
    if (acc == ACI_GEMM_F64) ((double *)dst)[j] = v;
    else ((float *)dst)[j] = (float)v;
  }
  return dst;
}

static ac_status run_blocked(ac_team *team, const aci_gemm *g, ac_err *e) {
  _Atomic bool oom = false;
  plan p = {.g = g, .kn = aci_gemm_kernel_for(g->in_type), .oom = &oom};
  p.acc = g->in_type == ACI_GEMM_F64 ? ACI_GEMM_F64 : ACI_GEMM_F32;
  int64_t kc_max = KC_BYTES / p.kn->bytes;
  p.n_kb = g->k > kc_max ? ceil_div(g->k, kc_max) : 1;
  p.kc = ceil_div(ceil_div(g->k, p.n_kb), 8) * 8;
  if (p.kc > 0) p.n_kb = ceil_div(g->k, p.kc);
  p.direct = g->out_type == p.acc && g->alpha == 1 && (g->beta == 0 || g->beta == 1) && g->bias == NULL;
  p.out = (aci_gemm_out){g->out_type, g->alpha, g->beta, NULL};

  double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
  const bool thin = aci_gemm_thin_fits(g, p.kn);
  const bool shared = !thin && g->m > 2 * (int64_t)p.kn->mr && flops >= SHARED_FLOPS;
  aci_gemm_thin few = {.g = g, .kn = p.kn, .acc = p.acc, .kc = p.kc, .n_kb = p.n_kb, .oom = &oom};
  int64_t chunk = shared ? chunk_cols(&p) : 0;
  int64_t b_bytes = shared ? chunk * ceil_div(g->k, p.kn->pair) * p.kn->pair * p.kn->bytes + 64 : 0;
  p.rows = g->a_cs == 1 && aci_gemm_rows_lie(p.kn, g->in_type, g->k, g->a_rs);
  int64_t a_bytes = 0;
  if (thin) b_bytes = (int64_t)aci_gemm_thin_bytes(&few);
  if (shared && !p.rows) a_bytes = (aci_gemm_packed_bytes(p.kn, g->m, p.kn->mr, g->k + 8 * p.n_kb) + 63) / 64 * 64;
  if (a_bytes > SHARED_A_BYTES) a_bytes = 0;
  int64_t bias_bytes = g->bias != NULL && g->bias_type != p.acc ? g->n * aci_gemm_type_bytes(p.acc) : 0;
  char *mem = NULL;
  b_bytes = (b_bytes + 63) / 64 * 64;
  if (b_bytes + a_bytes + bias_bytes > 0) {
    mem = aci_scratch(ACI_SCRATCH_SHARED, (size_t)(b_bytes + a_bytes + bias_bytes));
    if (mem == NULL)
      return AC_FAIL(e, OOM, "out of memory for %lld bytes of packed operands",
                     (long long)(b_bytes + a_bytes + bias_bytes));
  }
  if (g->bias != NULL)
    p.out.bias = bias_as(p.acc, g->bias_type, g->bias, g->n, mem == NULL ? NULL : mem + b_bytes + a_bytes);
  if (shared) p.packed_b = mem;
  if (a_bytes > 0) p.packed_a = mem + b_bytes;
  few.out = p.out;
  if (thin) aci_gemm_thin_run(team, &few, mem);
  else if (shared) run_shared(team, &p, chunk);
  else run_own(team, &p);
  if (oom)
    return AC_FAIL(e, OOM, "out of memory for the packed operands of a %lld x %lld x %lld matrix product",
                   (long long)g->m, (long long)g->n, (long long)g->k);
  return AC_OK;
}

const char *aci_cpu_gemm_path(const aci_gemm *g) {
  if (!is_float(g->in_type)) return "reference";
  return aci_onednn_wants(g) ? "onednn" : aci_gemm_split_wants(g) ? "split" : "small";
}

ac_status aci_cpu_gemm(ac_team *team, const aci_gemm *g, ac_err *e) {
  AC_TRY(check(g, e));
  if (g->m <= 0 || g->n <= 0 || g->n_batch <= 0) return AC_OK;
  if (!is_float(g->in_type)) {
    aci_gemm_integer(team, g);
    return AC_OK;
  }
  if (aci_onednn_wants(g) && aci_onednn_gemm(team, g)) return AC_OK;
  ac_status st;
  if (aci_gemm_split_wants(g) && aci_gemm_split(team, g, &st, e)) return st;
  return run_blocked(team, g, e);
}
