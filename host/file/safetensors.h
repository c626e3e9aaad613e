/* The safetensors format: declarations shared by its reader and writer. Source: the format's README
 * and reference reader.
 *
 * Rules, by the names that messages and tests use. R1 the file has 8 bytes. R2 header <= 100 MB. R3
 * header inside the file. R4 UTF-8. R5 a JSON object. R6 the shape of its members. R7 no repeated
 * keys. R8 plain non-negative integers. R9 known dtypes, sizes that multiply without overflow and
 * equal end - begin. R10 no holes, no overlaps. R11 nothing after the last tensor. R12 rules for
 * writers: padded header, descending alignment. R13 our limits: 32 dims, names of 1024 bytes, no
 * zero bytes in text (R6 implies that a header of N bytes describes at most N/32 tensors and nests
 * 3 deep). R14 pread, never a map. R15 checksums when the file has them. */
#ifndef ACI_FILE_SAFETENSORS_H
#define ACI_FILE_SAFETENSORS_H
#include "accel/file.h"
#include "base/strbuf.h"

enum { ACI_ST_MAX_NAME = 1024, ACI_ST_MAX_DIMS = 32 };
#define ACI_ST_MAX_HEADER 100000000ull
/* Our metadata: the CRC-32C of each tensor in the order of the bytes, 8 hex digits each, one per
 * line. */
#define ACI_ST_CRC_KEY "accel.crc32c"

typedef struct aci_st_dtype {
  const char *name;
  int bits;
  int dtype; /* ac_dtype, -1: none here */
} aci_st_dtype;
const aci_st_dtype *aci_st_dtype_find(const char *name, size_t n);
const aci_st_dtype *aci_st_dtype_of(ac_dtype d);

typedef struct aci_st_entry {
  ac_safetensors_entry
      pub; /* first: the public pointer is cast back. name and shape are set when all is read */
  size_t name_at, dims_at;           /* into text and dims, which move while they grow */
  size_t header_at;                  /* byte in the file of its key */
  uint32_t bits;                     /* of one element */
  const struct aci_element *element; /* pub.widens: how its values become pub.dtype */
  uint32_t crc;
  bool has_crc;
  bool compared; /* the bytes were read since the file was opened, and have this checksum */
} aci_st_entry;

struct ac_safetensors {
  int fd;
  char *path;
  uint64_t file_bytes, data_at;
  int n, cap; /* entries: in the order of the header, then of the bytes */
  aci_st_entry *entry;
  int64_t *dims; /* of all entries */
  size_t n_dims, cap_dims;
  uint32_t *hash; /* index + 1 by name */
  uint32_t hash_mask;
  uint64_t hash_key;
  int n_meta, cap_meta; /* key, value, key, value: offsets into text */
  size_t *meta_at;
  bool has_crc;
  size_t crc_at, crc_header_at; /* the value of ACI_ST_CRC_KEY: into text, byte in the file */
  char *text;                   /* names and metadata, each with a zero byte */
  size_t text_len, text_cap;
};

/* ---- writing ---- */
struct aci_disk;
typedef struct aci_st_item {
  const char *name; /* borrowed, as is the tensor */
  ac_tensor *tensor;
  const void *data; /* the tensor's bytes, or a copy of them */
  uint64_t bytes;
  uint32_t crc; /* once they were written */
} aci_st_item;
/* The layout of a file before it is written. The head's length does not depend on the checksums,
 * which are filled in last. */
typedef struct aci_st_plan {
  int n;
  aci_st_item *item; /* in the order of their bytes */
  uint64_t data;     /* bytes after the head */
  aci_strbuf head;   /* the 8 bytes of its length and the header */
  size_t crc_at;     /* position of the checksums in it. 0: there are none */
} aci_st_plan;       /* zeroed. Call aci_st_plan_fini also after errors */
/* path is for messages. The head's length is a multiple of align (8 or more). INVALID: a name, a
 * tensor or metadata that cannot be. */
ac_status aci_st_plan_make(aci_st_plan *p, const char *path, int n, const char *const *names,
                           ac_tensor *const *tensors, int n_meta, const char *const *keys,
                           const char *const *values, size_t align, ac_err *e);
static inline uint64_t aci_st_plan_bytes(const aci_st_plan *p) { return p->head.len + p->data; }
/* Writes the whole file into fd, which is empty. *crc (optional): of all its bytes. The caller must
 * fsync. */
ac_status aci_st_plan_write(aci_st_plan *p, struct aci_disk *d, int fd, const char *path,
                            uint32_t *crc, ac_err *e);
void aci_st_plan_fini(aci_st_plan *p);
/* ac_safetensors_write, as the file `path` of a set (NULL: a file by itself). */
struct aci_set;
ac_status aci_st_write(struct aci_set *set, const char *path, int n, const char *const *names,
                       ac_tensor *const *tensors, int n_meta, const char *const *keys,
                       const char *const *values, ac_err *e);

/* PARSE: "<path>: not a valid safetensors file: rule <rule> at byte <at>: ..." */
ac_status aci_st_refuse(ac_err *e, const ac_safetensors *f, uint64_t at, const char *rule,
                        const char *fmt, ...) AC_PRINTF(5, 6);
/* Reads the n bytes of a header into f's entries and metadata: R4 to R9 and R13. */
ac_status aci_st_header(ac_safetensors *f, const char *header, size_t n, ac_err *e);
/* A name as messages show it: at most 64 bytes, nothing that moves a cursor. Returns buf. */
enum { ACI_ST_SHOWN = 72 };
const char *aci_st_shown(const char *s, size_t n, char buf[ACI_ST_SHOWN]);

#endif
