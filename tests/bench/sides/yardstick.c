/* How fast the machine itself is at the moment: a chain of additions and multiplications in registers, and copies of memory beyond the
 * caches. No part of accel, so that a difference between two times is the machine's. Prints nanoseconds as JSON. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHAIN = 4000000, BYTES = 32 << 20, TRIES = 5 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(void) {
  char *a = malloc(BYTES), *b = malloc(BYTES);
  if (a == NULL || b == NULL) return 1;
  memset(a, 1, BYTES);
  memset(b, 2, BYTES);
  double chain = 1e300, copy = 1e300;
  volatile uint64_t x = 1;
  for (int i = 0; i < TRIES; i++) {
    double from = now();
    uint64_t y = x;
    for (int k = 0; k < CHAIN; k++) y = y * 6364136223846793005u + 1442695040888963407u;
    x = y;
    double spent = now() - from;
    if (spent < chain) chain = spent;
    from = now();
    memcpy(i % 2 != 0 ? a : b, i % 2 != 0 ? b : a, BYTES);
    spent = now() - from;
    if (spent < copy) copy = spent;
  }
  printf("{\"chain_ns\": %.4f, \"copy_ns\": %.1f, \"seen\": %d}\n", chain / CHAIN, copy, (int)(x & 1) + a[7] + b[9]);
  return 0;
}
