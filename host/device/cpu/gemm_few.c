/* Products of at most eight rows with a matrix that is read once, in place: a step of generation,
 * the linear layer of a few rows. Such a product takes as long as reading B does, so that nothing
 * of B is packed or copied. Called by gemm.c.
 *
 * Rows: the values of k of a column of B lie side by side (linear's weight). An element is a dot
 * product in 32 lanes, which are added up by a tree. Columns: a row of B lies side by side (a
 * weight [in, out]). Pieces of k make sums of their own, within which eight rows of B are added up
 * at a time, then the pieces' are added. Which value goes into which lane or piece follows from the
 * shape alone, products are rounded before they are added, and all instruction sets have 32 lanes:
 * so the bits are the same everywhere. */
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/arm.h"
#include "device/cpu/gemm_impl.h"
#include "device/cpu/isa.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum {
  MOST_ROWS = 8,
  LANES = 32,
  /* that are multiplied side by side, so that several parts of memory are on their way */
  COLS = 4,
  REST = LANES * 4, /* bytes */
  LEAST = 1 << 16,  /* values of B: below, packing costs less than the setup here */
  LEAST_EXTENT = 64,
  PIECE_BYTES = 128 << 10, /* of B that one piece of work reads */
  TILE_COLS = 2048,        /* whose sums stay in L1 */
  GROUP = 8,               /* rows of B that are added up at a time */
  MOST_PIECES = 16,        /* of k */
  AHEAD = 24576            /* bytes: the CPU's own prefetching ends with each page */
};

bool aci_gemm_few_fits(const aci_gemm *g) {
  const bool type =
      g->in_type == ACI_GEMM_F32 || g->in_type == ACI_GEMM_BF16 || g->in_type == ACI_GEMM_F16;
  return type && g->n_batch == 1 && g->m <= MOST_ROWS && (g->b_rs == 1 || g->b_cs == 1) &&
         g->n >= LEAST_EXTENT && g->k >= LEAST_EXTENT && g->n * g->k >= LEAST;
}

static bool by_rows(const aci_gemm *g) { return g->b_rs == 1; }
static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static int64_t lanes_of(int64_t k) { return up(k, LANES); }

static int64_t width_of_b(const aci_gemm *g) {
  return g->round_b ? 4 : aci_gemm_type_bytes(g->in_type);
}
static const char *b_at(const aci_gemm *g, int64_t i) {
  return (const char *)g->b[0] + i * width_of_b(g);
}

/* Values of k per piece, and the number of pieces, for a column-major B. */
static int64_t tile_cols(const aci_gemm *g) {
  const int64_t tiles = (g->n + TILE_COLS - 1) / TILE_COLS;
  return up((g->n + tiles - 1) / tiles, LANES);
}
static int64_t piece_rows(const aci_gemm *g) {
  /* of bf16 that are rounded on the way, the same cut */
  const int64_t row = tile_cols(g) * aci_gemm_type_bytes(g->in_type);
  return up(aci_gemm_max(aci_gemm_max(PIECE_BYTES / row, 2 * GROUP),
                         (g->k + MOST_PIECES - 1) / MOST_PIECES),
            GROUP);
}
static int64_t pieces_of(const aci_gemm *g) { return (g->k + piece_rows(g) - 1) / piece_rows(g); }

size_t aci_gemm_few_bytes(const aci_gemm *g) {
  const int64_t sums = by_rows(g) ? 0 : pieces_of(g) * g->m * g->n;
  return (size_t)(aci_gemm_lines(g->m * lanes_of(g->k) * 4) + sums * 4);
}

/* ---- inner loops ---- L: floats of a vector. R: rows of A at a time. */
typedef enum kind {
  PLAIN /* f32 */,
  ROUNDED /* f32 that counts rounded to bf16 */,
  BRAINS /* bf16 */,
  HALVES /* f16 */,
  KINDS
} kind;
#define VECTORS(SUFFIX, L)                                                                    \
  typedef float vec_##SUFFIX __attribute__((vector_size(4 * L), aligned(4), may_alias));      \
  typedef uint32_t words_##SUFFIX __attribute__((vector_size(4 * L), aligned(4), may_alias)); \
  typedef uint16_t shorts_##SUFFIX __attribute__((vector_size(2 * L), aligned(2), may_alias));
VECTORS(base, 4)
#if defined(__x86_64__)
VECTORS(avx2, 8)
VECTORS(avx512, 16)
#elif defined(__aarch64__)
VECTORS(neon, 4)
#endif

/* The sum of 16 lanes: eight upon eight, four upon four, ... */
static inline AC_INLINE float tree(const float *lanes) {
  const vec_base *v = (const vec_base *)(const void *)lanes;
  const vec_base half = (v[0] + v[2]) + (v[1] + v[3]);
  return (half[0] + half[2]) + (half[1] + half[3]);
}

#define WIDTH(KIND) (KIND == PLAIN || KIND == ROUNDED ? 4 : 2) /* bytes of a value */

/* L values of f16. */
static inline AC_INLINE vec_base halves_base(const void *p) {
  uint16_t h[4];
  memcpy(h, p, sizeof h);
  return (vec_base){aci_f16_to_f32(h[0]), aci_f16_to_f32(h[1]), aci_f16_to_f32(h[2]),
                    aci_f16_to_f32(h[3])};
}
#define halves_avx2(p) ((vec_avx2)_mm256_cvtph_ps(_mm_loadu_si128((const void *)(p))))
#define halves_neon(p) ((vec_neon)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const void *)(p)))))
#define halves_avx512(p) ((vec_avx512)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p))))

/* The 32 values at p in LANES / L vectors. Rounding is to nearest even, NaN becomes a quiet NaN, as
 * in aci_f32_to_bf16. */
#define LOAD_LANES(SUFFIX, L, KIND, to, p)                                                 \
  do {                                                                                     \
    _Pragma("GCC unroll 8") for (int v_ = 0; v_ < LANES / L; v_++) {                       \
      const void *at_ = (const char *)(p) + v_ * L * WIDTH(KIND);                          \
      if (KIND == BRAINS) {                                                                \
        to[v_] = (vec_##SUFFIX)(                                                           \
            __builtin_convertvector(*(const shorts_##SUFFIX *)at_, words_##SUFFIX) << 16); \
      } else if (KIND == HALVES) {                                                         \
        to[v_] = halves_##SUFFIX(at_);                                                     \
      } else if (KIND == ROUNDED) {                                                        \
        const words_##SUFFIX u_ = *(const words_##SUFFIX *)at_,                            \
                             quiet_ = (u_ | 0x400000u) & 0xffff0000u;                      \
        const words_##SUFFIX nan_ = (words_##SUFFIX)((u_ & 0x7fffffffu) > 0x7f800000u);    \
        const words_##SUFFIX near_ = (u_ + 0x7fffu + ((u_ >> 16) & 1u)) & 0xffff0000u;     \
        to[v_] = (vec_##SUFFIX)((near_ & ~nan_) | (quiet_ & nan_));                        \
      } else {                                                                             \
        to[v_] = *(const vec_##SUFFIX *)at_;                                               \
      }                                                                                    \
    }                                                                                      \
  } while (0)

/* y[r * ldy + c] = the dot product of row r of x and column c of B, columns `step` bytes apart, C
 * at a time. k is a multiple of 32. If rest is given, the last 32 values of column c are in rest +
 * c * REST, padded with zeros. */
#define DOT(SUFFIX, TARGET, L, R, C, KIND, NAME)                                                  \
  TARGET static void NAME(const void *w, int64_t step, int64_t cols, const char *rest,            \
                          const float *x, int64_t ldx, int64_t k, float *y, int64_t ldy) {        \
    enum { N = LANES / L, STEP = LANES * WIDTH(KIND) };                                           \
    for (int64_t c = 0; c < cols; c += C) {                                                       \
      vec_##SUFFIX acc[C][R][N];                                                                  \
      const char *p[C], *end[C];                                                                  \
      _Pragma("GCC unroll 4") for (int s = 0; s < C; s++) {                                       \
        const int64_t at =                                                                        \
            c + s < cols ? c + s : cols - 1; /* the last one again, which is not stored */        \
        p[s] = (const char *)w + at * step;                                                       \
        end[s] = rest != NULL ? rest + at * REST : NULL;                                          \
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)                                       \
            _Pragma("GCC unroll 8") for (int v = 0; v < N; v++) acc[s][r][v] = (vec_##SUFFIX){0}; \
      }                                                                                           \
      for (int64_t i = 0; i < k; i += LANES) {                                                    \
        const bool last = rest != NULL && i == k - LANES;                                         \
        _Pragma("GCC unroll 4") for (int s = 0; s < C; s++) {                                     \
          vec_##SUFFIX b[N];                                                                      \
          const char *from = last ? end[s] : p[s];                                                \
          LOAD_LANES(SUFFIX, L, KIND, b, from);                                                   \
          __builtin_prefetch((const void *)((uintptr_t)from + AHEAD), 0, 2);                      \
          if (STEP > 64) __builtin_prefetch((const void *)((uintptr_t)from + AHEAD + 64), 0, 2);  \
          p[s] += STEP;                                                                           \
          _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)                                     \
              _Pragma("GCC unroll 8") for (int v = 0; v < N; v++) acc[s][r][v] +=                 \
              b[v] * *(const vec_##SUFFIX *)(const void *)(x + r * ldx + i + v * L);              \
        }                                                                                         \
      }                                                                                           \
      _Pragma("GCC unroll 4") for (int s = 0; s < C; s++) {                                       \
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {                                     \
          _Alignas(64) float half[LANES / 2];                                                     \
          _Pragma("GCC unroll 8") for (int v = 0; v < N / 2; v++) *                               \
              (vec_##SUFFIX *)(void *)(half + v * L) = acc[s][r][v] + acc[s][r][v + N / 2];       \
          if (c + s < cols) y[r * ldy + c + s] = tree(half);                                      \
        }                                                                                         \
      }                                                                                           \
    }                                                                                             \
  }

/* sums[r][c] += the products of `rows` rows of B, `row_bytes` apart, over whole groups of 32
 * columns. */
#define ADD_ROWS(SUFFIX, TARGET, L, R, KIND, NAME)                                              \
  TARGET static void NAME(const void *w, int64_t row_bytes, int rows, int64_t cols,             \
                          const float *x, int64_t ldx, float *sums, int64_t lds) {              \
    enum { N = LANES / L, STEP = LANES * WIDTH(KIND) };                                         \
    const char *p = w;                                                                          \
    for (int64_t c = 0; c < cols; c += LANES, p += STEP) {                                      \
      vec_##SUFFIX acc[R][N], b[N];                                                             \
      _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)                                       \
          _Pragma("GCC unroll 8") for (int v = 0; v < N; v++) acc[r][v] = (vec_##SUFFIX){0};    \
      for (int i = 0; i < rows; i++) {                                                          \
        LOAD_LANES(SUFFIX, L, KIND, b, p + i * row_bytes);                                      \
        __builtin_prefetch(                                                                     \
            (const void *)((uintptr_t)(p + i * row_bytes) + (uintptr_t)(GROUP * row_bytes)), 0, \
            2);                                                                                 \
        if (STEP > 64)                                                                          \
          __builtin_prefetch((const void *)((uintptr_t)(p + i * row_bytes) +                    \
                                            (uintptr_t)(GROUP * row_bytes) + 64),               \
                             0, 2);                                                             \
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)                                     \
            _Pragma("GCC unroll 8") for (int v = 0; v < N; v++) acc[r][v] +=                    \
            b[v] * x[r * ldx + i];                                                              \
      }                                                                                         \
      _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)                                       \
              _Pragma("GCC unroll 8") for (int v = 0; v < N; v++) *                             \
          (vec_##SUFFIX *)(void *)(sums + r * lds + c + v * L) += acc[r][v];                    \
    }                                                                                           \
  }

typedef void (*dot_fn)(const void *w, int64_t step, int64_t cols, const char *rest, const float *x,
                       int64_t ldx, int64_t k, float *y, int64_t ldy);
typedef void (*add_fn)(const void *w, int64_t row_bytes, int rows, int64_t cols, const float *x,
                       int64_t ldx, float *sums, int64_t lds);
typedef struct kernels {
  int rows; /* at a time */
  dot_fn dot[KINDS][4];
  add_fn add[KINDS][4];
} kernels;

#define OF_KIND(SUFFIX, TARGET, L, R, C, KIND)                    \
  DOT(SUFFIX, TARGET, L, R, C, KIND, dot_##KIND##_##SUFFIX##_##R) \
  ADD_ROWS(SUFFIX, TARGET, L, R, KIND, add_##KIND##_##SUFFIX##_##R)
#define OF_ROWS(SUFFIX, TARGET, L, R, C)    \
  OF_KIND(SUFFIX, TARGET, L, R, C, PLAIN)   \
  OF_KIND(SUFFIX, TARGET, L, R, C, ROUNDED) \
  OF_KIND(SUFFIX, TARGET, L, R, C, BRAINS)  \
  OF_KIND(SUFFIX, TARGET, L, R, C, HALVES)
#define ALL_KINDS(LIST, WHAT, SUFFIX)                               \
  {                                                                 \
    {LIST(WHAT##_PLAIN_##SUFFIX)}, {LIST(WHAT##_ROUNDED_##SUFFIX)}, \
        {LIST(WHAT##_BRAINS_##SUFFIX)}, {                           \
      LIST(WHAT##_HALVES_##SUFFIX)                                  \
    }                                                               \
  }
#define TABLE(SUFFIX, N, LIST)                                         \
  static const kernels of_##SUFFIX = {N, ALL_KINDS(LIST, dot, SUFFIX), \
                                      ALL_KINDS(LIST, add, SUFFIX)};
#define UP_TO_1(NAME) NAME##_1
#define UP_TO_2(NAME) NAME##_1, NAME##_2
#define UP_TO_4(NAME) NAME##_1, NAME##_2, NAME##_3, NAME##_4
OF_ROWS(base, , 4, 1, 1)
TABLE(base, 1, UP_TO_1)
#if defined(__x86_64__)
OF_ROWS(avx2, ACI_TARGET_AVX2, 8, 1, 2)
OF_ROWS(avx2, ACI_TARGET_AVX2, 8, 2, 1)
TABLE(avx2, 2, UP_TO_2)
OF_ROWS(avx512, ACI_TARGET_AVX512, 16, 1, 4)
OF_ROWS(avx512, ACI_TARGET_AVX512, 16, 2, 4)
OF_ROWS(avx512, ACI_TARGET_AVX512, 16, 3, 2)
OF_ROWS(avx512, ACI_TARGET_AVX512, 16, 4, 2)
TABLE(avx512, 4, UP_TO_4)
#elif defined(__aarch64__)
OF_ROWS(neon, , 4, 1, 2)
OF_ROWS(neon, , 4, 2, 1)
TABLE(neon, 2, UP_TO_2)
#endif

static const kernels *mine(void) {
#if defined(__x86_64__)
  const int isa = aci_cpu_isa();
  if (isa != ACI_ISA_BASE) return isa == ACI_ISA_AVX512 ? &of_avx512 : &of_avx2;
#elif defined(__aarch64__)
  if (aci_cpu_isa() == ACI_ISA_NEON) return &of_neon;
#endif
  return &of_base;
}

/* ---- the work ---- */
typedef struct job {
  const aci_gemm *g;
  const aci_gemm_out *out;
  const kernels *kn;
  kind kind;
  const float *x; /* (m, ldx): rows of A, filled up with zeros */
  float *sums;    /* (pieces, m, n) */
  int64_t ldx, unit, n_tiles;
  _Atomic bool *oom;
} job;

static inline float value_at(aci_gemm_type type, bool round, const char *p, int64_t i) {
  if (round) return aci_bf16_to_f32(aci_f32_to_bf16(((const float *)(const void *)p)[i]));
  if (type == ACI_GEMM_F32) return ((const float *)(const void *)p)[i];
  const uint16_t v = ((const uint16_t *)(const void *)p)[i];
  return type == ACI_GEMM_BF16 ? aci_bf16_to_f32(v) : aci_f16_to_f32(v);
}

static void rows_piece(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  const aci_gemm *g = j->g;
  const int64_t bytes = width_of_b(g), whole = g->k / LANES * LANES, left = g->k - whole;
  const int64_t at_once = left > 0 ? COLS : j->unit; /* columns */
  float *y = aci_scratch(ACI_SCRATCH_TILE, (size_t)(MOST_ROWS * j->unit) * sizeof *y);
  if (y == NULL) {
    *j->oom = true;
    return;
  }
  _Alignas(64) char rest[COLS * REST] = {0};
  for (int64_t t = begin; t < end; t++) {
    const int64_t first = t * j->unit, n = aci_gemm_min(j->unit, g->n - first);
    for (int64_t c = 0; c < n; c += at_once) {
      const char *b = b_at(g, (first + c) * g->b_cs);
      const int64_t now = aci_gemm_min(at_once, n - c);
      for (int64_t s = 0; left > 0 && s < now; s++)
        memcpy(rest + s * REST, b + (s * g->b_cs + whole) * bytes, (size_t)(left * bytes));
      for (int64_t r = 0; r < g->m; r += j->kn->rows) {
        const int some = (int)aci_gemm_min(j->kn->rows, g->m - r);
        j->kn->dot[j->kind][some - 1](b, g->b_cs * bytes, now, left > 0 ? rest : NULL,
                                      j->x + r * j->ldx, j->ldx, j->ldx, y + r * j->unit + c,
                                      j->unit);
      }
    }
    aci_gemm_finish(j->out, (int)g->m, (int)n, y, j->unit,
                    (char *)g->c[0] + first * aci_gemm_type_bytes(g->out_type), g->c_rs, first);
  }
}

/* Columns first.. of a piece of k: sums of its groups of rows. */
static bool columns_tile(const job *j, int64_t piece, int64_t first) {
  const aci_gemm *g = j->g;
  const int64_t tile = tile_cols(g), n = aci_gemm_min(tile, g->n - first),
                whole = n / LANES * LANES;
  const int64_t k0 = piece * piece_rows(g), k1 = aci_gemm_min(g->k, k0 + piece_rows(g));
  const int64_t row_bytes = g->b_rs * width_of_b(g);
  float *sums = aci_scratch(ACI_SCRATCH_TILE, (size_t)(g->m * tile) * sizeof *sums);
  if (sums == NULL) return false;
  memset(sums, 0, (size_t)(g->m * tile) * sizeof *sums);
  for (int64_t k = k0; k < k1; k += GROUP) {
    const int rows = (int)aci_gemm_min(GROUP, k1 - k);
    const char *b = b_at(g, k * g->b_rs + first);
    for (int64_t r = 0; r < g->m; r += j->kn->rows) {
      const int some = (int)aci_gemm_min(j->kn->rows, g->m - r);
      const float *x = j->x + r * j->ldx + k;
      j->kn->add[j->kind][some - 1](b, row_bytes, rows, whole, x, j->ldx, sums + r * tile, tile);
      for (int s = 0; s < some; s++) {
        for (int64_t c = whole; c < n; c++) {
          float sum = 0;
          for (int i = 0; i < rows; i++)
            sum += value_at(g->in_type, g->round_b, b + i * row_bytes, c) * x[s * j->ldx + i];
          sums[(r + s) * tile + c] += sum;
        }
      }
    }
  }
  for (int64_t r = 0; r < g->m; r++) {
    float *to = j->sums + (piece * g->m + r) * g->n + first;
    memcpy(to, sums + r * tile, (size_t)n * sizeof *to);
  }
  return true;
}

static void columns_piece(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  for (int64_t t = begin; t < end; t++)
    if (!columns_tile(j, t / j->n_tiles, t % j->n_tiles * tile_cols(j->g))) *j->oom = true;
}

AC_ISA_FN(add, (float *restrict to, const float *restrict from, int64_t n), (to, from, n)) {
  for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

/* The pieces' sums, one after another, into C. */
static void sum_pieces(const job *j) {
  const aci_gemm *g = j->g;
  const int64_t size = g->m * g->n, pieces = pieces_of(g);
  for (int64_t p = 1; p < pieces; p++) add(j->sums, j->sums + p * size, size);
  aci_gemm_finish(j->out, (int)g->m, (int)g->n, j->sums, g->n, g->c[0], g->c_rs, 0);
}

void aci_gemm_few_run(ac_team *team, const aci_gemm *g, const aci_gemm_out *out, _Atomic bool *oom,
                      void *mem) {
  job j = {.g = g, .out = out, .kn = mine(), .ldx = lanes_of(g->k), .oom = oom};
  float *x = mem;
  j.kind = g->round_b                    ? ROUNDED
           : g->in_type == ACI_GEMM_BF16 ? BRAINS
           : g->in_type == ACI_GEMM_F16  ? HALVES
                                         : PLAIN;
  j.x = x;
  j.sums = x + aci_gemm_lines(g->m * j.ldx * 4) / 4;
  for (int64_t r = 0; r < g->m; r++) {
    const char *row = aci_gemm_at(g->a[0], g->in_type, r * g->a_rs);
    float *to = x + r * j.ldx;
    if (g->a_cs != 1)
      for (int64_t i = 0; i < g->k; i++) to[i] = value_at(g->in_type, false, row, i * g->a_cs);
    else if (g->in_type == ACI_GEMM_F32) memcpy(to, row, (size_t)g->k * sizeof *to);
    else aci_gemm_widen(g->in_type, to, row, g->k);
    memset(to + g->k, 0, (size_t)(j.ldx - g->k) * sizeof *to);
  }
  if (by_rows(g)) {
    j.unit = aci_gemm_max(PIECE_BYTES / (g->k * width_of_b(g)), 8);
    ac_parallel_for(team, (g->n + j.unit - 1) / j.unit, 1, rows_piece, &j);
    return;
  }
  j.n_tiles = (g->n + tile_cols(g) - 1) / tile_cols(g);
  ac_parallel_for(team, pieces_of(g) * j.n_tiles, 1, columns_piece, &j);
  if (!*oom) sum_pieces(&j);
}
