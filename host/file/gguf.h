/* GGUF, the file format of llama.cpp: declarations shared by its reader and writer. The public face
 * is in accel/file.h.
 *
 *   gguf.c         opening: metadata and tensors, every rule checked, and reading
 *   gguf_blocks.c  types of tensors: their blocks, to f32 and back (gguf_types.h)
 *   gguf_k.c, gguf_k_write.c   the same for blocks of 256 elements
 *   gguf_write.c   writing
 *
 * A file is magic, version, counts, metadata (key, type, value), tensors (name, dims, type,
 * offset), padding, data. All little-endian. Source: the format's description in the ggml
 * repository (docs/gguf.md) and the block layouts that its Python package reads.
 *
 * Rules, by the names that messages use:
 *   magic       the first four bytes are not GGUF
 *   version     not 2 or 3, or written on a big-endian machine
 *   truncated   the file ends within its head
 *   count       more metadata or tensors than bytes could hold, or than 65,536
 *   key         empty, above 1,024 bytes, a zero byte or no UTF-8 in it, or there twice
 *   type        of a value or tensor that the format does not have (or that nothing here knows the
 *               size of)
 *   value       a bool that is neither 0 nor 1, an array in an array, a string above 16 MiB
 *   alignment   general.alignment is not a power of two in 1 .. 65,536
 *   shape       more than 4 dims, a negative extent, a product beyond 2^62, rows that are not whole
 *               blocks
 *   place       data that is not aligned, leaves the file, or overlaps other data
 *
 * Limits: a head of 512 MiB. Memory follows from bytes that were read: nothing is allocated for a
 * count before its items came. */
#ifndef ACI_FILE_GGUF_H
#define ACI_FILE_GGUF_H
#include "accel/file.h"

enum {
  ACI_GGUF_MAX_COUNT = 1 << 16,
  ACI_GGUF_MAX_KEY = 1024,
  ACI_GGUF_MAX_DIMS = AC_GGUF_MAX_DIMS,
  ACI_GGUF_MAX_STRING = 16 << 20
};
#define ACI_GGUF_MAX_HEAD (512ull << 20)

/* A type of tensors, by its number in files. */
typedef struct aci_gguf_type {
  const char *name; /* NULL: the format has none of this number, or its size is not known here */
  int block;        /* elements of a block, */
  int bytes;        /* which has so many bytes */
  int dtype;        /* ac_dtype of plain elements. -1: blocks */
  void (*decode)(const unsigned char *block, float *y); /* NULL: not read */
  void (*encode)(const float *x, unsigned char *block); /* of finite values. NULL: not written */
  int scale_at; /* the byte of the half whose NaN makes the whole block NaN */
} aci_gguf_type;
/* NULL: unknown. */
const aci_gguf_type *aci_gguf_type_at(uint32_t number);
/* So many blocks of a type with decode, or with encode. */
void aci_gguf_to_f32(ac_team *team, const aci_gguf_type *k, const unsigned char *src, float *dst,
                     int64_t blocks);
void aci_gguf_from_f32(ac_team *team, const aci_gguf_type *k, const float *src, unsigned char *dst,
                       int64_t blocks);

#endif
