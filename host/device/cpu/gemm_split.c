/* Products of f32 as products of bf16, to f32's accuracy: x = x1 + x2 + x3 of 8 bits each, and of
 * the nine products those six that matter, summed in f32 (Henry, Tang and Heinecke, "Leveraging the
 * bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", 2019). Called by
 * gemm.c when ACCEL_F32_SPLIT asks for it. It pays if the CPU multiplies bf16 at more than six
 * times the speed of f32 (AMX).
 *
 * A block of k makes two products: x1 y1, and the five others as one of five times that depth,
 * whose sums are small, so that their roundings are. Errors are relative to the largest operands.
 * If those are very large or very small, or not finite, the plain product runs instead. */
#include <math.h>
#include <stdatomic.h>

#include "base/base_impl.h"
#include "base/vmath.h"
#include "device/cpu/gemm_impl.h"
#include "device/cpu/isa.h"

enum {
  PARTS = 5, /* besides x1 y1 */
  DEPTH = 1024,
  OPERAND_BYTES = 16 << 20,
  LEAST_EXTENT = 32
};
static const double MIN_FLOPS = 100e6;
/* Of the largest magnitude of an operand. Above HIGH, products of two could overflow before the
 * small ones are taken off. Below LOW, small parts and their products are too small for bf16
 * instructions, which flush subnormal numbers to 0. */
#define HIGH 0x1p60F
#define LOW 0x1p-30F

static _Atomic int asked = -1;

void aci_gemm_split_force(bool on) { atomic_store(&asked, on); }

bool aci_gemm_split_wants(const aci_gemm *g) {
  int on = atomic_load_explicit(&asked, memory_order_relaxed);
  if (on < 0) atomic_store(&asked, on = aci_params_flag("ACCEL_F32_SPLIT", false));
  return on && g->in_type == ACI_GEMM_F32 && g->m >= LEAST_EXTENT && g->n >= LEAST_EXTENT &&
         g->k >= LEAST_EXTENT && 2.0 * (double)g->m * (double)g->n * (double)g->k >= MIN_FLOPS;
}

/* A block of an operand: `lines` rows of A or columns of B over `depth` values of k. It is split in
 * the direction in which it lies, the runs. */
typedef struct side {
  const float *p;
  int64_t lines, depth, line_step, k_step;
  bool along_k;          /* runs lie along k, else along the lines */
  bool second;           /* B, whose parts are multiplied with those of A */
  uint16_t *main, *rest; /* (line, k) or (k, line). rest: PARTS times as deep */
  _Atomic float top;     /* the largest magnitude. Above HIGH: some is not finite, or too large */
} side;

static int64_t runs(const side *s) { return s->along_k ? s->lines : s->depth; }
static int64_t run_length(const side *s) { return s->along_k ? s->depth : s->lines; }

AC_ISA_FN(split,
          (const float *x, int64_t step, int64_t n, uint16_t *x1, uint16_t *const to[PARTS],
           bool second),
          (x, step, n, x1, to, second)) {
  uint16_t *a = to[0], *b = to[1], *c = to[2], *d = to[3], *e = to[4];
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {
    const float v = x[i * step];
    const uint16_t one = aci_f32_to_bf16(v);
    const float left = v - aci_bf16_to_f32(one);
    const uint16_t two = aci_f32_to_bf16(left),
                   three = aci_f32_to_bf16(left - aci_bf16_to_f32(two));
    x1[i] = one;
    a[i] = second ? two : one;
    b[i] = second ? one : two;
    c[i] = second ? three : one;
    d[i] = second ? one : three;
    e[i] = two;
  }
}

AC_ISA_FN(check, (const float *x, int64_t step, int64_t n, float *top), (x, step, n, top)) {
  int found = 0;
  float most = 0;
  for (int64_t i = 0; i < n; i++) {
    const float a = fabsf(x[i * step]);
    most = a > most ? a : most;
    found |= !(a <= HIGH);
  }
  *top = found ? INFINITY : most;
}

static void check_piece(void *arg, int64_t begin, int64_t end) {
  side *s = arg;
  for (int64_t r = begin; r < end && s->top <= HIGH; r++) {
    float top, seen = s->top;
    check(s->p + r * (s->along_k ? s->line_step : s->k_step), s->along_k ? s->k_step : s->line_step,
          run_length(s), &top);
    while (top > seen && !atomic_compare_exchange_weak(&s->top, &seen, top)) {
    }
  }
}

static void split_piece(void *arg, int64_t begin, int64_t end) {
  const side *s = arg;
  const int64_t n = run_length(s);
  for (int64_t r = begin; r < end; r++) {
    uint16_t *to[PARTS];
    for (int i = 0; i < PARTS; i++)
      to[i] = s->rest + (s->along_k ? r * PARTS + i : r + i * s->depth) * n;
    split(s->p + r * (s->along_k ? s->line_step : s->k_step), s->along_k ? s->k_step : s->line_step,
          n, s->main + r * n, to, s->second);
  }
}

static void each_run(ac_team *team, side *s, ac_range_fn fn) {
  ac_parallel_for(team, runs(s), (1 << 14) / (run_length(s) + 1) + 1, fn, s);
}

/* The whole of an operand of batch entry b. */
static side whole(const aci_gemm *g, bool second, int64_t b) {
  side s = {.second = second, .depth = g->k, .top = 0};
  s.p = second ? g->b[b] : g->a[b];
  s.lines = second ? g->n : g->m;
  s.line_step = second ? g->b_cs : g->a_rs;
  s.k_step = second ? g->b_rs : g->a_cs;
  s.along_k = s.line_step != 1;
  return s;
}

static bool fits(ac_team *team, const aci_gemm *g) {
  for (int second = 0; second < 2; second++)
    for (int64_t b = 0; b < g->n_batch; b++) {
      side s = whole(g, second, b);
      if (b > 0 && s.p == (second ? g->b[b - 1] : g->a[b - 1])) continue;
      each_run(team, &s, check_piece);
      if (!(s.top <= HIGH) || (s.top > 0 && s.top < LOW)) return false;
    }
  return true;
}

/* The block of `lines` from l0 and `depth` from k0, split into at's parts. */
static void make(ac_team *team, const side *of, int64_t l0, int64_t lines, int64_t k0,
                 int64_t depth, uint16_t *at, side *s) {
  *s = (side){.p = of->p + l0 * of->line_step + k0 * of->k_step,
              .lines = lines,
              .depth = depth,
              .line_step = of->line_step,
              .k_step = of->k_step,
              .along_k = of->along_k,
              .second = of->second,
              .main = at,
              .rest = at + lines * depth};
  each_run(team, s, split_piece);
}

/* C (+)= the product of two blocks: their main parts, or all others. */
static ac_status multiply(ac_team *team, const aci_gemm *g, const side *a, const side *b, bool rest,
                          bool first, float *c, int64_t j0, ac_err *e) {
  const int64_t depth = rest ? PARTS * a->depth : a->depth;
  const void *pa = rest ? a->rest : a->main, *pb = rest ? b->rest : b->main;
  void *pc = c;
  aci_gemm h = {.in_type = ACI_GEMM_BF16,
                .out_type = ACI_GEMM_F32,
                .m = a->lines,
                .n = b->lines,
                .k = depth,
                .a_rs = a->along_k ? depth : 1,
                .a_cs = a->along_k ? 1 : a->lines,
                .b_rs = b->along_k ? 1 : b->lines,
                .b_cs = b->along_k ? depth : 1,
                .c_rs = g->c_rs,
                .n_batch = 1,
                .a = &pa,
                .b = &pb,
                .c = &pc,
                .alpha = g->alpha,
                .beta = first ? g->beta : 1};
  if (first && g->bias != NULL) {
    h.bias = aci_gemm_at(g->bias, g->bias_type, j0);
    h.bias_type = g->bias_type;
  }
  return aci_cpu_gemm(team, &h, e);
}

static ac_status run_one(ac_team *team, const aci_gemm *g, int64_t batch, uint16_t *space,
                         int64_t depth, int64_t most, ac_err *e) {
  const side of_a = whole(g, false, batch), of_b = whole(g, true, batch);
  uint16_t *space_b = space + most * (PARTS + 1) * depth;
  side a, b;
  for (int64_t k0 = 0; k0 < g->k; k0 += depth) {
    const int64_t kc = aci_gemm_min(depth, g->k - k0);
    int64_t made = -1; /* the rows that a holds */
    for (int64_t j0 = 0; j0 < g->n; j0 += most) {
      make(team, &of_b, j0, aci_gemm_min(most, g->n - j0), k0, kc, space_b, &b);
      for (int64_t i0 = 0; i0 < g->m; i0 += most) {
        if (made != i0) make(team, &of_a, i0, aci_gemm_min(most, g->m - i0), k0, kc, space, &a);
        made = i0;
        float *c = (float *)g->c[batch] + i0 * g->c_rs + j0;
        AC_TRY(multiply(team, g, &a, &b, false, k0 == 0, c, j0, e));
        AC_TRY(multiply(team, g, &a, &b, true, false, c, j0, e));
      }
    }
  }
  return AC_OK;
}

bool aci_gemm_split(ac_team *team, const aci_gemm *g, ac_status *st, ac_err *e) {
  const int64_t depth = aci_gemm_min(g->k, DEPTH),
                line = (PARTS + 1) * depth * (int64_t)sizeof(uint16_t);
  const int64_t extent = g->m > g->n ? g->m : g->n,
                most = aci_gemm_min(extent, OPERAND_BYTES / line);
  if (!fits(team, g)) return false;
  uint16_t *space = aci_scratch(ACI_SCRATCH_SPLIT, (size_t)(2 * most * line));
  *st = space != NULL ? AC_OK
                      : AC_FAIL(e, OOM, "out of memory for %lld bytes of split operands",
                                (long long)(2 * most * line));
  for (int64_t b = 0; b < g->n_batch && *st == AC_OK; b++)
    *st = run_one(team, g, b, space, depth, most, e);
  return true;
}
