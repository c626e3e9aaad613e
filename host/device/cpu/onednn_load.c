/* The library's side of oneDNN. It opens the module on first use, chooses the products that go
 * there, and cuts them into single-threaded tiles that our own threads run (oneDNN's threading
 * would change bits with the number of threads).
 *
 * Taken are large bf16 products on CPUs with AMX. Elsewhere our kernels are level or faster: f32
 * runs at about 92 % of the multiply-add peak, and bf16 dot products of AVX-512 are as fast here as
 * there. Products of int8 go there if their sums are exact and there are enough rows to pay for
 * laying out the weights. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/base_impl.h"
#include "device/cpu/gemm_impl.h"
#include "device/cpu/isa.h"
#include "device/cpu/onednn.h"

enum {
  CHUNK_BYTES = 16 << 20, /* of packed B at a time */
  TN_MAX = 512,           /* columns of a tile */
  TM_UNIT = 32,           /* rows of a tile are a multiple: two AMX tiles */
  MAX_TILES = 256,
  INT8_TM = 256,
  /* without AMX: level or faster from there for 768 to 8192 values a row, below it at most for
   * short rows */
  INT8_MIN_ROWS = 128,
  /* reckoned: there the layout alone takes as long as our loop takes for the whole product */
  INT8_MIN_ROWS_AMX = 64,
  INT8_MAX_K = 131071 /* 128 x 128 each: the range of an i32 */
};
/* below, calls and layout cost more than the multiplication gains */
static const double MIN_FLOPS = 16e6;
static const double TILE_FLOPS = 40e6;
static const double INT8_TILE_FLOPS = 300e6;
static const double TILE_FLOPS_TRANSPOSED =
    150e6; /* A transposed: each call lays out its part of both operands itself */

/* ---- the module ---- */
static const aci_onednn_api *api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool forced;

void aci_onednn_force(bool on) { atomic_store(&forced, on); }
bool aci_onednn_forced(void) { return atomic_load_explicit(&forced, memory_order_relaxed); }

static bool cpu_has_amx(void) {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  if (aci_cpu_isa() != ACI_ISA_AVX512 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  if (!(d & (1u << 22)) || !(d & (1u << 24))) return false; /* AMX-BF16, AMX-TILE */
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
  __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return (a & 0x60000u) == 0x60000u; /* the system saves tiles */
#else
  return false;
#endif
}

static void load(void) {
  if (!aci_params_flag("ACCEL_ONEDNN", true)) {
    ac_log_write(AC_LOG_DEBUG, "cpu", "oneDNN is switched off");
    return;
  }
  void *h = aci_module_open("accel_onednn.so");
  if (h == NULL) {
    ac_log_write(AC_LOG_DEBUG, "cpu", "no oneDNN module: %s", dlerror());
    return;
  }
  aci_onednn_open_fn open_fn;
  void *symbol = dlsym(h, ACI_ONEDNN_SYMBOL);
  memcpy(&open_fn, &symbol, sizeof open_fn);
  const aci_onednn_api *got = symbol == NULL ? NULL : open_fn();
  if (got == NULL || got->version != ACI_ONEDNN_API_VERSION) {
    ac_log_write(AC_LOG_WARN, "cpu", "the oneDNN module %s",
                 got == NULL ? "does not start" : "is of another version of this library");
    return;
  }
  api = got;
  ac_log_write(AC_LOG_DEBUG, "cpu", "oneDNN %s", api->library);
}

const aci_onednn_api *aci_onednn_api_get(void) {
  pthread_once(&once, load);
  return api;
}

bool aci_onednn_amx(void) {
  static _Atomic int amx = -1;
  int has = atomic_load_explicit(&amx, memory_order_relaxed);
  if (has < 0) atomic_store_explicit(&amx, has = cpu_has_amx(), memory_order_relaxed);
  return has;
}

/* ---- which products ---- */
static bool lead_ok(int64_t rs, int64_t cs, int64_t rows, int64_t cols) {
  return (cs == 1 && rs >= cols) || (rs == 1 && cs >= rows);
}

/* int8: the one way to sums in i32, so that neither scales nor a bias come with it. */
static bool wants_int8(const aci_gemm *g) {
  if (g->out_type != ACI_GEMM_I32 || g->alpha != 1 || g->beta != 0 || g->bias != NULL ||
      g->k > INT8_MAX_K)
    return false;
  if (g->m < 1 || g->n < 1 || g->k < 1 || g->a_cs != 1 || g->a_rs < g->k || g->c_rs < g->n ||
      !lead_ok(g->b_rs, g->b_cs, g->k, g->n))
    return false;
  if (!aci_onednn_forced() &&
      (g->m < (aci_onednn_amx() ? INT8_MIN_ROWS_AMX : INT8_MIN_ROWS) || g->n < 64 || g->k < 64))
    return false;
  return aci_cpu_isa() != ACI_ISA_BASE && aci_onednn_api_get() != NULL && api->exact_int8;
}

bool aci_onednn_wants(const aci_gemm *g) {
  if (g->in_type == ACI_GEMM_I8) return wants_int8(g);
  if (g->in_type != ACI_GEMM_BF16 || g->round_b) return false;
  bool force = aci_onednn_forced();
  if (!force && 2.0 * (double)g->m * (double)g->n * (double)g->k < MIN_FLOPS) return false;
  if (g->m < 1 || g->n < 1 || g->k < 1 || (!force && (g->m < 16 || g->k < 32 || g->n < 16)))
    return false;
  if (g->alpha != 1 || (g->beta != 0 && g->beta != 1)) return false;
  if (g->bias != NULL && g->bias_type != ACI_GEMM_F32 && g->bias_type != ACI_GEMM_BF16)
    return false;
  if (!lead_ok(g->a_rs, g->a_cs, g->m, g->k) || !lead_ok(g->b_rs, g->b_cs, g->k, g->n) ||
      g->c_rs < g->n)
    return false;
  /* oneDNN 3.7.2 reads one row of a transposed A as if its elements lay side by side
   * (avx512_core_bf16): no tile may have one row. */
  if (g->a_cs != 1 && g->m % TM_UNIT == 1) return false;
  return (force || aci_onednn_amx()) && aci_onednn_api_get() != NULL;
}

/* ---- tiles ---- */
typedef struct onednn_gemm_job {
  const aci_gemm *g;
  int64_t b, j0, cols; /* batch entry. The chunk of columns */
  int64_t tm, tn, n_mt, n_nt;
  const aci_onednn_plan *plans[2][2]; /* [last row tile][last column tile] */
  char *packed;                       /* column tile t at t * packed_stride */
  size_t packed_stride;
  _Atomic bool failed;
} onednn_gemm_job;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static const char *element(const void *p, aci_gemm_type t, int64_t i) {
  return (const char *)p + i * aci_gemm_type_bytes(t);
}

static void *scratch_for(const aci_onednn_plan *p) {
  return aci_scratch(ACI_SCRATCH_TILE, p->scratch_bytes + 64);
}

static void pack_tiles(void *arg, int64_t begin, int64_t end) {
  onednn_gemm_job *j = arg;
  for (int64_t t = begin; t < end; t++) {
    const aci_onednn_plan *p = j->plans[0][t == j->n_nt - 1];
    void *scratch = scratch_for(p);
    const char *b = element(j->g->b[j->b], j->g->in_type, (j->j0 + t * j->tn) * j->g->b_cs);
    if (scratch == NULL || !api->pack_b(p, b, j->packed + (size_t)t * j->packed_stride, scratch))
      j->failed = true;
  }
}

static void run_tiles(void *arg, int64_t begin, int64_t end) {
  onednn_gemm_job *j = arg;
  const aci_gemm *g = j->g;
  for (int64_t t = begin; t < end; t++) {
    int64_t it = t % j->n_mt, jt = t / j->n_mt, i0 = it * j->tm, j0 = j->j0 + jt * j->tn;
    const aci_onednn_plan *p = j->plans[it == j->n_mt - 1][jt == j->n_nt - 1];
    const void *b = p->packed_bytes > 0 ? j->packed + (size_t)jt * j->packed_stride
                                        : element(g->b[j->b], g->in_type, j0 * g->b_cs);
    const void *bias = g->bias == NULL ? NULL : element(g->bias, g->bias_type, j0);
    char *c = (char *)g->c[j->b] + (i0 * g->c_rs + j0) * aci_gemm_type_bytes(g->out_type);
    void *scratch = scratch_for(p);
    if (scratch == NULL ||
        !api->run(p, element(g->a[j->b], g->in_type, i0 * g->a_rs), b, bias, c, scratch))
      j->failed = true;
  }
}

static void put_plans(onednn_gemm_job *j) {
  for (int i = 0; i < 4; i++) {
    if (j->plans[i / 2][i % 2] != NULL) api->put(j->plans[i / 2][i % 2]);
    j->plans[i / 2][i % 2] = NULL;
  }
}

/* The four tile shapes of the chunk (full and last, in both directions) must agree on whether B is
 * packed: they share it. */
static bool get_plans(onednn_gemm_job *j) {
  const aci_gemm *g = j->g;
  int64_t last_m = g->m - (j->n_mt - 1) * j->tm, last_n = j->cols - (j->n_nt - 1) * j->tn;
  for (int i = 0; i < 4; i++) {
    aci_onednn_shape s = {.m = i / 2 ? last_m : j->tm,
                          .n = i % 2 ? last_n : j->tn,
                          .k = g->k,
                          .a_rs = g->a_rs,
                          .a_cs = g->a_cs,
                          .b_rs = g->b_rs,
                          .b_cs = g->b_cs,
                          .c_rs = g->c_rs,
                          .in_type = (int32_t)g->in_type,
                          .out_type = (int32_t)g->out_type,
                          .bias_type = g->bias == NULL ? -1 : (int32_t)g->bias_type,
                          .add = g->beta != 0};
    j->plans[i / 2][i % 2] = api->get(&s);
    if (j->plans[i / 2][i % 2] == NULL) return false;
  }
  for (int n = 0; n < 2; n++)
    if (j->plans[0][n]->packed_bytes != j->plans[1][n]->packed_bytes) return false;
  return true;
}

/* Tiles of bf16: B is laid out once for all. */
static void cut(onednn_gemm_job *j) {
  const aci_gemm *g = j->g;
  double flops = 2.0 * (double)g->m * (double)j->cols * (double)g->k;
  double tiles = flops / (g->a_cs == 1 ? TILE_FLOPS : TILE_FLOPS_TRANSPOSED);
  int64_t n_tiles = tiles > MAX_TILES ? MAX_TILES : tiles < 2 ? 2 : (int64_t)tiles;
  j->n_nt = ceil_div(j->cols, TN_MAX);
  j->tn = ceil_div(ceil_div(j->cols, j->n_nt), 64) * 64;
  j->n_nt = ceil_div(j->cols, j->tn);
  j->n_mt = ceil_div(n_tiles, j->n_nt);
  j->n_mt += j->n_nt * j->n_mt & 1; /* an even number of tiles for two threads */
  j->tm = ceil_div(ceil_div(g->m, j->n_mt), TM_UNIT) * TM_UNIT;
  if (j->tn > j->cols) j->tn = j->cols;
  if (j->tm > g->m) j->tm = g->m;
  j->n_mt = ceil_div(g->m, j->tm);
}

/* Tiles of int8: each call lays out its part of both operands (a reorder of transposed int8
 * beforehand is slower by far: 0.2 GB/s), so tiles have many rows. */
static void cut_int8(onednn_gemm_job *j) {
  const aci_gemm *g = j->g;
  j->tm = min64(g->m, INT8_TM);
  const double fit = INT8_TILE_FLOPS / (2.0 * (double)j->tm * (double)g->k);
  j->tn = fit > TN_MAX ? TN_MAX : ceil_div((int64_t)fit, 64) * 64;
  if (j->tn < 64) j->tn = 64;
  if (j->tn > j->cols) j->tn = j->cols;
  j->n_mt = ceil_div(g->m, j->tm);
  j->n_nt = ceil_div(j->cols, j->tn);
}

static bool run_chunk(ac_team *team, onednn_gemm_job *j) {
  const aci_gemm *g = j->g;
  if (g->in_type == ACI_GEMM_I8) cut_int8(j);
  else cut(j);
  bool ok = get_plans(j);
  if (ok) {
    size_t bytes = j->plans[0][0]->packed_bytes > j->plans[0][1]->packed_bytes
                       ? j->plans[0][0]->packed_bytes
                       : j->plans[0][1]->packed_bytes;
    j->packed_stride = (bytes + 63) / 64 * 64;
    if (bytes > 0) {
      j->packed = aci_scratch(ACI_SCRATCH_SHARED, j->packed_stride * (size_t)j->n_nt);
      ok = j->packed != NULL;
      if (ok) ac_parallel_for(team, j->n_nt, 1, pack_tiles, j);
    }
  }
  if (ok && !j->failed) ac_parallel_for(team, j->n_mt * j->n_nt, 1, run_tiles, j);
  put_plans(j);
  return ok && !j->failed;
}

bool aci_onednn_gemm(ac_team *team, const aci_gemm *g) {
  int64_t chunk = CHUNK_BYTES / (aci_gemm_type_bytes(g->in_type) * g->k) / TN_MAX * TN_MAX;
  if (chunk < TN_MAX) chunk = TN_MAX;
  bool started = false; /* C has been written: too late to fall back when it is accumulated into */
  for (int64_t b = 0; b < g->n_batch; b++) {
    for (int64_t j0 = 0; j0 < g->n; j0 += chunk) {
      onednn_gemm_job j = {.g = g, .b = b, .j0 = j0, .cols = min64(chunk, g->n - j0)};
      if (!run_chunk(team, &j)) {
        if (started && g->beta != 0)
          ac_log_write(AC_LOG_ERROR, "cpu", "oneDNN failed in the middle of a product");
        return false;
      }
      started = true;
    }
  }
  return true;
}
