/* What the memory of this machine does, without accel: threads copy (through the caches, and past them), read (with prefetching
 * of their own and without: the better counts) and write arrays, each its own part. Prints one JSON object, GB/s, best of the
 * repeats; a copied byte counts as one read and one written.
 *   memory [threads] [MiB of an array] */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { COPY, COPY_NT, READ, READ_AHEAD, WRITE, KINDS, REPEATS = 15, MAX_THREADS = 64, BLOCK = 64, AHEAD = 4096 /* floats */ };

static float *a, *b;
static size_t n = (size_t)16 << 20;
static int n_threads = 2, what;
static double sums[MAX_THREADS];
static pthread_barrier_t gate;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Sums of 64 lanes, optionally asking for what comes some pages later, which ends the gaps that the CPU's own prefetching leaves. */
static double read_part(size_t lo, size_t hi, int ahead) {
  float s[BLOCK] = {0};
  double sum = 0;
  for (size_t i = lo; i < hi; i += BLOCK) {
    if (ahead)
      for (int k = 0; k < BLOCK; k += 16) __builtin_prefetch((const char *)(a + i + (size_t)k) + 4 * AHEAD, 0, 2);
    for (int k = 0; k < BLOCK; k++) s[k] += a[i + (size_t)k];
  }
  for (int k = 0; k < BLOCK; k++) sum += (double)s[k];
  return sum;
}

/* lo and hi are multiples of 64 floats. */
static void copy_past_caches(size_t lo, size_t hi) {
#if defined(__AVX512F__)
  for (size_t i = lo; i < hi; i += 16) _mm512_stream_ps(b + i, _mm512_load_ps(a + i));
  _mm_sfence();
#elif defined(__x86_64__)
  for (size_t i = lo; i < hi; i += 4) _mm_stream_ps(b + i, _mm_load_ps(a + i));
  _mm_sfence();
#else
  memcpy(b + lo, a + lo, (hi - lo) * sizeof *a);
#endif
}

static void part(int id) {
  const size_t blocks = n / BLOCK;
  const size_t lo = blocks * (size_t)id / (size_t)n_threads * BLOCK;
  const size_t hi = blocks * ((size_t)id + 1) / (size_t)n_threads * BLOCK;
  if (what == COPY) {
    memcpy(b + lo, a + lo, (hi - lo) * sizeof *a);
  } else if (what == COPY_NT) {
    copy_past_caches(lo, hi);
  } else if (what == READ || what == READ_AHEAD) {
    sums[id] = read_part(lo, hi, what == READ_AHEAD);
  } else {
    memset(b + lo, 0, (hi - lo) * sizeof *b);
  }
}

static void *worker(void *p) {
  int id = (int)(size_t)p;
  for (int i = 0; i < KINDS * (REPEATS + 1); i++) {
    pthread_barrier_wait(&gate);
    part(id);
    pthread_barrier_wait(&gate);
  }
  return NULL;
}

int main(int argc, char **argv) {
  static const char *const names[KINDS] = {"copy", "copy_nt", "read", "read", "write"};
  double of_read = 1e9; /* the better of both ways */
  pthread_t t[MAX_THREADS];
  if (argc > 1) n_threads = atoi(argv[1]);
  if (argc > 2) n = (size_t)atoi(argv[2]) << 18;
  if (n_threads < 1 || n_threads > MAX_THREADS || n == 0) return 2;
  a = aligned_alloc(64, n * sizeof *a);
  b = aligned_alloc(64, n * sizeof *b);
  if (a == NULL || b == NULL) return 1;
  for (size_t i = 0; i < n; i++) a[i] = (float)(i % 7);
  memset(b, 1, n * sizeof *b);
  pthread_barrier_init(&gate, NULL, (unsigned)n_threads + 1);
  for (int i = 0; i < n_threads; i++) pthread_create(&t[i], NULL, worker, (void *)(size_t)i);
  for (what = 0; what < KINDS; what++) {
    double best = 1e9;
    for (int r = 0; r <= REPEATS; r++) {
      double start = now();
      pthread_barrier_wait(&gate);
      pthread_barrier_wait(&gate);
      double took = now() - start;
      if (r > 0 && took < best) best = took;
    }
    if (what == READ) of_read = best;
    if (what == READ) continue;
    if (what == READ_AHEAD && of_read < best) best = of_read;
    const double bytes = (what <= COPY_NT ? 2.0 : 1.0) * (double)(n * sizeof *a);
    printf("%s\"%s\": %.3f", what == 0 ? "{" : ", ", names[what], bytes / best / 1e9);
  }
  for (int i = 0; i < n_threads; i++) pthread_join(t[i], NULL);
  printf(", \"check\": %.1f}\n", sums[0]);
  free(a);
  free(b);
  return 0;
}
