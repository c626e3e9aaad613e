/* Sorting lines of keys on CUDA: see order.cuh. */
#include "ops/index/order.cuh"

enum { EACH = 8, RADIX = 16, DIGIT_BITS = 4, TILE = ACI_BLOCK * EACH, PARTS = ACI_BLOCK / RADIX };

/* ---- short lines ---- */
/* In shared memory, runs of `segment` = 2^k positions in order, whatever order the scheduler takes:
 * all (key, pos) differ. */
template <class K> ACI_DEVICE void sort_segments(K *key, uint32_t *pos, int segment) {
  for (int run = 2; run <= segment; run *= 2)
    for (int apart = run / 2; apart > 0; apart /= 2) {
      for (int p = (int)threadIdx.x; p < ACI_ORDER_SMALL / 2; p += (int)blockDim.x) {
        const int i = p / apart * 2 * apart + p % apart, j = i + apart;
        const K a = key[i], c = key[j];
        const uint32_t pa = pos[i], pc = pos[j];
        const bool after = a > c || (a == c && pa > pc), up = ((i & (segment - 1)) & run) == 0;
        if (after == up) {
          key[i] = c;
          key[j] = a;
          pos[i] = pc;
          pos[j] = pa;
        }
      }
      __syncthreads();
    }
}

/* ACI_ORDER_SMALL / segment lines a block. A line's positions beyond n sort last. */
template <class K>
static __global__ void __launch_bounds__(ACI_BLOCK)
    order_small(K *keys, uint32_t *at, int64_t lines, int64_t n, int segment) {
  __shared__ K key[ACI_ORDER_SMALL];
  __shared__ uint32_t pos[ACI_ORDER_SMALL];
  const int64_t per_block = ACI_ORDER_SMALL / segment, blocks = (lines + per_block - 1) / per_block;
  for (int64_t b = blockIdx.x; b < blocks; b += gridDim.x) {
    for (int i = (int)threadIdx.x; i < ACI_ORDER_SMALL; i += (int)blockDim.x) {
      const int64_t line = b * per_block + i / segment, k = i % segment;
      const bool real = line < lines && k < n;
      key[i] = real ? keys[line * n + k] : (K) ~(K)0;
      pos[i] = real ? (uint32_t)k : UINT32_MAX;
    }
    __syncthreads();
    sort_segments(key, pos, segment);
    for (int i = (int)threadIdx.x; i < ACI_ORDER_SMALL; i += (int)blockDim.x) {
      const int64_t line = b * per_block + i / segment, k = i % segment;
      if (line >= lines || k >= n) continue;
      keys[line * n + k] = key[i];
      at[line * n + k] = pos[i];
    }
    __syncthreads();
  }
}

/* The `best` first of every tile of a line, next to each other. at NULL: indices are the positions.
 * Missing elements of a tile sort last. */
template <class K>
static __global__ void __launch_bounds__(ACI_BLOCK)
    order_best(const K *keys, const uint32_t *at, int64_t lines, int64_t n, int64_t best,
               K *out_keys, uint32_t *out_at) {
  __shared__ K key[ACI_ORDER_SMALL];
  __shared__ uint32_t pos[ACI_ORDER_SMALL];
  const int64_t tiles = (n + ACI_ORDER_SMALL - 1) / ACI_ORDER_SMALL;
  for (int64_t item = blockIdx.x; item < lines * tiles; item += gridDim.x) {
    const int64_t line = item / tiles, begin = item % tiles * ACI_ORDER_SMALL;
    for (int i = (int)threadIdx.x; i < ACI_ORDER_SMALL; i += (int)blockDim.x) {
      const bool real = begin + i < n;
      key[i] = real ? keys[line * n + begin + i] : (K) ~(K)0;
      pos[i] = !real ? UINT32_MAX : at != NULL ? at[line * n + begin + i] : (uint32_t)(begin + i);
    }
    __syncthreads();
    sort_segments(key, pos, ACI_ORDER_SMALL);
    for (int i = (int)threadIdx.x; i < best; i += (int)blockDim.x) {
      out_keys[item * best + i] = key[i];
      out_at[item * best + i] = pos[i];
    }
    __syncthreads();
  }
}

/* ---- long lines, a digit at a time ---- */
namespace {
struct pass {
  const void *keys;
  const uint32_t *at; /* NULL: indices are the positions */
  void *out_keys;
  uint32_t *out_at, *counts; /* (lines, RADIX, tiles) */
  int64_t lines, n, tiles;
  int shift;
};
} // namespace

template <class K>
static __global__ void __launch_bounds__(ACI_BLOCK) order_count(const __grid_constant__ pass a) {
  __shared__ uint16_t own[RADIX][ACI_BLOCK];
  __shared__ uint32_t part[PARTS][RADIX];
  const int t = (int)threadIdx.x, digit = t % RADIX, piece = t / RADIX;
  for (int64_t item = blockIdx.x; item < a.lines * a.tiles; item += gridDim.x) {
    const int64_t line = item / a.tiles, tile = item % a.tiles, begin = tile * TILE;
    const K *keys = (const K *)a.keys + line * a.n;
    for (int d = 0; d < RADIX; d++) own[d][t] = 0;
    for (int k = 0; k < EACH; k++) {
      const int64_t i = begin + k * ACI_BLOCK + t; /* any order counts */
      if (i < a.n) own[keys[i] >> a.shift & (RADIX - 1)][t]++;
    }
    __syncthreads();
    uint32_t sum = 0;
    for (int k = 0; k < RADIX; k++) sum += own[digit][piece * RADIX + k];
    part[piece][digit] = sum;
    __syncthreads();
    if (t < RADIX) {
      sum = 0;
      for (int k = 0; k < PARTS; k++) sum += part[k][t];
      a.counts[(line * RADIX + t) * a.tiles + tile] = sum;
    }
    __syncthreads();
  }
}

/* One digit of a stable radix sort: moves a tile's elements to the positions that the counts of
 * their digits give. A thread takes EACH neighbours, so that elements of a digit keep their order:
 * counts by (digit, thread) are turned into positions by an exclusive scan. The tile is sorted in
 * shared memory first, so that neighbours are written to neighbouring addresses. */
template <class K>
static __global__ void __launch_bounds__(ACI_BLOCK) order_deal(const __grid_constant__ pass a) {
  __shared__ K key[TILE];
  __shared__ uint32_t pos[TILE], scan[ACI_BLOCK];
  __shared__ uint16_t position[RADIX * ACI_BLOCK]; /* by digit, then thread */
  const int t = (int)threadIdx.x;
  for (int64_t item = blockIdx.x; item < a.lines * a.tiles; item += gridDim.x) {
    const int64_t line = item / a.tiles, tile = item % a.tiles, begin = tile * TILE;
    const int m = a.n - begin < TILE ? (int)(a.n - begin) : TILE;
    for (int i = t; i < m; i += ACI_BLOCK) {
      key[i] = ((const K *)a.keys)[line * a.n + begin + i];
      pos[i] = a.at != NULL ? a.at[line * a.n + begin + i] : (uint32_t)(begin + i);
    }
    for (int d = 0; d < RADIX; d++) position[d * ACI_BLOCK + t] = 0;
    __syncthreads();
    K my_key[EACH];
    uint32_t my_pos[EACH], all;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      const int i = t * EACH + k;
      if (i >= m) continue;
      my_key[k] = key[i];
      my_pos[k] = pos[i];
      position[(int)(my_key[k] >> a.shift & (RADIX - 1)) * ACI_BLOCK + t]++;
    }
    __syncthreads();
    uint32_t sum = 0;
    for (int k = 0; k < RADIX; k++) sum += position[t * RADIX + k];
    uint32_t run = aci_block_before(sum, scan, &all);
    for (int k = 0; k < RADIX; k++) {
      const uint32_t own = position[t * RADIX + k];
      position[t * RADIX + k] = (uint16_t)run;
      run += own;
    }
    __syncthreads();
    if (t < RADIX) scan[t] = position[t * ACI_BLOCK]; /* start of the digit in the tile */
    __syncthreads();
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      if (t * EACH + k >= m) continue;
      const int to = position[(int)(my_key[k] >> a.shift & (RADIX - 1)) * ACI_BLOCK + t]++;
      key[to] = my_key[k];
      pos[to] = my_pos[k];
    }
    __syncthreads();
    for (int i = t; i < m; i += ACI_BLOCK) {
      const int d = (int)(key[i] >> a.shift & (RADIX - 1));
      const int64_t to =
          line * a.n + a.counts[(line * RADIX + d) * a.tiles + tile] + (i - (int)scan[d]);
      ((K *)a.out_keys)[to] = key[i];
      a.out_at[to] = pos[i];
    }
    __syncthreads();
  }
}

template <class K> static ac_status sort_long(ac_frame *f, aci_order *o, ac_err *e) {
  pass a = {};
  a.lines = o->lines;
  a.n = o->n;
  a.tiles = (o->n + TILE - 1) / TILE;
  a.counts = o->counts;
  const unsigned blocks = aci_blocks(f->device, a.lines * a.tiles, 1);
  for (; a.shift < o->bits; a.shift += DIGIT_BITS) {
    a.keys = o->keys;
    a.at = a.shift > 0 ? o->at : NULL;
    a.out_keys = o->other_keys;
    a.out_at = o->other_at;
    AC_TRY(aci_launch(f, "sort (count)", order_count<K>, blocks, e, a));
    const int64_t entries = RADIX * a.tiles;
    AC_TRY(aci_launch(f, "sort (scan)", aci_scan_lists<uint32_t>, aci_blocks(f->device, a.lines, 1),
                      e, a.counts, a.lines, entries, entries, false));
    AC_TRY(aci_launch(f, "sort (deal)", order_deal<K>, blocks, e, a));
    o->other_keys = o->keys;
    o->other_at = o->at;
    o->keys = a.out_keys;
    o->at = a.out_at;
  }
  return AC_OK;
}

ac_status aci_order_sort(ac_frame *f, aci_order *o, ac_err *e) {
  if (o->lines * o->n == 0) return AC_OK;
  if (o->n > ACI_ORDER_SMALL)
    return o->wide ? sort_long<uint64_t>(f, o, e) : sort_long<uint32_t>(f, o, e);
  int segment = 2;
  while (segment < o->n) segment *= 2;
  const int64_t per_block = ACI_ORDER_SMALL / segment;
  const unsigned blocks = aci_blocks(f->device, (o->lines + per_block - 1) / per_block, 1);
  if (o->wide)
    return aci_launch(f, "sort", order_small<uint64_t>, blocks, e, (uint64_t *)o->keys, o->at,
                      o->lines, o->n, segment);
  return aci_launch(f, "sort", order_small<uint32_t>, blocks, e, (uint32_t *)o->keys, o->at,
                    o->lines, o->n, segment);
}

/* Tiles give their best until one tile holds the rest. */
template <class K> static ac_status best_of(ac_frame *f, aci_order *o, int64_t best, ac_err *e) {
  bool first = true;
  int64_t tiles;
  do {
    tiles = (o->n + ACI_ORDER_SMALL - 1) / ACI_ORDER_SMALL;
    AC_TRY(aci_launch(f, "sort (best)", order_best<K>, aci_blocks(f->device, o->lines * tiles, 1),
                      e, (const K *)o->keys, (const uint32_t *)(first ? NULL : o->at), o->lines,
                      o->n, best, (K *)o->other_keys, o->other_at));
    void *const keys = o->keys;
    uint32_t *const at = o->at;
    o->keys = o->other_keys;
    o->at = o->other_at;
    o->other_keys = keys;
    o->other_at = at;
    o->n = tiles * best;
    first = false;
  } while (tiles > 1);
  return AC_OK;
}

ac_status aci_order_best(ac_frame *f, aci_order *o, int64_t best, ac_err *e) {
  if (o->n <= ACI_ORDER_SMALL || best > ACI_ORDER_SMALL / 4 || o->lines == 0)
    return aci_order_sort(f, o, e);
  return o->wide ? best_of<uint64_t>(f, o, best, e) : best_of<uint32_t>(f, o, best, e);
}

ac_status aci_order_open(ac_frame *f, int64_t lines, int64_t n, int bits, aci_order *o, ac_err *e) {
  memset(o, 0, sizeof *o);
  o->lines = lines;
  o->n = n;
  o->bits = bits;
  o->wide = bits > 32;
  if (n > UINT32_MAX)
    return AC_FAIL(e, UNSUPPORTED, "%lld elements to be ordered; 2^32 are too many", (long long)n);
  const size_t all = (size_t)lines * (size_t)n, key = o->wide ? 8 : 4;
  const bool is_long = n > ACI_ORDER_SMALL;
  const size_t counts = is_long ? (size_t)lines * RADIX * (size_t)((n + TILE - 1) / TILE) : 0;
  AC_TRY(ac_block_alloc(f->device, (is_long ? 2 : 1) * all * (key + 4) + counts * 4 + 8,
                        AC_MEM_ACTIVATION, f->stream, &o->block, e));
  char *at = (char *)o->block->ptr;
  o->keys = at;
  if (is_long) o->other_keys = at += all * key;
  o->at = (uint32_t *)(at += all * key);
  if (!is_long) return AC_OK;
  o->other_at = o->at + all;
  o->counts = o->other_at + all;
  return AC_OK;
}

/* ---- keys of a tensor's lines ---- */
namespace {
struct load_args {
  aci_reduce_plan p;
  aci_order o;
  int64_t first;
  bool descending;
};
} // namespace
static __global__ void __launch_bounds__(ACI_BLOCK)
    order_load(const __grid_constant__ load_args a) {
  for (int64_t i = aci_first(); i < a.o.lines * a.o.n; i += aci_step()) {
    const int64_t base =
        aci_element_offset(a.first + i / a.o.n, a.p.n_keep, a.p.keep_shape, a.p.keep_stride);
    aci_order_put_key(
        a.o, i,
        aci_order_load(a.p.dt, a.p.ptr, base + i % a.o.n * a.p.red_stride[0], a.descending));
  }
}

ac_status aci_order_lines(ac_frame *f, const aci_reduce_plan *p, int64_t first, int64_t lines,
                          int64_t best, bool descending, aci_order *o, ac_err *e) {
  AC_TRY(aci_order_open(f, lines, p->n_reduced, 8 * (int)aci_dsize(p->dt), o, e));
  load_args a = {};
  a.p = *p;
  a.o = *o;
  a.first = first;
  a.descending = descending;
  ac_status st = AC_OK;
  if (lines * p->n_reduced > 0)
    st =
        aci_launch(f, "sort (keys)", order_load, aci_blocks(f->device, lines * p->n_reduced), e, a);
  if (st == AC_OK)
    st = best < p->n_reduced ? aci_order_best(f, o, best, e) : aci_order_sort(f, o, e);
  if (st != AC_OK) aci_order_close(o);
  return st;
}
