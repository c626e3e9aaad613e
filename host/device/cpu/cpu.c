/* The CPU device: memory by mmap, copies and fills over the device's team. Called through its
 * vtable. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/base_impl.h"
#include "device/device_impl.h"

enum { PIECE = 1 << 20 };
/* Segments of parameters from here on ask for huge pages: they stay, and are read again and again
 * from one end to the other. A step of generation, which only reads parameters, takes 10 to 20 %
 * less time. The first touch may take longer if memory is fragmented. */
static const size_t HUGE = (size_t)32 << 20;
/* From here on a copy would only push everything else out of the caches: stores go around them,
 * which also saves the read of the lines that are overwritten. */
static const size_t STREAMED = (size_t)32 << 20;

static ac_status map(ac_device *dev, ac_mem_class c, size_t bytes, void **out, ac_err *e) {
  char size[24];
  /* no MAP_POPULATE: pages that are never touched cost nothing, and the toucher's NUMA node gets
   * them */
  void *p =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    return AC_FAIL(e, OOM, "%s: the system does not provide %s: %s", dev->name,
                   aci_bytes_text(size, sizeof size, bytes), strerror(errno));
#ifdef MADV_HUGEPAGE
  /* a kernel without them refuses */
  if (c == AC_MEM_PARAMETER && bytes >= HUGE) (void)madvise(p, bytes, MADV_HUGEPAGE);
#else
  (void)c;
#endif
  *out = p;
  return AC_OK;
}

static void unmap(ac_device *dev, ac_mem_class c, void *p, size_t bytes) {
  (void)dev, (void)c;
  (void)AC_HOLDS(munmap(p, bytes) == 0);
}

/* Releases the system's pages, which may be larger than the pool's, that lie inside. Memory locked
 * by mlock stays. That is harmless. */
static void release(ac_device *dev, ac_mem_class c, void *p, size_t bytes) {
  (void)dev, (void)c;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = -(uintptr_t)p & (page - 1);
  if (bytes > before && bytes - before >= page)
    (void)madvise((char *)p + before, (bytes - before) & ~(page - 1), MADV_DONTNEED);
}

typedef struct move {
  unsigned char *dst;
  const unsigned char *src; /* NULL: fill */
  int byte;
  bool streamed;
} move;

#if defined(__SSE2__)
/* Head and tail by memcpy, whole cache lines in between by stores that bypass the caches. */
void aci_copy_streamed(void *dst, const void *src, size_t n) {
  unsigned char *d = dst;
  const unsigned char *s = src;
  size_t head = -(uintptr_t)d & 63;
  if (head > n) head = n;
  memcpy(d, s, head);
  d += head, s += head, n -= head;
  for (; n >= 64; d += 64, s += 64, n -= 64) {
    __m128i a = _mm_loadu_si128((const __m128i *)s), b = _mm_loadu_si128((const __m128i *)(s + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(s + 32)),
            f = _mm_loadu_si128((const __m128i *)(s + 48));
    _mm_stream_si128((__m128i *)d, a);
    _mm_stream_si128((__m128i *)(d + 16), b);
    _mm_stream_si128((__m128i *)(d + 32), c);
    _mm_stream_si128((__m128i *)(d + 48), f);
  }
  memcpy(d, s, n);
  _mm_sfence();
}

static void stream_fill(unsigned char *d, int byte, size_t n) {
  size_t head = -(uintptr_t)d & 63;
  if (head > n) head = n;
  memset(d, byte, head);
  d += head, n -= head;
  __m128i v = _mm_set1_epi8((char)byte);
  for (; n >= 64; d += 64, n -= 64) {
    _mm_stream_si128((__m128i *)d, v);
    _mm_stream_si128((__m128i *)(d + 16), v);
    _mm_stream_si128((__m128i *)(d + 32), v);
    _mm_stream_si128((__m128i *)(d + 48), v);
  }
  memset(d, byte, n);
  _mm_sfence();
}
#else
void aci_copy_streamed(void *dst, const void *src, size_t n) { memcpy(dst, src, n); }
static void stream_fill(unsigned char *d, int byte, size_t n) { memset(d, byte, n); }
#endif

static void move_range(void *arg, int64_t begin, int64_t end) {
  const move *m = arg;
  unsigned char *d = m->dst + begin;
  size_t n = (size_t)(end - begin);
  if (m->src != NULL) {
    if (m->streamed) aci_copy_streamed(d, m->src + begin, n);
    else memcpy(d, m->src + begin, n);
  } else {
    if (m->streamed) stream_fill(d, m->byte, n);
    else memset(d, m->byte, n);
  }
}

static ac_status copy(ac_device *dev, ac_stream *s, void *dst, const void *src, size_t bytes,
                      ac_err *e) {
  (void)s, (void)e;
  if (bytes == 0 || dst == src) return AC_OK;
  uintptr_t d = (uintptr_t)dst, f = (uintptr_t)src;
  if (d < f + bytes && f < d + bytes) {
    /* the ranges overlap: pieces in another order would read bytes that are already overwritten */
    memmove(dst, src, bytes);
    return AC_OK;
  }
  move m = {.dst = dst, .src = src, .streamed = bytes >= STREAMED};
  ac_parallel_for(dev->team, (int64_t)bytes, PIECE, move_range, &m);
  return AC_OK;
}

static ac_status fill(ac_device *dev, ac_stream *s, void *dst, int byte, size_t bytes, ac_err *e) {
  (void)s, (void)e;
  if (bytes == 0) return AC_OK;
  move m = {.dst = dst, .byte = byte, .streamed = bytes >= STREAMED};
  ac_parallel_for(dev->team, (int64_t)bytes, PIECE, move_range, &m);
  return AC_OK;
}

const ac_device_vtable *ac_device_cpu_vtable(void) {
  static const ac_device_vtable vt = {
      .struct_size = sizeof vt,
      .name = "cpu",
      .single = true,
      .mem_map = map,
      .mem_unmap = unmap,
      .mem_release = release,
      .copy = copy,
      .fill = fill,
  };
  return &vt;
}
