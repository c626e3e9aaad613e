/* What multiply-add instructions alone reach here, for the bench of matrix products: threads that keep independent
 * sums in registers. Prints one JSON object, GFLOP/s: f32, bf16 (the better of what there is, f32's where there is
 * none), and by unit avx512_bf16, amx_bf16.
 *   peak [threads] [seconds] */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

enum { MAX_THREADS = 64, LOOPS = 20000 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A kernel does LOOPS rounds and returns its FLOP; the sink keeps sums from being left out. */
static volatile float sink[MAX_THREADS];

#if defined(__x86_64__)
#define SUMS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
enum { N_SUMS = 12 };

/* The operands pass an empty asm statement, so that nothing is known of them and no product leaves the loop. */
__attribute__((target("avx512f"))) static double fma_avx512(int id) {
#define DECLARE(i) __m512 s##i = _mm512_set1_ps((float)i);
  SUMS(DECLARE)
#undef DECLARE
  __m512 a = _mm512_set1_ps(1e-3f), b = _mm512_set1_ps(0.999f);
  for (int l = 0; l < LOOPS; l++) {
    __asm__ volatile("" : "+v"(a), "+v"(b));
#define STEP(i) s##i = _mm512_fmadd_ps(s##i, b, a);
    SUMS(STEP)
#undef STEP
  }
  float out = 0;
#define ADD(i) out += _mm512_cvtss_f32(s##i);
  SUMS(ADD)
#undef ADD
  sink[id] = out;
  return 2.0 * 16 * N_SUMS * LOOPS;
}

__attribute__((target("avx2,fma"))) static double fma_avx2(int id) {
#define DECLARE(i) __m256 s##i = _mm256_set1_ps((float)i);
  SUMS(DECLARE)
#undef DECLARE
  __m256 a = _mm256_set1_ps(1e-3f), b = _mm256_set1_ps(0.999f);
  for (int l = 0; l < LOOPS; l++) {
    __asm__ volatile("" : "+x"(a), "+x"(b));
#define STEP(i) s##i = _mm256_fmadd_ps(s##i, b, a);
    SUMS(STEP)
#undef STEP
  }
  float out = 0;
#define ADD(i) out += _mm256_cvtss_f32(s##i);
  SUMS(ADD)
#undef ADD
  sink[id] = out;
  return 2.0 * 8 * N_SUMS * LOOPS;
}

__attribute__((target("avx512f,avx512bf16"))) static double dot_bf16(int id) {
#define DECLARE(i) __m512 s##i = _mm512_set1_ps((float)i);
  SUMS(DECLARE)
#undef DECLARE
  __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
  __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-6f), _mm512_set1_ps(1e-6f));
  for (int l = 0; l < LOOPS; l++) {
    __asm__ volatile("" : "+v"(a), "+v"(b));
#define STEP(i) s##i = _mm512_dpbf16_ps(s##i, a, b);
    SUMS(STEP)
#undef STEP
  }
  float out = 0;
#define ADD(i) out += _mm512_cvtss_f32(s##i);
  SUMS(ADD)
#undef ADD
  sink[id] = out;
  return 2.0 * 32 * N_SUMS * LOOPS;
}

/* Four sums, two tiles of either operand: as matrix products use the eight tiles. */
__attribute__((target("amx-tile,amx-bf16"))) static double tiles(int id) {
  static const struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
  uint16_t half[16 * 32];
  float out[16 * 16];
  for (int i = 0; i < 16 * 32; i++) half[i] = 0x3c00; /* 2^-7 */
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, half, 64);
  _tile_loadd(5, half, 64);
  _tile_loadd(6, half, 64);
  _tile_loadd(7, half, 64);
  for (int l = 0; l < LOOPS; l++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, 64);
  sink[id] = out[0];
  _tile_release();
  return 4 * 2.0 * 16 * 16 * 32 * LOOPS;
}

/* bits of leaf 7: what gcc's own names of features lack in older releases */
static int has_leaf7(int sub, int reg, int bit) {
  unsigned r[4] = {0};
  if (!__get_cpuid_count(7, (unsigned)sub, &r[0], &r[1], &r[2], &r[3])) return 0;
  return (int)(r[reg] >> bit & 1);
}

static int may_use_tiles(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_TILEDATA = 18, EDX = 3, AMX_BF16 = 22, AMX_TILE = 24 };
  if (!has_leaf7(0, EDX, AMX_BF16) || !has_leaf7(0, EDX, AMX_TILE)) return 0;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILEDATA) == 0;
}
#endif

typedef float v8 __attribute__((vector_size(32)));
static double fma_any(int id) {
  v8 s[8], a, b;
  memset(s, 0, sizeof s);
  memset(&a, 0, sizeof a);
  b = a + 0.999f;
  a += 1e-3f;
  for (int l = 0; l < LOOPS; l++)
    for (int i = 0; i < 8; i++) s[i] = s[i] * b + a;
  float out = 0;
  for (int i = 0; i < 8; i++) out += s[i][0];
  sink[id] = out;
  return 2.0 * 8 * 8 * LOOPS;
}

typedef double (*kernel)(int id);
static kernel work;
static double seconds = 0.3, rates[MAX_THREADS];
static pthread_barrier_t gate;

static void *worker(void *p) {
  const int id = (int)(size_t)p;
  double flops = 0;
  work(id);
  pthread_barrier_wait(&gate);
  const double start = now();
  do flops += work(id);
  while (now() - start < seconds);
  rates[id] = flops / (now() - start) / 1e9;
  return NULL;
}

static double run(kernel k, int n_threads) {
  pthread_t t[MAX_THREADS];
  double sum = 0;
  work = k;
  pthread_barrier_init(&gate, NULL, (unsigned)n_threads);
  for (int i = 0; i < n_threads; i++) pthread_create(&t[i], NULL, worker, (void *)(size_t)i);
  for (int i = 0; i < n_threads; i++) {
    pthread_join(t[i], NULL);
    sum += rates[i];
  }
  pthread_barrier_destroy(&gate);
  return sum;
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 2;
  if (argc > 2) seconds = atof(argv[2]);
  if (n < 1 || n > MAX_THREADS) return 2;
  kernel f32 = fma_any;
  double bf16 = 0, rate;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) f32 = fma_avx512;
  else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) f32 = fma_avx2;
#endif
  const double plain = run(f32, n);
  printf("{\"f32\": %.1f", plain);
#if defined(__x86_64__)
  enum { EAX = 0, AVX512_BF16 = 5 };
  if (__builtin_cpu_supports("avx512f") && has_leaf7(1, EAX, AVX512_BF16)) {
    bf16 = run(dot_bf16, n);
    printf(", \"avx512_bf16\": %.1f", bf16);
  }
  if (may_use_tiles()) {
    rate = run(tiles, n);
    printf(", \"amx_bf16\": %.1f", rate);
    if (rate > bf16) bf16 = rate;
  }
#else
  (void)rate;
#endif
  printf(", \"bf16\": %.1f}\n", bf16 > plain ? bf16 : plain);
  return 0;
}
