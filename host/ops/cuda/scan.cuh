/* Prefix sums over the threads of a block, and stream compaction (the positions that a predicate
 * chooses, in order). Radix sort and masks on CUDA use them. */
#ifndef ACI_CUDA_SCAN_CUH
#define ACI_CUDA_SCAN_CUH
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

/* The sum of v over the threads before this one. *total: over all. shared: ACI_BLOCK values. */
template <class T> ACI_DEVICE T aci_block_before(T v, T *shared, T *total) {
  const unsigned t = threadIdx.x;
  __syncthreads(); /* old contents were read */
  shared[t] = v;
  for (unsigned step = 1; step < blockDim.x; step *= 2) {
    __syncthreads();
    const T add = t >= step ? shared[t - step] : (T)0;
    __syncthreads();
    shared[t] += add;
  }
  __syncthreads();
  *total = shared[blockDim.x - 1];
  return t > 0 ? shared[t - 1] : (T)0;
}

enum { ACI_SCAN_EACH = 16, ACI_SCAN_CHUNK = ACI_BLOCK * ACI_SCAN_EACH };
static inline int64_t aci_scan_chunks(int64_t n) {
  return (n + ACI_SCAN_CHUNK - 1) / ACI_SCAN_CHUNK;
}

/* v[i] := the sum of the elements before it, for each of `lines` lists of n. With total, v[n] :=
 * the sum of all. One block a list. */
template <class T>
static __global__ void __launch_bounds__(ACI_BLOCK)
    aci_scan_lists(T *v, int64_t lines, int64_t n, int64_t apart, bool total) {
  __shared__ T shared[ACI_BLOCK];
  for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    T *list = v + line * apart, before = 0;
    for (int64_t at = 0; at < n; at += ACI_SCAN_CHUNK) {
      T own[ACI_SCAN_EACH], sum = 0, all;
      const int64_t first = at + threadIdx.x * ACI_SCAN_EACH;
#pragma unroll
      for (int k = 0; k < ACI_SCAN_EACH; k++) {
        own[k] = first + k < n ? list[first + k] : (T)0;
        sum += own[k];
      }
      T run = before + aci_block_before(sum, shared, &all);
#pragma unroll
      for (int k = 0; k < ACI_SCAN_EACH; k++) {
        if (first + k < n) list[first + k] = run;
        run += own[k];
      }
      before += all;
    }
    if (total && threadIdx.x == 0) list[n] = before;
  }
}

/* ---- positions where P::has(i) is true, in their order ----
 *   struct chosen {
 *     __device__ bool has(int64_t i) const;
 *     __device__ void put(int64_t i, int64_t rank) const;    position i is number `rank` of those with has
 *     __device__ void rest(int64_t i, int64_t rank) const;   it has not. `rank` such positions precede it
 *   }; */
template <class P>
static __global__ void __launch_bounds__(ACI_BLOCK)
    aci_count_chosen(const __grid_constant__ P p, int64_t n, int64_t chunks, int64_t *count) {
  __shared__ int shared[ACI_BLOCK];
  for (int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {
    const int64_t begin = c * ACI_SCAN_CHUNK;
    int own = 0, all;
    for (int k = 0; k < ACI_SCAN_EACH; k++) {
      const int64_t i = begin + k * ACI_BLOCK + threadIdx.x; /* any order counts */
      own += i < n && p.has(i);
    }
    aci_block_before(own, shared, &all);
    if (threadIdx.x == 0) count[c] = all;
  }
}
template <class P>
static __global__ void __launch_bounds__(ACI_BLOCK)
    aci_put_chosen(const __grid_constant__ P p, int64_t n, int64_t chunks, const int64_t *first) {
  __shared__ int shared[ACI_BLOCK];
  for (int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {
    const int64_t begin = c * ACI_SCAN_CHUNK + threadIdx.x * ACI_SCAN_EACH;
    unsigned has = 0;
    int own = 0, all;
    for (int k = 0; k < ACI_SCAN_EACH; k++) {
      const bool yes = begin + k < n && p.has(begin + k);
      has |= (unsigned)yes << k;
      own += yes;
    }
    int64_t rank = first[c] + aci_block_before(own, shared, &all);
    for (int k = 0; k < ACI_SCAN_EACH && begin + k < n; k++) {
      if (has >> k & 1) p.put(begin + k, rank++);
      else p.rest(begin + k, rank);
    }
  }
}

/* Counts chunk by chunk. *first (freed by the caller): the number before each chunk, and at the end
 * the total. */
template <class P>
static ac_status aci_choose(ac_frame *f, const P &p, int64_t n, ac_block **first, ac_err *e) {
  const int64_t chunks = aci_scan_chunks(n);
  AC_TRY(
      ac_block_alloc(f->device, (size_t)(chunks + 1) * 8, AC_MEM_ACTIVATION, f->stream, first, e));
  int64_t *count = (int64_t *)(*first)->ptr;
  ac_status st = AC_OK;
  if (chunks > 0)
    st = aci_launch(f, "count", aci_count_chosen<P>, aci_blocks(f->device, chunks, 1), e, p, n,
                    chunks, count);
  if (st == AC_OK)
    st = aci_launch(f, "count (scan)", aci_scan_lists<int64_t>, 1u, e, count, (int64_t)1, chunks,
                    chunks + 1, true);
  if (st != AC_OK) {
    ac_block_free(*first);
    *first = NULL;
  }
  return st;
}
template <class P>
static ac_status aci_put(ac_frame *f, const P &p, int64_t n, const ac_block *first, ac_err *e) {
  const int64_t chunks = aci_scan_chunks(n);
  if (chunks == 0) return AC_OK;
  return aci_launch(f, "put", aci_put_chosen<P>, aci_blocks(f->device, chunks, 1), e, p, n, chunks,
                    (const int64_t *)first->ptr);
}
static inline const int64_t *aci_chosen(const ac_block *first, int64_t n) {
  return (const int64_t *)first->ptr + aci_scan_chunks(n);
}

/* n bytes of device memory: waits for all earlier work of the stream. Only for values that the host
 * cannot continue without:
 * shapes that depend on data. */
static inline ac_status aci_cuda_read(const ac_frame *f, void *to, const void *from, size_t n,
                                      ac_err *e) {
  AC_TRY(f->device->vt->copy(f->device, f->stream, to, from, n, e));
  AC_TRY(aci_cuda_check(f->device, cudaStreamSynchronize(aci_cuda_stream(f->device, f->stream)),
                        "reading a size", e));
  return aci_cuda_faults(f->device, e);
}

#endif
