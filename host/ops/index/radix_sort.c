/* Sorting and choosing among keys: see sort_keys.h. Short lines are sorted by insertion and
 * merging, longer ones digit by digit from the lowest (bytes, skipping those that all keys share),
 * long ones in this way by all threads. */
#include <stdlib.h>

#include "ops/index/sort_keys.h"

enum { RUN = 16, BUCKETS = 256, CHUNK = 1 << 15, BLOCK = 256 };

#define WORD_LESS(a, b) ((a) < (b))
#define PAIR_LESS(a, b) ((a).key < (b).key || ((a).key == (b).key && (a).at < (b).at))
#define WORD_DIGIT(w, shift) ((w) >> (32 + (shift)) & 255)
#define PAIR_DIGIT(p, shift) ((p).key >> (shift)&255)
#define WORD_LAST ~(uint64_t)0
#define PAIR_LAST ((aci_wide_key){~(uint64_t)0, ~(uint64_t)0})

#define SWAP(T, a, b) \
  do {                \
    T kept = (a);     \
    (a) = (b);        \
    (b) = kept;       \
  } while (0)

/* MERGED: up to this length merging is faster than counting digits. */
#define SORTER(T, sfx, LESS, DIGIT, LAST, MERGED)                                                 \
  static void insert_##sfx(T *a, int64_t n) {                                                     \
    for (int64_t i = 1; i < n; i++) {                                                             \
      T v = a[i];                                                                                 \
      int64_t j = i;                                                                              \
      for (; j > 0 && LESS(v, a[j - 1]); j--) a[j] = a[j - 1];                                    \
      a[j] = v;                                                                                   \
    }                                                                                             \
  }                                                                                               \
  static void join_##sfx(const T *l, int64_t nl, const T *r, int64_t nr, T *out) {                \
    const T *l_end = l + nl, *r_end = r + nr;                                                     \
    while (l < l_end && r < r_end) {                                                              \
      bool right = LESS(*r, *l);                                                                  \
      *out++ = right ? *r : *l;                                                                   \
      r += right;                                                                                 \
      l += !right;                                                                                \
    }                                                                                             \
    while (l < l_end) *out++ = *l++;                                                              \
    while (r < r_end) *out++ = *r++;                                                              \
  }                                                                                               \
  static void merge_##sfx(T *a, T *tmp, int64_t n) {                                              \
    T *from = a, *to = tmp;                                                                       \
    for (int64_t i = 0; i < n; i += RUN) insert_##sfx(a + i, n - i < RUN ? n - i : RUN);          \
    for (int64_t w = RUN; w < n; w *= 2) {                                                        \
      for (int64_t i = 0; i < n; i += 2 * w) {                                                    \
        int64_t nl = n - i < w ? n - i : w, nr = n - i - nl < w ? n - i - nl : w;                 \
        join_##sfx(from + i, nl, from + i + nl, nr, to + i);                                      \
      }                                                                                           \
      SWAP(T *, from, to);                                                                        \
    }                                                                                             \
    if (from != a) memcpy(a, from, (size_t)n * sizeof *a);                                        \
  }                                                                                               \
  static void digits_##sfx(T *a, T *tmp, int64_t n, int digits) {                                 \
    int64_t count[8][BUCKETS];                                                                    \
    T *from = a, *to = tmp;                                                                       \
    memset(count, 0, (size_t)digits * sizeof count[0]);                                           \
    for (int64_t i = 0; i < n; i++)                                                               \
      for (int d = 0; d < digits; d++) count[d][DIGIT(a[i], 8 * d)]++;                            \
    for (int d = 0; d < digits; d++) {                                                            \
      int64_t at = 0;                                                                             \
      if (count[d][DIGIT(a[0], 8 * d)] == n) continue;                                            \
      for (int b = 0; b < BUCKETS; b++) {                                                         \
        int64_t c = count[d][b];                                                                  \
        count[d][b] = at;                                                                         \
        at += c;                                                                                  \
      }                                                                                           \
      for (int64_t i = 0; i < n; i++) to[count[d][DIGIT(from[i], 8 * d)]++] = from[i];            \
      SWAP(T *, from, to);                                                                        \
    }                                                                                             \
    if (from != a) memcpy(a, from, (size_t)n * sizeof *a);                                        \
  }                                                                                               \
  static void sort_##sfx(T *a, T *tmp, int64_t n, int digits) {                                   \
    if (n <= RUN) insert_##sfx(a, n);                                                             \
    else if (n <= (MERGED)*digits) merge_##sfx(a, tmp, n);                                        \
    else digits_##sfx(a, tmp, n, digits);                                                         \
  }                                                                                               \
  static void count_##sfx(const T *a, int64_t n, int shift, int64_t *count) {                     \
    memset(count, 0, BUCKETS * sizeof *count);                                                    \
    for (int64_t i = 0; i < n; i++) count[DIGIT(a[i], shift)]++;                                  \
  }                                                                                               \
  static void deal_##sfx(const T *a, int64_t n, int shift, int64_t *position, T *out) {           \
    for (int64_t i = 0; i < n; i++) out[position[DIGIT(a[i], shift)]++] = a[i];                   \
  }                                                                                               \
  /* The median of three pseudo-random keys in [lo, hi). */                                       \
  static int64_t pivot_##sfx(const T *a, int64_t lo, int64_t hi, uint64_t *seed) {                \
    int64_t p[3];                                                                                 \
    for (int i = 0; i < 3; i++) {                                                                 \
      *seed = *seed * 6364136223846793005u + 1442695040888963407u;                                \
      p[i] = lo + (int64_t)((*seed >> 16) % (uint64_t)(hi - lo));                                 \
    }                                                                                             \
    bool ab = LESS(a[p[0]], a[p[1]]), bc = LESS(a[p[1]], a[p[2]]), ac = LESS(a[p[0]], a[p[2]]);   \
    return ab == bc ? p[1] : ab != ac ? p[0] : p[2];                                              \
  }                                                                                               \
  static void select_##sfx(T *a, int64_t n, int64_t m) {                                          \
    int64_t lo = 0, hi = n, want = m - 1;                                                         \
    uint64_t seed = (uint64_t)n;                                                                  \
    while (hi - lo > RUN) {                                                                       \
      int64_t p = pivot_##sfx(a, lo, hi, &seed), j = lo;                                          \
      T v = a[p];                                                                                 \
      a[p] = a[hi - 1];                                                                           \
      for (int64_t i = lo; i < hi - 1; i++) {                                                     \
        T x = a[i];                                                                               \
        a[i] = a[j];                                                                              \
        a[j] = x;                                                                                 \
        j += LESS(x, v);                                                                          \
      }                                                                                           \
      a[hi - 1] = a[j];                                                                           \
      a[j] = v;                                                                                   \
      if (j == want) return;                                                                      \
      if (j < want) lo = j + 1;                                                                   \
      else hi = j;                                                                                \
    }                                                                                             \
    insert_##sfx(a + lo, hi - lo);                                                                \
  }                                                                                               \
  static int64_t best_##sfx(const aci_sort_keys *k, const void *x, int64_t stride, int64_t begin, \
                            int64_t n, int64_t m, T *buf) {                                       \
    int64_t room = aci_sort_keys_topk_room(n, m), have = 0;                                       \
    T last = LAST, next[BLOCK];                                                                   \
    if (room >= n) {                                                                              \
      aci_sort_keys_load(k, x, stride, begin, n, buf);                                            \
      have = n;                                                                                   \
    }                                                                                             \
    for (int64_t b = have; b < n; b += BLOCK) {                                                   \
      int64_t c = n - b < BLOCK ? n - b : BLOCK;                                                  \
      bool any = false;                                                                           \
      aci_sort_keys_load(k, x, stride, begin + b, c, next);                                       \
      for (int64_t i = 0; i < c; i++) any |= LESS(next[i], last);                                 \
      if (!any) continue;                                                                         \
      if (have + BLOCK > room) {                                                                  \
        select_##sfx(buf, have, m);                                                               \
        have = m;                                                                                 \
        last = buf[m - 1];                                                                        \
      }                                                                                           \
      for (int64_t i = 0; i < c; i++) {                                                           \
        buf[have] = next[i];                                                                      \
        have += LESS(next[i], last);                                                              \
      }                                                                                           \
    }                                                                                             \
    if (have <= m) return have;                                                                   \
    select_##sfx(buf, have, m);                                                                   \
    return m;                                                                                     \
  }
SORTER(uint64_t, word, WORD_LESS, WORD_DIGIT, WORD_LAST, 96)
SORTER(aci_wide_key, pair, PAIR_LESS, PAIR_DIGIT, PAIR_LAST, 96)

void aci_sort_keys_sort(const aci_sort_keys *k, void *keys, void *tmp, int64_t n) {
  if (k->wide) sort_pair(keys, tmp, n, k->digits);
  else sort_word(keys, tmp, n, k->digits);
}

void aci_sort_keys_sort_unordered(const aci_sort_keys *k, void *keys, void *tmp, int64_t n) {
  if (k->wide) merge_pair(keys, tmp, n);
  else merge_word(keys, tmp, n);
}

void aci_sort_keys_select(const aci_sort_keys *k, void *keys, int64_t n, int64_t m) {
  if (k->wide) select_pair(keys, n, m);
  else select_word(keys, n, m);
}

/* Twice m, so that the keys that came since the last time pay for choosing among them. A block is
 * appended without a check. */
int64_t aci_sort_keys_topk_room(int64_t n, int64_t m) {
  int64_t room = 2 * m + 4 * BLOCK;
  return room < n ? room : n;
}

int64_t aci_sort_keys_topk(const aci_sort_keys *k, const void *x, int64_t stride, int64_t begin,
                           int64_t n, int64_t m, void *buf) {
  return k->wide ? best_pair(k, x, stride, begin, n, m, buf)
                 : best_word(k, x, stride, begin, n, m, buf);
}

/* ---- long lines ---- */
typedef struct pass {
  const aci_sort_keys *k;
  void *from, *to;
  int64_t n;
  int shift;
  int64_t *count; /* (chunks, BUCKETS): first the counts, then the place of the next one */
} pass;

static void count_range(void *arg, int64_t begin, int64_t end) {
  const pass *p = arg;
  int64_t *count = p->count + begin / CHUNK * BUCKETS;
  const void *keys = aci_sort_keys_at(p->k, p->from, begin);
  if (p->k->wide) count_pair(keys, end - begin, p->shift, count);
  else count_word(keys, end - begin, p->shift, count);
}

static void deal_range(void *arg, int64_t begin, int64_t end) {
  const pass *p = arg;
  int64_t *position = p->count + begin / CHUNK * BUCKETS;
  const void *keys = aci_sort_keys_at(p->k, p->from, begin);
  if (p->k->wide) deal_pair(keys, end - begin, p->shift, position, p->to);
  else deal_word(keys, end - begin, p->shift, position, p->to);
}

static void copy_range(void *arg, int64_t begin, int64_t end) {
  const pass *p = arg;
  memcpy(aci_sort_keys_at(p->k, p->to, begin), aci_sort_keys_at(p->k, p->from, begin),
         (size_t)(end - begin) * p->k->bytes);
}

/* Counts become positions, bucket by bucket and in it chunk by chunk: the order stays. False: one
 * bucket has all, nothing is to do. */
static bool positions(const pass *p) {
  const int64_t chunks = (p->n + CHUNK - 1) / CHUNK;
  int64_t at = 0;
  for (int b = 0; b < BUCKETS; b++) {
    int64_t first = at;
    for (int64_t c = 0; c < chunks; c++) {
      int64_t m = p->count[c * BUCKETS + b];
      p->count[c * BUCKETS + b] = at;
      at += m;
    }
    if (at - first == p->n) return false;
  }
  return true;
}

ac_status aci_sort_keys_sort_long(ac_frame *f, const aci_sort_keys *k, void *keys, void *tmp,
                                  int64_t n, ac_err *e) {
  ac_block *block;
  pass p = {.k = k, .from = keys, .to = tmp, .n = n};
  int64_t chunks = (n + CHUNK - 1) / CHUNK;
  AC_TRY(ac_block_alloc(f->device, (size_t)(chunks * BUCKETS) * sizeof *p.count, AC_MEM_ACTIVATION,
                        f->stream, &block, e));
  p.count = ac_block_ptr(block);
  for (p.shift = 0; p.shift < 8 * k->digits; p.shift += 8) {
    ac_parallel_for(f->team, n, CHUNK, count_range, &p);
    if (!positions(&p)) continue;
    ac_parallel_for(f->team, n, CHUNK, deal_range, &p);
    SWAP(void *, p.from, p.to);
  }
  if (p.from != keys) ac_parallel_for(f->team, n, CHUNK, copy_range, &p);
  ac_block_free(block);
  return AC_OK;
}
