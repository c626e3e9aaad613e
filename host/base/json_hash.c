/* Keyed hashing of byte strings. Called by the JSON reader and document for their key tables. */
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/json.h"

static uint64_t fold(uint64_t a, uint64_t b) {
  __extension__ unsigned __int128 p = (unsigned __int128)a * b;
  return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* Eight bytes a step, folded with the key into both factors of a product: without the key no
 * collisions can be planned. */
uint64_t aci_hash_bytes(uint64_t key, const void *p, size_t n) {
  static const uint64_t odd = 0x9E3779B97F4A7C15u;
  const unsigned char *s = p;
  uint64_t h = fold(key ^ odd, n ^ (key >> 32 | key << 32) ^ 0xD6E8FEB86659FD93u), w;
  for (; n >= 8; s += 8, n -= 8) {
    memcpy(&w, s, 8);
    h = fold(h ^ w ^ odd, key ^ h);
  }
  w = 0;
  if (n > 0) memcpy(&w, s, n);
  return fold(h ^ w ^ key, odd ^ h);
}

uint64_t aci_hash_key(void) {
  uint64_t key;
  if (getrandom(&key, sizeof key, GRND_NONBLOCK) == (ssize_t)sizeof key) return key;
  struct timespec ts; /* early boot: better than a constant */
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return fold((uint64_t)ts.tv_nsec ^ (uint64_t)(uintptr_t)&ts, (uint64_t)ts.tv_sec | 1);
}
