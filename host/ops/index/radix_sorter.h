/* A template of radix_sort.c, which defines T, sfx, LESS, DIGIT, LAST and MERGED before each
 * #include. The end of this file undefines them. MERGED: up to this length merging is faster than
 * counting digits. */
#include "base/cat.h"

static void ACI_CAT(insert_, sfx)(T *a, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    T v = a[i];
    int64_t j = i;
    for (; j > 0 && LESS(v, a[j - 1]); j--) a[j] = a[j - 1];
    a[j] = v;
  }
}
static void ACI_CAT(join_, sfx)(const T *l, int64_t nl, const T *r, int64_t nr, T *out) {
  const T *l_end = l + nl, *r_end = r + nr;
  while (l < l_end && r < r_end) {
    bool right = LESS(*r, *l);
    *out++ = right ? *r : *l;
    r += right;
    l += !right;
  }
  while (l < l_end) *out++ = *l++;
  while (r < r_end) *out++ = *r++;
}
static void ACI_CAT(merge_, sfx)(T *a, T *tmp, int64_t n) {
  T *from = a, *to = tmp;
  for (int64_t i = 0; i < n; i += RUN) ACI_CAT(insert_, sfx)(a + i, n - i < RUN ? n - i : RUN);
  for (int64_t w = RUN; w < n; w *= 2) {
    for (int64_t i = 0; i < n; i += 2 * w) {
      int64_t nl = n - i < w ? n - i : w, nr = n - i - nl < w ? n - i - nl : w;
      ACI_CAT(join_, sfx)(from + i, nl, from + i + nl, nr, to + i);
    }
    SWAP(T *, from, to);
  }
  if (from != a) memcpy(a, from, (size_t)n * sizeof *a);
}
static void ACI_CAT(digits_, sfx)(T *a, T *tmp, int64_t n, int digits) {
  int64_t count[8][BUCKETS];
  T *from = a, *to = tmp;
  memset(count, 0, (size_t)digits * sizeof count[0]);
  for (int64_t i = 0; i < n; i++)
    for (int d = 0; d < digits; d++) count[d][DIGIT(a[i], 8 * d)]++;
  for (int d = 0; d < digits; d++) {
    int64_t at = 0;
    if (count[d][DIGIT(a[0], 8 * d)] == n) continue;
    for (int b = 0; b < BUCKETS; b++) {
      int64_t c = count[d][b];
      count[d][b] = at;
      at += c;
    }
    for (int64_t i = 0; i < n; i++) to[count[d][DIGIT(from[i], 8 * d)]++] = from[i];
    SWAP(T *, from, to);
  }
  if (from != a) memcpy(a, from, (size_t)n * sizeof *a);
}
static void ACI_CAT(sort_, sfx)(T *a, T *tmp, int64_t n, int digits) {
  if (n <= RUN) ACI_CAT(insert_, sfx)(a, n);
  else if (n <= (MERGED)*digits) ACI_CAT(merge_, sfx)(a, tmp, n);
  else ACI_CAT(digits_, sfx)(a, tmp, n, digits);
}
static void ACI_CAT(count_, sfx)(const T *a, int64_t n, int shift, int64_t *count) {
  memset(count, 0, BUCKETS * sizeof *count);
  for (int64_t i = 0; i < n; i++) count[DIGIT(a[i], shift)]++;
}
static void ACI_CAT(deal_, sfx)(const T *a, int64_t n, int shift, int64_t *position, T *out) {
  for (int64_t i = 0; i < n; i++) out[position[DIGIT(a[i], shift)]++] = a[i];
}
/* The median of three pseudo-random keys in [lo, hi). */
static int64_t ACI_CAT(pivot_, sfx)(const T *a, int64_t lo, int64_t hi, uint64_t *seed) {
  int64_t p[3];
  for (int i = 0; i < 3; i++) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    p[i] = lo + (int64_t)((*seed >> 16) % (uint64_t)(hi - lo));
  }
  bool ab = LESS(a[p[0]], a[p[1]]), bc = LESS(a[p[1]], a[p[2]]), ac = LESS(a[p[0]], a[p[2]]);
  return ab == bc ? p[1] : ab != ac ? p[0] : p[2];
}
static void ACI_CAT(select_, sfx)(T *a, int64_t n, int64_t m) {
  int64_t lo = 0, hi = n, want = m - 1;
  uint64_t seed = (uint64_t)n;
  while (hi - lo > RUN) {
    int64_t p = ACI_CAT(pivot_, sfx)(a, lo, hi, &seed), j = lo;
    T v = a[p];
    a[p] = a[hi - 1];
    for (int64_t i = lo; i < hi - 1; i++) {
      T x = a[i];
      a[i] = a[j];
      a[j] = x;
      j += LESS(x, v);
    }
    a[hi - 1] = a[j];
    a[j] = v;
    if (j == want) return;
    if (j < want) lo = j + 1;
    else hi = j;
  }
  ACI_CAT(insert_, sfx)(a + lo, hi - lo);
}
static int64_t ACI_CAT(best_, sfx)(const aci_sort_keys *k, const void *x, int64_t stride,
                                   int64_t begin, int64_t n, int64_t m, T *buf) {
  int64_t room = aci_sort_keys_topk_room(n, m), have = 0;
  T last = LAST, next[BLOCK];
  if (room >= n) {
    aci_sort_keys_load(k, x, stride, begin, n, buf);
    have = n;
  }
  for (int64_t b = have; b < n; b += BLOCK) {
    int64_t c = n - b < BLOCK ? n - b : BLOCK;
    bool any = false;
    aci_sort_keys_load(k, x, stride, begin + b, c, next);
    for (int64_t i = 0; i < c; i++) any |= LESS(next[i], last);
    if (!any) continue;
    if (have + BLOCK > room) {
      ACI_CAT(select_, sfx)(buf, have, m);
      have = m;
      last = buf[m - 1];
    }
    for (int64_t i = 0; i < c; i++) {
      buf[have] = next[i];
      have += LESS(next[i], last);
    }
  }
  if (have <= m) return have;
  ACI_CAT(select_, sfx)(buf, have, m);
  return m;
}

#undef T
#undef sfx
#undef LESS
#undef DIGIT
#undef LAST
#undef MERGED
