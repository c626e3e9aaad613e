/* accel/ckpt.h - checkpoints: folders that are there whole or not at all.
 *
 * A save collects tensors and bytes under names of files, writes them into a temporary folder beside the target and renames it when
 * everything is on disk. Several processes, the parts of one save, write into one folder; part 0 commits for all. What it wrote is
 * named with sizes and checksums in MANIFEST.json, which a reader checks before it believes anything.
 *
 * Threads: a save belongs to one thread, but for ac_ckpt_progress, ac_ckpt_done and ac_ckpt_abort. Writing happens in a thread of its own. */
#ifndef ACCEL_CKPT_H
#define ACCEL_CKPT_H
#include "accel/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- saving ---- */
typedef struct ac_ckpt_save ac_ckpt_save;
typedef struct ac_ckpt_options {
  size_t struct_size;
  int part, parts;    /* this process among those that write the checkpoint */
  const char *folder; /* parts above 0: ac_ckpt_folder of part 0; NULL for part 0 */
  bool replace;       /* a committed checkpoint at path gives way; otherwise it is an error */
} ac_ckpt_options;
#define AC_CKPT_OPTIONS_INIT {sizeof(ac_ckpt_options), 0, 1, NULL, false}
/* A tensor, or the range of a larger one that this part holds. */
typedef struct ac_ckpt_item {
  const char *name;
  ac_tensor *tensor;      /* contiguous, readable by the host; retained until it was written or copied */
  const int64_t *shape;   /* (optional) of the whole tensor, as many dims as the tensor has */
  const int64_t *offsets; /* (optional) where this range begins, 0-based */
  bool copied;            /* nobody else writes to its bytes: an asynchronous save needs no copy of its own */
} ac_ckpt_item;
/* Host memory that asynchronous saves copy tensors into, kept from save to save. One save uses it at a time. */
typedef struct ac_ckpt_arena ac_ckpt_arena;
AC_API ac_status ac_ckpt_arena_new(ac_ckpt_arena **out, ac_err *e);
AC_API size_t ac_ckpt_arena_bytes(const ac_ckpt_arena *a);
AC_API bool ac_ckpt_arena_busy(const ac_ckpt_arena *a);
AC_API void ac_ckpt_arena_trim(ac_ckpt_arena *a); /* gives its memory back, unless a save uses it */
AC_API void ac_ckpt_arena_free(ac_ckpt_arena *a); /* no save uses it any more */

/* Begins a checkpoint at path. Part 0 makes the temporary folder (and the folders above it); IO when path exists already. */
AC_API ac_status ac_ckpt_create(const char *path, const ac_ckpt_options *o, ac_ckpt_save **out, ac_err *e);
AC_API const char *ac_ckpt_folder(const ac_ckpt_save *s); /* the temporary folder */
/* A safetensors file; `file` is relative to the folder, its subfolders are made. Names and metadata are copied. INVALID for names,
 * tensors and ranges that cannot be. */
AC_API ac_status ac_ckpt_add_tensors(ac_ckpt_save *s, const char *file, int n, const ac_ckpt_item *items, int n_meta,
                                     const char *const *keys, const char *const *values, ac_err *e);
AC_API ac_status ac_ckpt_add_bytes(ac_ckpt_save *s, const char *file, const void *p, size_t n, ac_err *e);
/* Begins to write. state: a JSON object for the manifest (part 0), NULL: {}. arena: tensors are copied into it now, by the team (NULL:
 * this thread), and may change afterwards; NULL: they are read where they are and must not change until it is done. OOM, INVALID. */
AC_API ac_status ac_ckpt_start(ac_ckpt_save *s, const char *state, size_t state_bytes, ac_ckpt_arena *arena, ac_team *team, ac_err *e);
/* Bytes of this part. */
AC_API void ac_ckpt_progress(const ac_ckpt_save *s, uint64_t *written, uint64_t *all);
AC_API bool ac_ckpt_done(const ac_ckpt_save *s);
/* Waits at most ns (negative: without end). TIMEOUT while it is under way; OK once the checkpoint is committed and on disk; else why
 * it failed. Every part is told the same. */
AC_API ac_status ac_ckpt_wait(ac_ckpt_save *s, int64_t ns, ac_err *e);
/* Asks it to give up; one that is committed by then stays. Afterwards nothing of it is left on disk. */
AC_API void ac_ckpt_abort(ac_ckpt_save *s);
AC_API void ac_ckpt_save_free(ac_ckpt_save *s); /* waits; one that was not started is given up */

/* ---- reading ---- */
typedef struct ac_ckpt ac_ckpt;
typedef struct ac_ckpt_file {
  const char *name;
  uint64_t bytes;
  uint32_t crc32c;
} ac_ckpt_file;
/* Reads the manifest and checks every file's size. NOT_FOUND: no checkpoint there; PARSE: damaged, with the reason; UNSUPPORTED: of a
 * later format. */
AC_API ac_status ac_ckpt_open(const char *path, ac_ckpt **out, ac_err *e);
AC_API void ac_ckpt_close(ac_ckpt *c);
AC_API const char *ac_ckpt_path(const ac_ckpt *c);
AC_API const char *ac_ckpt_manifest(const ac_ckpt *c, size_t *n); /* its JSON text */
AC_API int ac_ckpt_n_files(const ac_ckpt *c);
AC_API const ac_ckpt_file *ac_ckpt_file_at(const ac_ckpt *c, int i); /* by name */
AC_API uint64_t ac_ckpt_bytes(const ac_ckpt *c);                     /* of all files */
/* The whole of a file, its checksum compared; malloc'ed. NOT_FOUND: the manifest has no such file. */
AC_API ac_status ac_ckpt_read_bytes(const ac_ckpt *c, const char *file, char **out, size_t *n, ac_err *e);
/* Compares checksums of the next bytes (some 256 MiB) of all files: those of tensors that ac_ckpt_read gave out whole were compared then
 * and are not read again. *done goes from 0 to ac_ckpt_bytes in steps of this call. PARSE names
 * the file, and the tensor where it is one that is damaged. *done == 0 begins anew. */
AC_API ac_status ac_ckpt_verify(ac_ckpt *c, ac_team *team, uint64_t *done, ac_err *e);

/* An object is what one model, optimizer, ... saved: the safetensors files whose names begin with its own, "model.safetensors" or those
 * of the folder "model". Its tensors are whole ones, put together from the ranges of all files. */
typedef struct ac_ckpt_tensor {
  const char *name;
  const char *dtype_name; /* as in the files */
  bool has_dtype;         /* false: a dtype of the format without tensors here */
  ac_dtype dtype;
  int ndim;
  const int64_t *shape;
} ac_ckpt_tensor;
AC_API int ac_ckpt_n_objects(const ac_ckpt *c);
AC_API const char *ac_ckpt_object_at(const ac_ckpt *c, int i);
/* Opens and checks the object's files at its first use, which stay open. n: its tensors. NOT_FOUND, PARSE, IO. */
AC_API ac_status ac_ckpt_object(ac_ckpt *c, const char *object, int *n, ac_err *e);
AC_API ac_status ac_ckpt_tensor_at(ac_ckpt *c, const char *object, int i, ac_ckpt_tensor *out, ac_err *e);
AC_API ac_status ac_ckpt_tensor_find(ac_ckpt *c, const char *object, const char *name, ac_ckpt_tensor *out, ac_err *e);
/* Reads the range of dst's shape that begins at offsets (NULL: at the first element) into dst: contiguous, host-readable, of the same
 * dtype. Ranges that were saved in one piece are compared with their checksums when all of it is read. */
AC_API ac_status ac_ckpt_read(ac_ckpt *c, const char *object, const char *name, const int64_t *offsets, ac_tensor *dst, ac_err *e);

/* ---- folders of checkpoints ---- */
typedef enum ac_ckpt_status {
  AC_CKPT_OK,         /* manifest and sizes are right */
  AC_CKPT_UNFINISHED, /* a save that is under way, or that ended before it was committed */
  AC_CKPT_DAMAGED,
  AC_CKPT_FOREIGN     /* a folder without a manifest: not ours */
} ac_ckpt_status;
typedef struct ac_ckpt_entry {
  char *name, *path, *reason; /* reason: "" when ok */
  int64_t number;             /* the digits that the name ends with; -1: none */
  ac_ckpt_status status;
  uint64_t bytes;
  char *state;                /* the manifest's state as JSON, NULL unless ok */
} ac_ckpt_entry;
typedef struct ac_ckpt_list {
  int n;
  ac_ckpt_entry *entry; /* by number, then name */
} ac_ckpt_list;
AC_API const char *ac_ckpt_status_name(ac_ckpt_status s); /* "ok", "unfinished", ... */
/* The folders in parent. */
AC_API ac_status ac_ckpt_scan(const char *parent, ac_ckpt_list *out, ac_err *e);
AC_API void ac_ckpt_list_free(ac_ckpt_list *l);
/* Removes the checkpoints with the smallest numbers but for the last `keep`, and names them in out (status: what they were). Only
 * whole ones count and are removed; each disappears at once. */
AC_API ac_status ac_ckpt_prune(const char *parent, int keep, ac_ckpt_list *out, ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
