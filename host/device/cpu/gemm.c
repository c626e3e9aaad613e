/* The matrix product of the CPU: choice of path, cut into tiles, and the tile loop around the
 * micro-kernels.
 *
 * Five plans. Shared: B is packed once for all threads before tiles of C are computed. A is packed
 * as well, unless its rows can be read in place or it is huge (then every tile packs its rows). For
 * products with many rows. Columns: tiles of all rows, each of which packs its columns of B and
 * multiplies while they are in L2. For some hundred rows. Own: every tile packs its part of both
 * operands. For batches of small products and for few rows, for which B is read about once anyway.
 * Skinny: gemm_skinny.c. Few: gemm_few.c. The shape alone decides how an element is added up. The
 * number of threads decides only who computes it.
 *
 * Shared and columns go over k in groups of blocks, so that each packed group stays in the caches.
 * The groups' sums are added up in C itself if it has the accumulator's type, otherwise, for a long
 * k, in separate memory. */
#include "device/cpu/gemm.h"

#include <stdatomic.h>

#include "device/cpu/gemm_impl.h"
#include "device/cpu/onednn.h"

enum {
  KC_BYTES = 1536,        /* of one row of a packed block: long enough that C is rarely touched */
  TN_MAX = 512,           /* columns of a tile: its packed B stays in L2 */
  SHARED_BYTES = 8 << 20, /* of packed B at a time */
  /* of packed B, all columns, for one group of k if C itself holds the sums */
  GROUP_BYTES = 4 << 20,
  SHARED_A_BYTES = 16 << 20,
  SUM_BYTES = 16 << 20,  /* of a sum outside C */
  LONG_K_COLS = 512,     /* k is long if fewer whole columns are packed at a time */
  LYING_BYTES = 2000,    /* of a packed row of B: below, A is not worth packing */
  MANY_TASKS = 40,       /* enough to balance a few dozen threads */
  OWN_FLOPS = 1 << 20,   /* a piece of work worth handing out, of many */
  LEAST_FLOPS = 1 << 19, /* and of few */
  FEW_TASKS = 12,
  TN_OWN = 256,
  COLUMNS_ROWS = 512, /* the most rows of the columns plan: a block of A stays in L2 as well */
  COLUMNS_TN = 256,
  TASKS_A_THREAD = 4,
};
static const double SHARED_FLOPS = 8e6; /* a product of the batch that gets a pass of its own */

typedef struct plan {
  const aci_gemm *g;
  const aci_gemm_kernel *kn;
  aci_gemm_out out;  /* with the bias in the accumulator's type */
  aci_gemm_type acc; /* F32 or F64 */
  bool direct;       /* accumulators may be added up in C itself */
  bool rows;         /* whole panels of A are read in place */
  int64_t kc, n_kb;
  int64_t kb0, kb1, group; /* blocks of k at a time */
  int64_t tm, tn, n_mt, n_nt;
  /* shared and columns plan: columns j0.. of batch entry b, packed, and all its rows (NULL: not
   * packed). From block kb0 */
  int64_t b, j0, cols;
  char *packed_b, *packed_a;
  char *sum; /* m x n accumulators outside C, or NULL */
  _Atomic bool *oom;
} plan;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t block_len(const plan *p, int64_t kb) {
  return aci_gemm_min(p->kc, p->g->k - kb * p->kc);
}

/* Values of a packed operand before row (column) i of the block at k0, kp wide: from block kb0 on,
 * padded to panels, block by block. */
static int64_t packed_at(const plan *p, int64_t extent, int panel, int64_t k0, int64_t kp,
                         int64_t i) {
  return (k0 - p->kb0 * p->kc) * ceil_div(extent, panel) * panel + i * kp;
}

static inline void multiply(const plan *p, bool lies, int rows, int cols, int64_t steps,
                            const char *a, const char *b, void *c, int64_t ldc, bool add) {
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
    aci_gemm_pack(p->kn, g->in_type, dst, p->kn->nr, true, cols, kc,
                  aci_gemm_at(g->b[b], g->in_type, at), g->b_cs, g->b_rs);
  }
}

/* One tile of C: rows i0.., columns j0.. of batch entry b, over the plan's blocks of k. Operands
 * that the plan has not packed are packed here, into the thread's scratch: A's panels, B's panels,
 * accumulators. Operands of a micro-kernel are A [k][mr] and B [k][nr]. Edges of the tile are
 * computed at the next width that has a kernel, into scratch, and only their part is stored. false:
 * out of memory. */
static bool run_tile(const plan *p, int64_t b, int64_t i0, int64_t rows, int64_t j0, int64_t cols) {
  const aci_gemm *g = p->g;
  const aci_gemm_kernel *kn = p->kn;
  int acc_bytes = aci_gemm_type_bytes(p->acc);
  const int64_t lying = p->rows ? rows - rows % kn->mr : 0;  /* whole panels of rows as they are */
  const int64_t packed = p->packed_a != NULL ? rows : lying; /* rows not to pack here */
  const int64_t row_bytes = g->a_rs * aci_gemm_type_bytes(g->in_type);
  int64_t a_bytes = aci_gemm_lines(aci_gemm_packed_bytes(kn, rows - packed, kn->mr, p->kc));
  int64_t b_bytes =
      p->packed_b != NULL ? 0 : aci_gemm_lines(aci_gemm_packed_bytes(kn, cols, kn->nr, p->kc));
  /* accumulators: of one micro-tile when k is one block or C holds the sum, else of the whole
   * tile */
  bool whole = p->n_kb > 1 && !p->direct;
  int64_t ldt = whole ? ceil_div(cols, kn->nr) * kn->nr : kn->nr;
  int64_t t_bytes = (whole ? ceil_div(rows, kn->mr) * kn->mr : kn->mr) * ldt * acc_bytes;
  char *pa = aci_scratch(ACI_SCRATCH_TILE, (size_t)(a_bytes + b_bytes + t_bytes));
  if (pa == NULL) return false;
  char *pb = pa + a_bytes, *tile = pb + b_bytes;
  char *to = p->sum != NULL ? p->sum : g->c[b];
  const int64_t to_rs = p->sum != NULL ? g->n : g->c_rs,
                to_bytes = p->sum != NULL ? acc_bytes : aci_gemm_type_bytes(g->out_type);

  for (int64_t kb = p->kb0; kb < p->kb1; kb++) {
    int64_t k0 = kb * p->kc, kc = block_len(p, kb), steps = ceil_div(kc, kn->pair),
            kp = steps * kn->pair;
    const char *block_a = pa, *block_b = pb;
    const char *rows_a = aci_gemm_at(g->a[b], g->in_type, i0 * g->a_rs + k0 * g->a_cs);
    if (p->packed_a != NULL)
      block_a = p->packed_a + packed_at(p, g->m, kn->mr, k0, kp, i0) * kn->bytes;
    else if (packed < rows)
      aci_gemm_pack(kn, g->in_type, pa, kn->mr, false, rows - packed, kc,
                    aci_gemm_at(rows_a, g->in_type, packed * g->a_rs), g->a_rs, g->a_cs);
    if (p->packed_b != NULL)
      block_b = p->packed_b + packed_at(p, p->cols, kn->nr, k0, kp, j0 - p->j0) * kn->bytes;
    else pack_b(p, b, k0 * g->b_rs + j0 * g->b_cs, cols, kc, pb);
    bool last = kb == p->n_kb - 1;

    for (int64_t j = 0; j < cols; j += kn->nr) {
      int nc = (int)aci_gemm_min(kn->nr, cols - j), width = nc <= kn->nr / 2 ? kn->nr / 2 : kn->nr;
      for (int64_t i = 0; i < rows; i += kn->mr) {
        int nr = (int)aci_gemm_min(kn->mr, rows - i), computed = aci_gemm_rows(kn, nr);
        const bool lies = i < lying;
        const char *panel_a =
            lies ? rows_a + i * row_bytes : block_a + (i - lying) * kp * kn->bytes;
        const char *panel_b = block_b + j * kp * kn->bytes;
        char *c = to + ((i0 + i) * to_rs + j0 + j) * to_bytes;
        if (p->direct) {
          bool add = kb > 0 || (p->sum == NULL && g->beta != 0);
          if (computed == nr && width == nc) {
            multiply(p, lies, nr, nc, steps, panel_a, panel_b, c, to_rs, add);
          } else {
            multiply(p, lies, computed, width, steps, panel_a, panel_b, tile, ldt, false);
            aci_gemm_out edge = {p->acc, 1, add, NULL};
            aci_gemm_finish(&edge, nr, nc, tile, ldt, c, to_rs, 0);
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
    if (!run_tile(p, b, i0, aci_gemm_min(p->tm, p->g->m - i0), j0,
                  aci_gemm_min(p->tn, p->g->n - j0)))
      *p->oom = true;
  }
}

static void run_own(ac_team *team, plan *p) {
  const aci_gemm *g = p->g;
  p->tm = aci_gemm_min(g->m, (int64_t)p->kn->mr * 12);
  p->n_mt = ceil_div(g->m, p->tm);
  p->n_nt = ceil_div(g->n, TN_OWN);
  /* one product in few tiles: use narrower ones, down to the smallest piece worth handing out, so
   * that all threads have work */
  const double total =
      2.0 * (double)g->m * (double)g->n * (double)g->k * (double)g->n_batch / LEAST_FLOPS;
  const int64_t want = total < FEW_TASKS ? (int64_t)total : FEW_TASKS;
  const int64_t others = g->n_batch * p->n_mt;
  if (others * p->n_nt < want)
    p->n_nt = aci_gemm_min(ceil_div(want, others), ceil_div(g->n, p->kn->nr));
  p->tn = ceil_div(ceil_div(g->n, p->n_nt), p->kn->nr) * p->kn->nr;
  p->n_nt = ceil_div(g->n, p->tn);
  double flops = 2.0 * (double)p->tm * (double)p->tn * (double)(g->k + 8);
  int64_t grain = flops >= OWN_FLOPS ? 1 : (int64_t)(OWN_FLOPS / flops);
  ac_parallel_for(team, g->n_batch * p->n_mt * p->n_nt, grain, own_piece, p);
}

/* ---- shared and columns plan ---- */
enum { PACK_PANELS = 4 };

/* Panels of an operand, from row `first`. B's panels start at the chunk's. */
static void pack_rows(const plan *p, bool b, int64_t first, int64_t end) {
  const aci_gemm *g = p->g;
  const aci_gemm_kernel *kn = p->kn;
  const int panel = b ? kn->nr : kn->mr;
  const int64_t extent = b ? p->cols : g->m, n = aci_gemm_min(end, extent) - first;
  for (int64_t kb = p->kb0; kb < p->kb1; kb++) {
    int64_t k0 = kb * p->kc, kc = block_len(p, kb), kp = ceil_div(kc, kn->pair) * kn->pair;
    char *dst =
        (b ? p->packed_b : p->packed_a) + packed_at(p, extent, panel, k0, kp, first) * kn->bytes;
    if (b) pack_b(p, p->b, k0 * g->b_rs + (p->j0 + first) * g->b_cs, n, kc, dst);
    else
      aci_gemm_pack(kn, g->in_type, dst, panel, false, n, kc,
                    aci_gemm_at(g->a[p->b], g->in_type, k0 * g->a_cs + first * g->a_rs), g->a_rs,
                    g->a_cs);
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
    /* neighbours share their columns of B */
    int64_t i0 = t % p->n_mt * p->tm, j = t / p->n_mt * p->tn;
    if (!run_tile(p, p->b, i0, aci_gemm_min(p->tm, p->g->m - i0), p->j0 + j,
                  aci_gemm_min(p->tn, p->cols - j)))
      *p->oom = true;
  }
}

/* Columns per chunk, so that the packed chunk stays below SHARED_BYTES. All chunks have about the
 * same width. */
static int64_t chunk_cols(const plan *p) {
  const int64_t nr = p->kn->nr, k = aci_gemm_min(p->group * p->kc, p->g->k) + p->kn->pair;
  const int64_t fit = aci_gemm_max(SHARED_BYTES / (k * p->kn->bytes) / nr * nr, 4 * nr);
  return ceil_div(ceil_div(p->g->n, ceil_div(p->g->n, fit)), nr) * nr;
}

/* Blocks of k at a time. C is read and written once more for each group. That pays for few columns
 * or a long k. If partial sums cannot be kept in C, they get separate memory, for a long k only. */
/* a_bytes: of A, packed whole */
static int64_t group_of(const plan *p, bool columns, int64_t a_bytes) {
  const aci_gemm *g = p->g;
  const int64_t row = p->kc * p->kn->bytes, cols = aci_gemm_min(LONG_K_COLS, g->n);
  const bool waits = p->direct || g->m * g->n * aci_gemm_type_bytes(p->acc) <= SUM_BYTES;
  int64_t most = p->n_kb;
  if (columns) {
    if (waits && a_bytes > SHARED_A_BYTES) most = SHARED_A_BYTES / ceil_div(a_bytes, p->n_kb);
  } else if (p->direct && g->n * row <= GROUP_BYTES) {
    most = GROUP_BYTES / (g->n * row);
  } else if (waits && SHARED_BYTES / (p->n_kb * row) < cols) {
    most = SHARED_BYTES / (cols * row);
  }
  return ceil_div(p->n_kb, ceil_div(p->n_kb, aci_gemm_max(most, 1)));
}

static void run_columns(ac_team *team, plan *p) {
  p->tm = p->g->m, p->n_mt = 1;
  p->j0 = 0, p->cols = p->g->n;
  p->n_nt =
      aci_gemm_max(ceil_div(p->g->n, COLUMNS_TN), TASKS_A_THREAD * (int64_t)ac_team_size(team));
  p->tn = ceil_div(ceil_div(p->g->n, p->n_nt), p->kn->nr) * p->kn->nr;
  p->n_nt = ceil_div(p->g->n, p->tn);
  ac_parallel_for(team, p->n_nt, 1, shared_piece, p);
}

static void run_chunks(ac_team *team, plan *p) {
  const aci_gemm *g = p->g;
  const int64_t unit = p->kn->nr, chunk = chunk_cols(p);
  for (p->j0 = 0; p->j0 < g->n; p->j0 += chunk) {
    p->cols = aci_gemm_min(chunk, g->n - p->j0);
    p->n_nt = ceil_div(p->cols, TN_MAX);
    p->tn = ceil_div(ceil_div(p->cols, p->n_nt), unit) * unit;
    p->n_nt = ceil_div(p->cols, p->tn);
    /* 56 rows if that leaves enough tiles, down to one panel otherwise */
    int64_t panels = 56 / p->kn->mr;
    while (panels > 1 && ceil_div(g->m, panels * p->kn->mr) * p->n_nt < MANY_TASKS) panels /= 2;
    p->tm = panels * p->kn->mr;
    p->n_mt = ceil_div(g->m, p->tm);
    ac_parallel_for(team, ceil_div(p->cols, PACK_PANELS * unit), 1, pack_piece_b, p);
    ac_parallel_for(team, p->n_mt * p->n_nt, 1, shared_piece, p);
  }
}

static void finish_rows(void *arg, int64_t begin, int64_t end) {
  const plan *p = arg;
  const aci_gemm *g = p->g;
  aci_gemm_finish(
      &p->out, (int)(end - begin), (int)g->n, p->sum + begin * g->n * aci_gemm_type_bytes(p->acc),
      g->n, (char *)g->c[p->b] + begin * g->c_rs * aci_gemm_type_bytes(g->out_type), g->c_rs, 0);
}

static void run_shared(ac_team *team, plan *p) {
  const aci_gemm *g = p->g;
  for (p->b = 0; p->b < g->n_batch; p->b++) {
    for (p->kb0 = 0; p->kb0 < p->n_kb; p->kb0 = p->kb1) {
      p->kb1 = aci_gemm_min(p->n_kb, p->kb0 + p->group);
      if (p->packed_a != NULL)
        ac_parallel_for(team, ceil_div(g->m, 2 * PACK_PANELS * p->kn->mr), 1, pack_piece_a, p);
      if (p->packed_b != NULL) run_chunks(team, p);
      else run_columns(team, p);
    }
    if (p->sum != NULL) ac_parallel_for(team, g->m, 8, finish_rows, p);
  }
}

/* ---- entry ---- */
static bool is_float(aci_gemm_type t) { return t <= ACI_GEMM_F16; }

static ac_status check(const aci_gemm *g, ac_err *e) {
  bool narrow = g->in_type == ACI_GEMM_BF16 || g->in_type == ACI_GEMM_F16;
  if (g->out_type != g->in_type && !(narrow && g->out_type == ACI_GEMM_F32))
    return AC_FAIL(e, UNSUPPORTED, "matrix product of types %d -> %d", (int)g->in_type,
                   (int)g->out_type);
  if (g->round_b && g->in_type != ACI_GEMM_BF16)
    return AC_FAIL(e, UNSUPPORTED, "matrix product of type %d with an f32 matrix to round",
                   (int)g->in_type);
  if (g->bias != NULL && !is_float(g->bias_type) && g->bias_type != g->in_type)
    return AC_FAIL(e, UNSUPPORTED, "matrix product of type %d with a bias of type %d",
                   (int)g->in_type, (int)g->bias_type);
  return AC_OK;
}

/* The bias in the accumulator's type. dst has room for n of them, or is unused when the type
 * matches. */
static const void *bias_as(aci_gemm_type acc, aci_gemm_type type, const void *bias, int64_t n,
                           void *dst) {
  if (type == acc) return bias;
  for (int64_t j = 0; j < n; j++) {
    double v = aci_gemm_load(type, bias, j);
    if (acc == ACI_GEMM_F64) ((double *)dst)[j] = v;
    else ((float *)dst)[j] = (float)v;
  }
  return dst;
}

/* Chooses a plan for a product of floats and runs it. Memory is one piece of scratch of the calling
 * thread: packed B, packed A, the accumulators outside C (sum), the bias in the accumulator's type.
 * All sizes follow from the shape, dtypes and kernel, and the plan from them and the number of
 * threads. The shape alone decides how an element is added up. */
static ac_status run_blocked(ac_team *team, const aci_gemm *g, ac_err *e) {
  _Atomic bool oom = false;
  plan p = {.g = g, .kn = aci_gemm_kernel_for(g->in_type), .oom = &oom};
  p.acc = g->in_type == ACI_GEMM_F64 ? ACI_GEMM_F64 : ACI_GEMM_F32;
  int64_t kc_max = KC_BYTES / p.kn->bytes;
  p.n_kb = g->k > kc_max ? ceil_div(g->k, kc_max) : 1;
  p.kc = ceil_div(ceil_div(g->k, p.n_kb), 8) * 8;
  if (p.kc > 0) p.n_kb = ceil_div(g->k, p.kc);
  p.direct =
      g->out_type == p.acc && g->alpha == 1 && (g->beta == 0 || g->beta == 1) && g->bias == NULL;
  p.out = (aci_gemm_out){g->out_type, g->alpha, g->beta, NULL};

  double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
  const bool least = aci_gemm_few_fits(g), skinny = !least && aci_gemm_skinny_fits(g, p.kn);
  const bool shared = !skinny && !least && g->m > 2 * (int64_t)p.kn->mr && flops >= SHARED_FLOPS;
  const bool columns =
      shared && g->m <= COLUMNS_ROWS && ceil_div(g->n, p.kn->nr) >= 2 * (int64_t)ac_team_size(team);
  aci_gemm_skinny few = {.g = g, .kn = p.kn, .acc = p.acc, .kc = p.kc, .n_kb = p.n_kb, .oom = &oom};
  int64_t a_bytes = shared ? aci_gemm_packed_bytes(p.kn, g->m, p.kn->mr, g->k + 8 * p.n_kb) : 0;
  p.rows = g->a_cs == 1 && aci_gemm_rows_lie(p.kn, g->in_type, g->k, g->a_rs) &&
           (!shared || g->n * p.kn->bytes < LYING_BYTES || a_bytes > SHARED_A_BYTES);
  if (p.rows) a_bytes = 0;
  p.kb1 = p.group = p.n_kb;
  if (shared) p.group = group_of(&p, columns, a_bytes);
  a_bytes = aci_gemm_lines(ceil_div(a_bytes, p.n_kb) * p.group);
  if (a_bytes > SHARED_A_BYTES) a_bytes = 0;
  const int64_t k = aci_gemm_min(p.group * p.kc, g->k);
  int64_t b_bytes = skinny  ? (int64_t)aci_gemm_skinny_bytes(&few)
                    : least ? (int64_t)aci_gemm_few_bytes(g)
                            : 0;
  if (shared && !columns)
    b_bytes = chunk_cols(&p) * ceil_div(k, p.kn->pair) * p.kn->pair * p.kn->bytes + 64;
  b_bytes = aci_gemm_lines(b_bytes);
  const bool beside = p.group < p.n_kb && !p.direct;
  const int64_t sum_bytes = beside ? aci_gemm_lines(g->m * g->n * aci_gemm_type_bytes(p.acc)) : 0;
  int64_t bias_bytes =
      g->bias != NULL && g->bias_type != p.acc ? g->n * aci_gemm_type_bytes(p.acc) : 0;
  const int64_t bytes = b_bytes + a_bytes + sum_bytes + bias_bytes;
  char *mem = NULL;
  if (bytes > 0) {
    mem = aci_scratch(ACI_SCRATCH_SHARED, (size_t)bytes);
    if (mem == NULL)
      return AC_FAIL(e, OOM, "out of memory for %lld bytes of packed operands", (long long)bytes);
  }
  if (g->bias != NULL)
    p.out.bias = bias_as(p.acc, g->bias_type, g->bias, g->n,
                         mem == NULL ? NULL : mem + b_bytes + a_bytes + sum_bytes);
  if (shared && !columns) p.packed_b = mem;
  if (a_bytes > 0) p.packed_a = mem + b_bytes;
  if (beside) p.sum = mem + b_bytes + a_bytes, p.direct = true;
  few.out = p.out;
  if (skinny) aci_gemm_skinny_run(team, &few, mem);
  else if (least) aci_gemm_few_run(team, g, &p.out, &oom, mem);
  else if (shared) run_shared(team, &p);
  else run_own(team, &p);
  if (oom)
    return AC_FAIL(e, OOM,
                   "out of memory for the packed operands of a %lld x %lld x %lld matrix product",
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
