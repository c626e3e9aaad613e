/* The segments of a pool, for one memory class and stream: memory from the system, cut into chunks
 * by best fit. Free neighbours are joined again. Called by pool.c under the pool's lock. */
#ifndef ACI_SEGMENTS_H
#define ACI_SEGMENTS_H
#include "device/device_impl.h"

enum { ACI_CHUNK_ALIGN = 4096 };

/* The owner of a block: the first member of slab and segment. */
typedef enum aci_owner { ACI_OWNER_SLAB, ACI_OWNER_SEGMENT, ACI_OWNER_FOREIGN } aci_owner;

typedef struct aci_chunk aci_chunk;
typedef struct aci_segments aci_segments;

/* The source of a class's segments, other than the device. Alive until it is replaced and its last
 * segment is unmapped. */
typedef struct aci_source {
  ac_mem_source own;
  size_t refs; /* segments, and the pool while it is the current one */
} aci_source;

/* One mapping. base is NULL on a phantom device: only offsets exist there. */
typedef struct aci_segment {
  aci_owner kind;
  uint32_t id; /* by age: older segments are filled first, on every device alike */
  aci_segments *segments;
  aci_source *source; /* NULL: the device */
  unsigned char *base;
  size_t bytes;
  aci_chunk *first;
  struct aci_segment *next;
} aci_segment;

struct aci_chunk {
  ac_block head; /* the block itself while the chunk is handed out */
  aci_segment *owner;
  size_t offset, size;     /* multiples of ACI_CHUNK_ALIGN */
  aci_chunk *prev, *next;  /* neighbours in the segment. next also links spare structures */
  aci_chunk *left, *right; /* tree of free chunks, by (size, segment id, offset) */
  uint32_t priority;
  bool free;
  bool away; /* free, and its pages went back to the system: bytes that nothing is reserved for */
};

/* The state that all segments of one pool share. */
typedef struct aci_budget {
  ac_device *dev;
  size_t reserved, limit; /* limit 0: none */
  uint64_t n_maps;
  aci_source *source[AC_MEM_CLASSES]; /* NULL: the device */
  struct aci_unmap_hook *unmap_hooks;
  aci_segments *all; /* by `other` */
} aci_budget;

struct aci_segments {
  aci_budget *budget;
  ac_mem_class class;
  size_t unit; /* least size of a segment */
  size_t reserved;
  aci_chunk *root, *away, *spare; /* free chunks: with and without pages */
  aci_segment *segments;
  aci_segments *other; /* of the same budget */
  uint32_t next_id, seed;
};

void aci_segments_init(aci_segments *h, aci_budget *b, ac_mem_class class, size_t unit);
/* Unmaps everything. Every chunk must have been given back. */
void aci_segments_fini(aci_segments *h);
/* A chunk of at least `bytes` out of mapped memory, or NULL. An away chunk gets its pages anew if
 * the limit has room. */
aci_chunk *aci_segments_alloc(aci_segments *h, size_t bytes);
/* Maps a segment that holds `bytes`. OOM when the limit or the system refuses. */
ac_status aci_segments_grow(aci_segments *h, size_t bytes, ac_err *e);
void aci_segments_free(aci_segments *h, aci_chunk *c);
/* Makes s (a reference is taken over, NULL: the device) the source of further segments of a
 * class. */
void aci_budget_set_source(aci_budget *b, ac_mem_class class, aci_source *s);
/* The largest chunk that is free. */
size_t aci_segments_largest(const aci_segments *h);
/* The segment that p lies in, or NULL. */
const aci_segment *aci_segments_find(const aci_segments *h, const void *p);
/* Returns wholly free segments to the system. Returns the bytes that were reserved for them. */
size_t aci_segments_trim(aci_segments *h);
/* Pages of free chunks inside segments go back to the system, as few as make room for `bytes`
 * (without a limit: as many bytes). False: all of them would not be enough, or there are none. */
bool aci_budget_release(aci_budget *b, size_t bytes);

/* Under AddressSanitizer free pool memory is marked as such, so that kernels that run over their
 * block are caught. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ACI_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ACI_ASAN 1
#endif
#ifdef ACI_ASAN
#include <sanitizer/asan_interface.h>
#define ACI_HIDE(dev, p, n) \
  ((dev)->kind == AC_DEV_CPU && (p) != NULL ? __asan_poison_memory_region((p), (n)) : (void)0)
#define ACI_SHOW(dev, p, n) \
  ((dev)->kind == AC_DEV_CPU && (p) != NULL ? __asan_unpoison_memory_region((p), (n)) : (void)0)
#else
#define ACI_HIDE(dev, p, n) ((void)0)
#define ACI_SHOW(dev, p, n) ((void)0)
#endif

#endif
