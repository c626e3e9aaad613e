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

#define T uint64_t
#define sfx word
#define LESS WORD_LESS
#define DIGIT WORD_DIGIT
#define LAST WORD_LAST
#define MERGED 96
#include "ops/index/radix_sorter.h"

#define T aci_wide_key
#define sfx pair
#define LESS PAIR_LESS
#define DIGIT PAIR_DIGIT
#define LAST PAIR_LAST
#define MERGED 96
#include "ops/index/radix_sorter.h"

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
