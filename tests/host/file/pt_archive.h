/* Archives of torch.save built byte by byte, for the tests of its reader and for the fuzz entry of pickles:
 * no test library here. */
#ifndef ACCEL_TESTS_HOST_FILE_PT_ARCHIVE_H
#define ACCEL_TESTS_HOST_FILE_PT_ARCHIVE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32.h"

/* ---- bytes ---- */
typedef struct pt_bytes {
  unsigned char b[8192];
  size_t n;
} pt_bytes;

static inline void pt_add(pt_bytes *o, const void *p, size_t n) {
  if (o->n + n > sizeof o->b) abort();
  memcpy(o->b + o->n, p, n);
  o->n += n;
}
static inline void pt_le(pt_bytes *o, uint64_t v, int n) {
  for (; n > 0; n--, v >>= 8) pt_add(o, &(unsigned char){(unsigned char)v}, 1);
}
static inline void pt_set(pt_bytes *o, size_t at, uint64_t v, int n) {
  for (int i = 0; i < n; i++) o->b[at + (size_t)i] = (unsigned char)(v >> (8 * i));
}

/* ---- an archive ---- */
typedef struct pt_entry {
  const char *name;
  const void *data;
  size_t n;
  size_t header_at, data_at, central_at; /* filled when it is written */
} pt_entry;
typedef struct pt_archive {
  bool descriptors, zip64; /* as torch's own writer, or as Python's zipfile */
  size_t central_at, end_at;
} pt_archive;

static inline void pt_put(pt_bytes *o, pt_archive *a, pt_entry *x, int n) {
  const int flags = a->descriptors ? 0x808 : 0;
  o->n = 0;
  for (int i = 0; i < n; i++) {
    const uint32_t crc = aci_crc32(0, x[i].data, x[i].n);
    const bool later = a->descriptors;
    x[i].header_at = o->n;
    pt_add(o, "PK\3\4", 4);
    pt_le(o, 0, 2);
    pt_le(o, (uint64_t)flags, 2);
    pt_le(o, 0, 6); /* method, time, date */
    pt_le(o, later ? 0 : crc, 4);
    pt_le(o, later ? 0 : x[i].n, 4);
    pt_le(o, later ? 0 : x[i].n, 4);
    pt_le(o, strlen(x[i].name), 2);
    pt_le(o, later ? 6 : 0, 2);
    pt_add(o, x[i].name, strlen(x[i].name));
    if (later) pt_add(o, "FB\2\0ZZ", 6);
    x[i].data_at = o->n;
    pt_add(o, x[i].data, x[i].n);
    if (!later) continue;
    pt_add(o, "PK\7\10", 4);
    pt_le(o, crc, 4);
    pt_le(o, x[i].n, 4);
    pt_le(o, x[i].n, 4);
  }
  a->central_at = o->n;
  for (int i = 0; i < n; i++) {
    x[i].central_at = o->n;
    pt_add(o, "PK\1\2", 4);
    pt_le(o, 0, 4);
    pt_le(o, (uint64_t)flags, 2);
    pt_le(o, 0, 6);
    pt_le(o, aci_crc32(0, x[i].data, x[i].n), 4);
    pt_le(o, x[i].n, 4);
    pt_le(o, x[i].n, 4);
    pt_le(o, strlen(x[i].name), 2);
    pt_le(o, 0, 8);
    pt_le(o, 0, 4);
    pt_le(o, x[i].header_at, 4);
    pt_add(o, x[i].name, strlen(x[i].name));
  }
  const size_t bytes = o->n - a->central_at, end64 = o->n;
  if (a->zip64) {
    pt_add(o, "PK\6\6", 4);
    pt_le(o, 44, 8);
    pt_le(o, 0, 4);
    pt_le(o, 0, 8);
    pt_le(o, (uint64_t)n, 8);
    pt_le(o, (uint64_t)n, 8);
    pt_le(o, bytes, 8);
    pt_le(o, a->central_at, 8);
    pt_add(o, "PK\6\7", 4);
    pt_le(o, 0, 4);
    pt_le(o, end64, 8);
    pt_le(o, 1, 4);
  }
  a->end_at = o->n;
  pt_add(o, "PK\5\6", 4);
  pt_le(o, 0, 4);
  pt_le(o, (uint64_t)n, 2);
  pt_le(o, (uint64_t)n, 2);
  pt_le(o, bytes, 4);
  pt_le(o, a->central_at, 4);
  pt_le(o, 0, 2);
}

/* {"w": a f32 tensor of 4 elements over storage '0'} */
#define PT_PID                                       \
  "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" \
  "0X\3\0\0\0cpuK\4tQ"
#define PT_HEAD "\x80\2}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n("
#define PT_TAIL "K\0K\4\x85K\1\x85\x89}tRs."
static const char pt_good_pickle[] = PT_HEAD PT_PID PT_TAIL;
static const float pt_four[4] = {1, -2, 3.5f, 0};
#define PT_ENTRY(name, data, n) \
  { name, data, n, 0, 0, 0 }
#define PT_GOOD_ENTRIES                                                                                      \
  {                                                                                                          \
    PT_ENTRY("a/data.pkl", pt_good_pickle, sizeof pt_good_pickle - 1), PT_ENTRY("a/byteorder", "little", 6), \
        PT_ENTRY("a/data/0", pt_four, sizeof pt_four), PT_ENTRY("a/version", "3\n", 2),                      \
        PT_ENTRY("a/.data/serialization_id", "0123456789", 10)                                               \
  }
enum { PT_GOOD = 5 };

#endif
