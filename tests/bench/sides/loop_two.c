/* The limit of an all-reduce in shared memory: each of n processes reads its share of all n buffers and writes it to all of them,
 * with a barrier around; for small ones the barrier alone. No library. Prints microseconds by size in bytes (f32), best of the
 * repeats.
 *   loop_two [processes] */
#define _GNU_SOURCE
#include <immintrin.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64 << 20, MAX_RANKS = 8 };
static int n = 2, cores = 2;
static char *buffer[MAX_RANKS];
static _Atomic int *arrived;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void wait_a_turn(void) {
  if (n > cores) sched_yield();
  else __builtin_ia32_pause();
}

static void meet(void) {
  int turn = atomic_fetch_add(arrived, 1) / n;
  while (atomic_load(arrived) < (turn + 1) * n) wait_a_turn();
}

static void share(int rank, size_t bytes) {
  const size_t lo = bytes / (size_t)n * (size_t)rank, hi = lo + bytes / (size_t)n;
  const int streamed = bytes > (size_t)4 << 20;
  for (size_t i = lo; i < hi; i += 64) {
    __m128 s[4];
    for (int k = 0; k < 4; k++) s[k] = _mm_load_ps((float *)(buffer[0] + i + 16 * k));
    for (int r = 1; r < n; r++)
      for (int k = 0; k < 4; k++) s[k] = _mm_add_ps(s[k], _mm_load_ps((float *)(buffer[r] + i + 16 * k)));
    for (int r = 0; r < n; r++)
      for (int k = 0; k < 4; k++) {
        if (streamed) _mm_stream_ps((float *)(buffer[r] + i + 16 * k), s[k]);
        else _mm_store_ps((float *)(buffer[r] + i + 16 * k), s[k]);
      }
  }
  _mm_sfence();
}

/* What no collective can be faster than: all raise a flag of their own and see all others'. */
static double bare_meeting(int rank) {
  enum { TIMES = 200000, LINE = 64 };
  double best = 1e9;
  for (int batch = 0, turn = 0; batch < 4; batch++) {
    double t = now();
    for (int i = 0; i < TIMES; i++) {
      atomic_store_explicit(&arrived[LINE * (rank + 1)], ++turn, memory_order_release);
      for (int r = 0; r < n; r++)
        while (atomic_load_explicit(&arrived[LINE * (r + 1)], memory_order_acquire) < turn) wait_a_turn();
    }
    t = (now() - t) / TIMES * 1e6;
    if (t < best) best = t;
  }
  return best;
}

static void run(int rank) {
  static const size_t sizes[] = {1 << 20, 64 << 20};
  meet();
  double bare = bare_meeting(rank);
  if (rank == 0) printf("{\"b4\": %.4f, \"b1024\": %.4f, ", bare, bare);
  for (int s = 0; s < 2; s++) {
    const int repeats = sizes[s] <= 1 << 20 ? 300 : 8;
    double best = 1e9;
    for (int batch = 0; batch < 4; batch++) {
      meet();
      double t = now();
      for (int i = 0; i < repeats; i++) {
        meet();
        share(rank, sizes[s]);
        meet();
      }
      t = (now() - t) / repeats * 1e6;
      if (t < best) best = t;
    }
    if (rank == 0) printf("%s\"b%zu\": %.4f", s > 0 ? ", " : "", sizes[s], best);
  }
  if (rank == 0) printf("}\n");
}

int main(int argc, char **argv) {
  if (argc > 1) n = atoi(argv[1]);
  if (n < 1 || n > MAX_RANKS) return 2;
  cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  arrived = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (arrived == MAP_FAILED) return 1;
  for (int r = 0; r < n; r++) {
    buffer[r] = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (buffer[r] == MAP_FAILED) return 1;
    memset(buffer[r], 0, MOST);
  }
  for (int r = 1; r < n; r++)
    if (fork() == 0) {
      run(r);
      return 0;
    }
  run(0);
  while (wait(NULL) > 0) continue;
  return 0;
}
