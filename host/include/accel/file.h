/* accel/file.h - bytes to and from disk: safetensors files and token files.
 *
 * Files come from anywhere: a reader checks every rule of the format before it allocates anything that the file asks for, and says
 * which rule broke, at which byte, in which tensor. Writers are atomic: a temporary file beside the target, fsync, rename, fsync of the folder. */
#ifndef ACCEL_FILE_H
#define ACCEL_FILE_H
#include "accel/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- safetensors ---- */
typedef struct ac_safetensors ac_safetensors;
typedef struct ac_safetensors_entry {
  const char *name;
  const char *dtype_name; /* as in the file: "F32", "F8_E4M3" */
  bool has_dtype;         /* false: a format dtype without tensors here (C64, F4, ...) */
  ac_dtype dtype;
  int ndim;
  const int64_t *shape;
  uint64_t begin, end; /* bytes after the header */
} ac_safetensors_entry;

/* Opens and validates. NOT_FOUND, IO, or PARSE: "<path>: not a valid safetensors file: rule R10 at byte N: tensor 'x' ..."; the rules
 * are listed in file/safetensors.h. */
AC_API ac_status ac_safetensors_open(const char *path, ac_safetensors **out, ac_err *e);
AC_API void ac_safetensors_close(ac_safetensors *f);
AC_API int ac_safetensors_count(const ac_safetensors *f);
AC_API const ac_safetensors_entry *ac_safetensors_at(const ac_safetensors *f, int i);    /* in the order of their bytes */
AC_API const ac_safetensors_entry *ac_safetensors_find(const ac_safetensors *f, const char *name); /* NULL: none */
/* Without the checksums, which belong to the file and are checked and written here. */
AC_API int ac_safetensors_n_metadata(const ac_safetensors *f);
AC_API void ac_safetensors_metadata(const ac_safetensors *f, int i, const char **key, const char **value);
/* Reads one tensor into dst: contiguous, on a host-readable device, same dtype and number of elements; raises the version of its storage.
 * Verifies the checksum when the file has one (metadata "accel.crc32c"). PARSE on a mismatch, IO when the file was cut meanwhile; dst
 * then holds anything. */
AC_API ac_status ac_safetensors_read(ac_safetensors *f, const ac_safetensors_entry *t, ac_tensor *dst, ac_err *e);

/* Reads every tensor that has a checksum and compares, through a small buffer: PARSE naming the first that differs. A file without checksums
 * is only read as far as its header, which opening did. */
AC_API ac_status ac_safetensors_verify(ac_safetensors *f, ac_err *e);

/* Writes tensors (contiguous, host-readable) and metadata. INVALID for duplicate or bad names. The target is replaced only when everything
 * is on disk; ENOSPC and the like leave it as it was. */
AC_API ac_status ac_safetensors_write(const char *path, int n, const char *const *names, ac_tensor *const *tensors, int n_meta,
                                      const char *const *keys, const char *const *values, ac_err *e);

/* ---- token files ---- */
typedef struct ac_tokens ac_tokens;
/* A file of little-endian integers (u8, u16, i32, u32, i64) behind header_bytes of header. Rows are read from the page cache by pread: as fast as a
 * map for rows of some hundred bytes, and a file that is cut or rewritten under us is an error instead of SIGBUS. */
AC_API ac_status ac_tokens_open(const char *path, ac_dtype dt, uint64_t header_bytes, ac_tokens **out, ac_err *e);
AC_API void ac_tokens_close(ac_tokens *t);
AC_API int64_t ac_tokens_length(const ac_tokens *t); /* in tokens */
/* out[r*len + j] = token offset[r] + j, as i64. INDEX when a row leaves the file. */
AC_API ac_status ac_tokens_read(const ac_tokens *t, int64_t n_rows, const int64_t *offset, int64_t len, int64_t *out, ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
