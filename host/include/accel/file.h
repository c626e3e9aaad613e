/* accel/file.h - bytes to and from disk: safetensors files, PyTorch's files (read only), GGUF and
 * token files.
 *
 * Files may be hostile. A reader checks every rule of the format before it allocates anything that
 * the file asks for. Its error names the broken rule, the byte and the tensor. Writers are atomic:
 * a temporary file next to the target, fsync, rename, fsync of the folder. */
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
  bool
      widens; /* without has_dtype: values are read as `dtype`, which holds all of them (U64 as i64) */
} ac_safetensors_entry;

/* Opens and validates. NOT_FOUND, IO, or PARSE: "<path>: not a valid safetensors file: rule R10 at
 * byte N: tensor 'x' ..." The rules are listed in file/safetensors.h. */
AC_API ac_status ac_safetensors_open(const char *path, ac_safetensors **out, ac_err *e);
AC_API void ac_safetensors_close(ac_safetensors *f);
AC_API int ac_safetensors_count(const ac_safetensors *f);
/* in the order of their bytes */
AC_API const ac_safetensors_entry *ac_safetensors_at(const ac_safetensors *f, int i);
/* NULL: none */
AC_API const ac_safetensors_entry *ac_safetensors_find(const ac_safetensors *f, const char *name);
/* Without the checksums, which belong to the file and are checked and written here. */
AC_API int ac_safetensors_n_metadata(const ac_safetensors *f);
AC_API void ac_safetensors_metadata(const ac_safetensors *f, int i, const char **key,
                                    const char **value);
/* Reads one tensor into dst: contiguous, on a host-readable device, same dtype and number of
 * elements. Raises the version of its storage. Verifies the checksum when the file has one
 * (metadata "accel.crc32c"). PARSE on a mismatch, IO when the file was cut meanwhile. The contents
 * of dst are then undefined. */
AC_API ac_status ac_safetensors_read(ac_safetensors *f, const ac_safetensors_entry *t,
                                     ac_tensor *dst, ac_err *e);

/* Reads every tensor that has a checksum and compares, through a small buffer: PARSE naming the
 * first that differs. A file without checksums is only read as far as its header, which opening
 * did. */
AC_API ac_status ac_safetensors_verify(ac_safetensors *f, ac_err *e);

/* Writes tensors (contiguous, host-readable) and metadata. INVALID for duplicate or bad names. The
 * target is replaced only when everything is on disk. ENOSPC and similar errors leave it
 * unchanged. */
AC_API ac_status ac_safetensors_write(const char *path, int n, const char *const *names,
                                      ac_tensor *const *tensors, int n_meta,
                                      const char *const *keys, const char *const *values,
                                      ac_err *e);

/* ---- files of PyTorch's torch.save (.pt, .bin), read only ----
 *
 * Such a file is a pickle (a program that builds objects) plus the bytes of storages. Here it is data: it may make plain values and
 * tensors and nothing else. A global that it names must be in a short list of tags, otherwise the file is refused. Both layouts are
 * read, the zip archive and the one before PyTorch 1.6. Everything is checked before memory is allocated. The size of the file bounds
 * the memory. The rules are listed in file/pt.h. */
typedef struct ac_pt ac_pt;
typedef enum ac_pt_kind {
  AC_PT_NONE,
  AC_PT_BOOL, /* i */
  AC_PT_INT,  /* i */
  /* beyond 64 bits: s, n bytes of two's complement, lowest first. ac_pt_decimal returns its
   * digits */
  AC_PT_WIDE_INT,
  AC_PT_FLOAT,   /* f */
  AC_PT_COMPLEX, /* item: two AC_PT_FLOAT */
  AC_PT_STR,     /* s, n bytes of UTF-8, may hold zero bytes. A torch.device is its name */
  AC_PT_BYTES,   /* s, n bytes. Also bytearray, and strings of Python 2 that are not UTF-8 */
  AC_PT_LIST,    /* item, n values. Also tuples (and torch.Size) and sets */
  AC_PT_TUPLE,
  AC_PT_SET,
  /* item, n values: keys and values alternate, in the order of the file. Also OrderedDict,
   * Counter */
  AC_PT_DICT,
  AC_PT_DTYPE,  /* s, n bytes: PyTorch's name, "float32" */
  AC_PT_TENSOR, /* i: ac_pt_tensor_at */
  /* item: the class's name (a str), its state (a dict or tuple, if it has one), and of a DTensor or
   * ShardedTensor the size. Never made here, only described */
  AC_PT_OBJECT,
  AC_PT_KINDS
} ac_pt_kind;
/* A value of the tree. A value shared between several places of the file has one id. There are no
 * cycles, and values nest at most 256 deep. */
typedef struct ac_pt_value {
  uint8_t kind; /* ac_pt_kind */
  uint8_t mark; /* private */
  uint16_t height;
  uint32_t n, at; /* at: byte of the pickle that made it */
  union {
    int64_t i;
    double f;
    const char *s;
    const uint32_t *item; /* ids */
  };
} ac_pt_value;
typedef struct ac_pt_tensor {
  const char *dtype_name; /* PyTorch's */
  bool has_dtype;         /* false: a dtype without tensors here */
  /* Of complex numbers the dtype of their parts, which are one more dim. Of others that are unknown
   * here one that holds their values: uint64 is I64, and ac_pt_read refuses values beyond */
  ac_dtype dtype;
  bool requires_grad, parameter;
  int ndim;
  /* in elements of its storage. Checked to lie within it */
  int64_t shape[AC_MAX_DIMS], stride[AC_MAX_DIMS], offset;
  int storage;
} ac_pt_tensor;

/* Opens a file and checks its tree. NOT_FOUND, IO, or PARSE: "<path>: not a torch.save file that
 * can be read: rule <rule> at byte N: ...". */
AC_API ac_status ac_pt_open(const char *path, ac_pt **out, ac_err *e);
AC_API void ac_pt_close(ac_pt *f); /* NULL is fine */
AC_API uint32_t ac_pt_root(const ac_pt *f);
AC_API const ac_pt_value *ac_pt_at(const ac_pt *f, uint32_t id);
AC_API const ac_pt_tensor *ac_pt_tensor_at(const ac_pt *f, int64_t i);
AC_API int ac_pt_n_storages(const ac_pt *f);
AC_API uint64_t ac_pt_storage_bytes(const ac_pt *f, int i);
/* Reads storage i into dst, u8, contiguous and host-readable, of its size in bytes, in this
 * machine's byte order. PARSE when its CRC-32 differs, or for a uint64 beyond 2^63 - 1. IO when the
 * file was cut meanwhile. */
AC_API ac_status ac_pt_read(ac_pt *f, int i, ac_tensor *dst, ac_err *e);
/* The digits of an AC_PT_WIDE_INT. Malloc'ed, the caller frees. NULL: out of memory. */
AC_API char *ac_pt_decimal(const ac_pt_value *v);

/* ---- GGUF, llama.cpp's files: version 2 and 3 are read, 3 is written ----
 *
 * The rules of the reader are listed in file/gguf.h. */
typedef struct ac_gguf ac_gguf;
enum { AC_GGUF_MAX_DIMS = 4 };
typedef enum ac_gguf_kind { /* of values, by their numbers in files */
                            AC_GGUF_U8,
                            AC_GGUF_I8,
                            AC_GGUF_U16,
                            AC_GGUF_I16,
                            AC_GGUF_U32,
                            AC_GGUF_I32,
                            AC_GGUF_F32,
                            AC_GGUF_BOOL,
                            AC_GGUF_STRING,
                            AC_GGUF_ARRAY,
                            AC_GGUF_U64,
                            AC_GGUF_I64,
                            AC_GGUF_F64
} ac_gguf_kind;
/* types of tensors that can be written. 0: f32 */
enum {
  AC_GGUF_F16 = 1,
  AC_GGUF_Q4_0 = 2,
  AC_GGUF_Q4_1 = 3,
  AC_GGUF_Q5_0 = 6,
  AC_GGUF_Q5_1 = 7,
  AC_GGUF_Q8_0 = 8,
  AC_GGUF_Q4_K = 12,
  AC_GGUF_Q5_K = 13,
  AC_GGUF_Q6_K = 14,
  AC_GGUF_BF16 = 30
};
typedef struct ac_gguf_value {
  const char *key;
  uint8_t kind, item_kind; /* ac_gguf_kind. item_kind: of an array's items */
  uint64_t n;              /* bytes of a string, items of an array */
  /* little-endian. Each string of an array follows 8 bytes that hold its length */
  const unsigned char *at;
} ac_gguf_value;
typedef struct ac_gguf_entry {
  const char *name, *type_name; /* "Q8_0" */
  int type;
  ac_dtype dtype; /* the dtype it is read as: blocks as f32 */
  int ndim;
  int64_t shape[AC_GGUF_MAX_DIMS]; /* the outermost first, unlike in the file */
  uint64_t begin, bytes;           /* in the data */
} ac_gguf_entry;

/* Opens and validates. NOT_FOUND, IO, or PARSE: "<path>: not a GGUF file that can be read: rule
 * <rule> at byte N: ...". */
AC_API ac_status ac_gguf_open(const char *path, ac_gguf **out, ac_err *e);
AC_API void ac_gguf_close(ac_gguf *f); /* NULL is fine */
AC_API int ac_gguf_n_meta(const ac_gguf *f);
AC_API const ac_gguf_value *ac_gguf_meta(const ac_gguf *f, int i);
AC_API const ac_gguf_value *ac_gguf_find_meta(const ac_gguf *f, const char *key); /* NULL: none */
AC_API int ac_gguf_n_tensors(const ac_gguf *f);
AC_API const ac_gguf_entry *ac_gguf_tensor(const ac_gguf *f, int i);
/* Reads tensor i into dst: contiguous, host-readable, of its dtype and number of elements.
 * UNSUPPORTED: blocks of a type of which only the size is known (IQ1, IQ2, IQ3). IO when the file was
 * cut meanwhile. */
AC_API ac_status ac_gguf_read(ac_gguf *f, int i, ac_tensor *dst, ac_err *e);
/* f32 to blocks, which dst holds as u8: AC_GGUF_Q4_0 has 18 bytes for 32 elements, Q4_1 20, Q5_0 22,
 * Q5_1 24, Q8_0 34, Q4_K 144 for 256, Q5_K 176, Q6_K 210. */
AC_API ac_status ac_gguf_quantize(const ac_tensor *src, int type, ac_tensor *dst, ac_err *e);
/* A file that is written tensor by tensor, so that memory holds one of them: head (all before the
 * data, unpadded), then each tensor's bytes, aligned. n_data: bytes of all tensors, each with its
 * padding, hence a multiple of alignment. IO if the disk has no room for them. The target is
 * replaced by commit, only when everything is on disk, and INVALID unless n_data bytes came. After
 * commit, whatever it returned, append and commit return RELEASED. After an append that could not
 * write, both return its code. abort frees the writer, including after commit. NULL is fine. */
typedef struct ac_gguf_writer ac_gguf_writer;
AC_API ac_status ac_gguf_create(const char *path, const void *head, size_t n_head,
                                uint32_t alignment, uint64_t n_data, ac_gguf_writer **out,
                                ac_err *e);
/* contiguous memory of this machine */
AC_API ac_status ac_gguf_append(ac_gguf_writer *w, const ac_tensor *t, ac_err *e);
AC_API ac_status ac_gguf_commit(ac_gguf_writer *w, ac_err *e);
AC_API void ac_gguf_abort(ac_gguf_writer *w);

/* ---- token files ---- */
typedef struct ac_tokens ac_tokens;
/* A file of little-endian integers (u8, u16, i32, u32, i64) after header_bytes of header. Rows are
 * read from the page cache by pread: as fast as a map for rows of some hundred bytes, and a file
 * that is cut or rewritten under us is an error instead of SIGBUS. */
AC_API ac_status ac_tokens_open(const char *path, ac_dtype dt, uint64_t header_bytes,
                                ac_tokens **out, ac_err *e);
AC_API void ac_tokens_close(ac_tokens *t);
AC_API int64_t ac_tokens_length(const ac_tokens *t); /* in tokens */
/* out[r*len + j] = token offset[r] + j, as i64. INDEX when a row leaves the file. */
AC_API ac_status ac_tokens_read(const ac_tokens *t, int64_t n_rows, const int64_t *offset,
                                int64_t len, int64_t *out, ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
