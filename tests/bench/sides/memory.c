/* What the memory of this machine does, without accel: threads copy, read and write 16M floats (64 MiB an array), each its own part.
 * Prints one JSON object, GB/s, best of the repeats; a copied byte counts as one read and one written.
 *   memory [threads] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 16 << 20, REPEATS = 15, MAX_THREADS = 64 };

static float *a, *b;
static int n_threads = 2, what;
static double sums[MAX_THREADS];
static pthread_barrier_t gate;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void part(int id) {
  size_t lo = (size_t)N * (size_t)id / (size_t)n_threads, hi = (size_t)N * (size_t)(id + 1) / (size_t)n_threads;
  if (what == 0) {
    memcpy(b + lo, a + lo, (hi - lo) * sizeof *a);
  } else if (what == 1) {
    float s[64] = {0};
    for (size_t i = lo; i + 64 <= hi; i += 64)
      for (int k = 0; k < 64; k++) s[k] += a[i + (size_t)k];
    for (int k = 0; k < 64; k++) sums[id] += (double)s[k];
  } else {
    memset(b + lo, 0, (hi - lo) * sizeof *b);
  }
}

static void *worker(void *p) {
  int id = (int)(size_t)p;
  for (int i = 0; i < 3 * (REPEATS + 1); i++) {
    pthread_barrier_wait(&gate);
    part(id);
    pthread_barrier_wait(&gate);
  }
  return NULL;
}

int main(int argc, char **argv) {
  static const double bytes[3] = {2.0 * N * sizeof(float), 1.0 * N * sizeof(float), 1.0 * N * sizeof(float)};
  double best[3];
  pthread_t t[MAX_THREADS];
  if (argc > 1) n_threads = atoi(argv[1]);
  if (n_threads < 1 || n_threads > MAX_THREADS) return 2;
  a = aligned_alloc(64, N * sizeof *a);
  b = aligned_alloc(64, N * sizeof *b);
  if (a == NULL || b == NULL) return 1;
  for (size_t i = 0; i < N; i++) a[i] = (float)(i % 7);
  memset(b, 1, N * sizeof *b);
  pthread_barrier_init(&gate, NULL, (unsigned)n_threads + 1);
  for (int i = 0; i < n_threads; i++) pthread_create(&t[i], NULL, worker, (void *)(size_t)i);
  for (what = 0; what < 3; what++) {
    best[what] = 1e9;
    for (int r = 0; r <= REPEATS; r++) {
      double start = now();
      pthread_barrier_wait(&gate);
      pthread_barrier_wait(&gate);
      double took = now() - start;
      if (r > 0 && took < best[what]) best[what] = took;
    }
  }
  for (int i = 0; i < n_threads; i++) pthread_join(t[i], NULL);
  printf("{\"copy\": %.3f, \"read\": %.3f, \"write\": %.3f, \"check\": %.1f}\n", bytes[0] / best[0] / 1e9,
         bytes[1] / best[1] / 1e9, bytes[2] / best[2] / 1e9, sums[0]);
  free(a);
  free(b);
  return 0;
}
