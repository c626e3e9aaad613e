/* accel/ckpt.h - checkpoints: folders that are there whole or not at all.
 *
 * A save collects tensors and bytes by file name, writes them into a temporary folder next to the
 * target, and renames that folder when everything is on disk. Several processes, the parts of one
 * save, write into one folder. Part 0 commits for all. MANIFEST.json lists every written file with
 * size and checksum. Readers check it before they use any data.
 *
 * Age. The manifest holds a sequence number: microseconds since 1970 at the commit. If the clock is
 * not past the folder's greatest sequence, the number is that sequence plus one. It never
 * decreases, and it is the only age: ac_ckpt_scan sorts by it, and it decides which checkpoint is
 * newest and which are old enough to remove. Names and times of files do not count. Manifests of
 * format 1.0 have no sequence. They are ordered by the second in which they were written, then by
 * the number in the name.
 *
 * Threads: a save belongs to one thread, but for ac_ckpt_progress, ac_ckpt_done and ac_ckpt_abort.
 * Writing happens in a thread of its own. */
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
  const char *folder; /* parts above 0: ac_ckpt_folder of part 0. NULL for part 0 */
  /* replaces a committed checkpoint at path. Without it such a checkpoint is an error */
  bool replace;
  /* (optional) the run that saves, at most 64 printable bytes. Part 0 only, like the fields
   * below */
  const char *run;
  int n_continues; /* earlier runs whose state that run has taken over */
  const char *const *continues;
  /* the sequence will be greater than this: the sequence of the run's last checkpoint, in any
   * folder */
  int64_t after;
} ac_ckpt_options;
#define AC_CKPT_OPTIONS_INIT \
  { sizeof(ac_ckpt_options), 0, 1, NULL, false, NULL, 0, NULL, 0 }
/* A tensor, or the range of a larger one that this part holds. */
typedef struct ac_ckpt_item {
  const char *name;
  /* contiguous, readable by the host. Retained until it has been written or copied */
  ac_tensor *tensor;
  const int64_t *shape;   /* (optional) of the whole tensor, as many dims as the tensor has */
  const int64_t *offsets; /* (optional) start of this range, 0-based */
  /* nobody else writes to its bytes: an asynchronous save needs no copy of its own */
  bool copied;
} ac_ckpt_item;
/* Host memory that asynchronous saves copy tensors into, kept from save to save. One save uses it
 * at a time. */
typedef struct ac_ckpt_arena ac_ckpt_arena;
AC_API ac_status ac_ckpt_arena_new(ac_ckpt_arena **out, ac_err *e);
AC_API size_t ac_ckpt_arena_bytes(const ac_ckpt_arena *a);
AC_API bool ac_ckpt_arena_busy(const ac_ckpt_arena *a);
AC_API void ac_ckpt_arena_trim(ac_ckpt_arena *a); /* gives its memory back, unless a save uses it */
AC_API void ac_ckpt_arena_free(ac_ckpt_arena *a); /* no save uses it any more */

/* Begins a checkpoint at path. Part 0 makes the temporary folder (and its parents). IO when path
 * exists already, STATE when another save of that path is under way. Both may happen only without
 * `replace`. */
AC_API ac_status ac_ckpt_create(const char *path, const ac_ckpt_options *o, ac_ckpt_save **out,
                                ac_err *e);
AC_API const char *ac_ckpt_folder(const ac_ckpt_save *s); /* the temporary folder */
/* A safetensors file. `file` is relative to the folder, and its subfolders are made. Names and
 * metadata are copied. INVALID for names, tensors and ranges that are not valid. */
AC_API ac_status ac_ckpt_add_tensors(ac_ckpt_save *s, const char *file, int n,
                                     const ac_ckpt_item *items, int n_meta, const char *const *keys,
                                     const char *const *values, ac_err *e);
AC_API ac_status ac_ckpt_add_bytes(ac_ckpt_save *s, const char *file, const void *p, size_t n,
                                   ac_err *e);
/* Begins to write. state: a JSON object for the manifest (part 0), NULL: {}. arena: tensors are
 * copied into it now, by the team (NULL: this thread), and may change afterwards. arena NULL:
 * tensors are read in place and must not change until the save is done. OOM, INVALID. */
AC_API ac_status ac_ckpt_start(ac_ckpt_save *s, const char *state, size_t state_bytes,
                               ac_ckpt_arena *arena, ac_team *team, ac_err *e);
/* Bytes of this part. */
AC_API void ac_ckpt_progress(const ac_ckpt_save *s, uint64_t *written, uint64_t *all);
AC_API bool ac_ckpt_done(const ac_ckpt_save *s);
/* part 0 only, once ac_ckpt_wait has returned OK. 0: unknown */
AC_API int64_t ac_ckpt_save_sequence(const ac_ckpt_save *s);
/* Waits at most ns (negative: without end). TIMEOUT while the save is under way. OK once the
 * checkpoint is committed and on disk. Any other status is the reason of the failure. Every part
 * gets the same status. */
AC_API ac_status ac_ckpt_wait(ac_ckpt_save *s, int64_t ns, ac_err *e);
/* Asks the save to give up. A save that is already committed stays. Afterwards nothing of it is
 * left on disk. */
AC_API void ac_ckpt_abort(ac_ckpt_save *s);
AC_API void ac_ckpt_save_free(ac_ckpt_save *s); /* waits. A save that was not started is dropped */

/* ---- reading ---- */
typedef struct ac_ckpt ac_ckpt;
typedef struct ac_ckpt_file {
  const char *name;
  uint64_t bytes;
  uint32_t crc32c;
} ac_ckpt_file;
/* Reads the manifest and checks every file's size. NOT_FOUND: no checkpoint there. PARSE: damaged,
 * with the reason. UNSUPPORTED: a later format. */
AC_API ac_status ac_ckpt_open(const char *path, ac_ckpt **out, ac_err *e);
AC_API void ac_ckpt_close(ac_ckpt *c);
AC_API const char *ac_ckpt_path(const ac_ckpt *c);
AC_API const char *ac_ckpt_manifest(const ac_ckpt *c, size_t *n); /* its JSON text */
AC_API int ac_ckpt_n_files(const ac_ckpt *c);
AC_API const ac_ckpt_file *ac_ckpt_file_at(const ac_ckpt *c, int i); /* by name */
AC_API uint64_t ac_ckpt_bytes(const ac_ckpt *c);                     /* of all files */
/* A whole file, its checksum compared. malloc'ed. NOT_FOUND: the manifest has no such file. */
AC_API ac_status ac_ckpt_read_bytes(const ac_ckpt *c, const char *file, char **out, size_t *n,
                                    ac_err *e);
/* Compares checksums of the next bytes (about 256 MiB) of all files. Tensors that ac_ckpt_read
 * returned whole were checked then and are not read again. *done goes from 0 to ac_ckpt_bytes in
 * steps of this call. PARSE names the file, and the tensor if one is damaged. */
AC_API ac_status ac_ckpt_verify(ac_ckpt *c, ac_team *team, uint64_t *done, ac_err *e);

/* An object is the state of one model, optimizer and so on: the safetensors files that share a name
 * prefix, "model.safetensors" or the files of the folder "model". Its tensors are whole ones, put
 * together from the ranges of all files. */
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
/* Opens and checks the object's files at its first use, which stay open. n: its tensors. NOT_FOUND,
 * PARSE, IO. */
AC_API ac_status ac_ckpt_object(ac_ckpt *c, const char *object, int *n, ac_err *e);
AC_API ac_status ac_ckpt_tensor_at(ac_ckpt *c, const char *object, int i, ac_ckpt_tensor *out,
                                   ac_err *e);
AC_API ac_status ac_ckpt_tensor_find(ac_ckpt *c, const char *object, const char *name,
                                     ac_ckpt_tensor *out, ac_err *e);
/* Reads the range of dst's shape that begins at offsets (NULL: at the first element) into dst:
 * contiguous, host-readable, of the same dtype. Ranges that were saved in one piece are compared
 * with their checksums when all of it is read. */
AC_API ac_status ac_ckpt_read(ac_ckpt *c, const char *object, const char *name,
                              const int64_t *offsets, ac_tensor *dst, ac_err *e);

/* ---- folders of checkpoints ---- */
typedef enum ac_ckpt_status {
  AC_CKPT_OK,         /* manifest and sizes are right */
  AC_CKPT_UNFINISHED, /* a save that is under way, or that ended before it was committed */
  AC_CKPT_DAMAGED,
  AC_CKPT_FOREIGN /* a folder without a manifest: not ours */
} ac_ckpt_status;
typedef struct ac_ckpt_entry {
  char *name, *path, *reason; /* reason: "" when ok */
  int64_t number;             /* the digits at the end of the name. -1: none */
  ac_ckpt_status status;
  uint64_t bytes;
  char *state;      /* the manifest's state as JSON, NULL unless ok */
  int64_t sequence; /* its age. 0: unknown, because no readable manifest exists */
  /* from the manifest: "" and "[]" (a JSON list) if it names none. NULL without a manifest */
  char *run, *continues;
} ac_ckpt_entry;
typedef struct ac_ckpt_list {
  int n;
  ac_ckpt_entry *entry; /* oldest first. Entries without an age are placed by their numbers */
} ac_ckpt_list;
AC_API const char *ac_ckpt_status_name(ac_ckpt_status s); /* "ok", "unfinished", ... */
/* The folders in parent, by age. */
AC_API ac_status ac_ckpt_scan(const char *parent, ac_ckpt_list *out, ac_err *e);
AC_API void ac_ckpt_list_free(ac_ckpt_list *l);
/* The greatest sequence of the checkpoints in parent, 0 without any. */
AC_API int64_t ac_ckpt_last_sequence(const char *parent);
typedef struct ac_ckpt_prune_options {
  size_t struct_size;
  /* runs != NULL: only checkpoints of these runs count and are removed. "": checkpoints that name
   * no run */
  int n_runs;
  const char *const *runs;
  /* (optional) the name of one checkpoint to keep: usually the caller's latest */
  const char *spare;
  bool dry_run; /* removes nothing */
} ac_ckpt_prune_options;
#define AC_CKPT_PRUNE_OPTIONS_INIT \
  { sizeof(ac_ckpt_prune_options), 0, NULL, NULL, false }
/* Removes the oldest checkpoints except the last `keep`, and lists them in out with the status they
 * had. Only complete checkpoints with a number at the end of their names count and are removed.
 * Each disappears at once. The newest always stays. */
AC_API ac_status ac_ckpt_prune(const char *parent, int keep, ac_ckpt_list *out, ac_err *e);
AC_API ac_status ac_ckpt_prune_with(const char *parent, int keep, const ac_ckpt_prune_options *o,
                                    ac_ckpt_list *out, ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
