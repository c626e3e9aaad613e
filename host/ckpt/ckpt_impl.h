/* Declarations shared by the files of host/ckpt, and the map of the folder.
 *
 *   save.c       a save: its contents, starting it, its thread, waiting
 *   write.c      the files of one part: space first, then bytes, fsync
 *   commit.c     parts report their files to part 0. Manifest, rename, acknowledgement. Failure on
 *                any part
 *   owner.c      the writer of a temporary folder: a locked file. Leftovers of ended writers
 *   manifest.c   MANIFEST.json and the parts' own: text and back, every rule
 *   arena.c      memory of asynchronous saves
 *   open.c       an opened checkpoint: sizes, whole files, checksums
 *   object.c     tensors of an opened checkpoint, put together from the files of an object
 *   scan.c       folders of checkpoints: their contents, which to trust, which to remove
 *
 * On disk: PATH is committed. PATH.tmp-<id>, 16 hex digits, is being written, or was: it holds
 * owner-<part>.lock of every part, part-<part>.json once a part's files are on disk,
 * part-<part>.failed with a line when one gave up, part-<part>.left when another has read that.
 * PATH.old-<id> is the name of a replaced checkpoint between two renames. Order of a commit: files
 * and their fsync, part manifests, MANIFEST.json, fsync, removal of part manifests, fsync of the
 * folders, rename, fsync of the parent. Only then is it acknowledged. */
#ifndef ACI_CKPT_IMPL_H
#define ACI_CKPT_IMPL_H
#include <pthread.h>
#include <stdatomic.h>

#include "accel/ckpt.h"
#include "base/json.h"
#include "file/disk.h"
#include "file/safetensors.h"

#define ACI_CKPT_MANIFEST "MANIFEST.json"
enum {
  ACI_CKPT_ID = 17,
  ACI_CKPT_RUN = 65,
  ACI_CKPT_MAX_NAME = 1024,
  ACI_CKPT_MAX_PARTS = 1 << 20
};
#define ACI_CKPT_MAX_SEQUENCE ((int64_t)1 << 62)
#define ACI_CKPT_MAX_MANIFEST ((uint64_t)64 << 20)

/* ---- manifest.c ---- */
typedef struct aci_manifest {
  int n, cap;
  ac_ckpt_file *file; /* names are malloc'ed. Sorted by name */
  int part;           /* -1: of the whole checkpoint */
  int parts;
  uint64_t bytes;
  char id[ACI_CKPT_ID];
  char run[ACI_CKPT_RUN];    /* "": none */
  int64_t sequence;          /* as read from a manifest without one: the second of `created` */
  const aci_json *continues; /* a list of strings. NULL: none */
  char *text;                /* as read */
  size_t text_bytes;
  aci_json_doc *doc; /* as read */
  const aci_json *state;
} aci_manifest; /* {.part = -1} */
void aci_manifest_fini(aci_manifest *m);
ac_status aci_manifest_add(aci_manifest *m, const char *name, uint64_t bytes, uint32_t crc,
                           ac_err *e);
/* Sorts the files. INVALID when two have one name. path is for messages. */
ac_status aci_manifest_sort(aci_manifest *m, const char *path, ac_err *e);
/* The text. state: the root of a JSON object or NULL. */
ac_status aci_manifest_text(const aci_manifest *m, const aci_json *state, aci_strbuf *out,
                            ac_err *e);
/* Takes a malloc'ed text (also on failure). part: -1 or the part whose manifest it must be. PARSE,
 * UNSUPPORTED. */
ac_status aci_manifest_parse_take(aci_manifest *m, const char *path, char *text, size_t n, int part,
                                  ac_err *e);
ac_status aci_manifest_read(aci_manifest *m, const char *path, int part, ac_err *e);
/* NULL: a valid name of a run. Otherwise the fault. */
const char *aci_ckpt_run_fault(const char *s, size_t n);
/* NULL: a valid name of a checkpoint's file. Otherwise the fault. ours: the protocol's own files
 * are refused. */
const char *aci_ckpt_name_fault(const char *s, size_t n);

/* ---- owner.c ---- */
/* Creates and locks the file that identifies the writer of this part. *fd holds the lock. */
ac_status aci_owner_take(const char *folder, int part, int *fd, ac_err *e);
/* The state of a part's writer. */
typedef enum aci_owner_state { ACI_OWNER_NONE, ACI_OWNER_LIVE, ACI_OWNER_DEAD } aci_owner_state;
aci_owner_state aci_owner_look(const char *folder, int part);
/* Removes temporary folders in `parent` that no live process writes. Best effort, silent. keep: a
 * folder to leave alone. */
void aci_ckpt_sweep(const char *parent, const char *keep);
/* Removes a folder with everything below it. Links are removed, not followed. MANIFEST.json goes
 * last. */
ac_status aci_ckpt_remove_tree(const char *path, ac_err *e);
/* Removes a committed one. It renames it first: if the machine stops meanwhile, the remains are not
 * a damaged checkpoint, but rubbish that the next save removes. */
ac_status aci_ckpt_discard(const char *path, ac_err *e);
/* NAME.tmp-<16 hex digits>: the length of NAME, else 0. mark: ".tmp-" or ".old-". */
size_t aci_ckpt_base_of(const char *name, const char *mark);
void aci_ckpt_new_id(char id[ACI_CKPT_ID]);

/* ---- save.c ---- */
typedef struct aci_save_file {
  char *name, *path;
  bool tensors;
  aci_st_plan plan;
  int n_held;
  ac_tensor **held; /* retained, in no order. NULL once released */
  char **names;     /* of the plan's items */
  bool *copied;     /* by tensor of held */
  char *bytes;
  size_t n;
  uint64_t size;
  uint32_t crc;
} aci_save_file;

struct ac_ckpt_save {
  char *path, *folder, *parent;
  char id[ACI_CKPT_ID];
  int part, parts;
  bool replace;
  int owner_fd;
  int n, cap;
  aci_save_file *file;
  aci_json_doc *state;
  char run[ACI_CKPT_RUN];
  aci_json_doc *continues; /* a list of strings. NULL: none */
  int64_t after;
  _Atomic int64_t sequence; /* 0 until it is committed */
  ac_ckpt_arena *arena;     /* borrowed, busy until done */
  bool started;
  bool committed;
  bool other; /* it failed because another part did */
  pthread_t thread;
  bool joined;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool over; /* under lock */
  _Atomic bool done, stop;
  _Atomic uint64_t written;
  uint64_t all;
  ac_status st; /* valid once over */
  ac_err err;
};
/* "<folder>/<name>", malloc'ed. NULL without memory. */
char *aci_ckpt_join(const char *folder, const char *name);
ac_status aci_ckpt_stopped(const ac_ckpt_save *s, ac_err *e);

/* ---- write.c, commit.c: in the save's thread ---- */
ac_status aci_ckpt_write_files(ac_ckpt_save *s, ac_err *e);
ac_status aci_ckpt_commit(ac_ckpt_save *s, ac_err *e);
/* Tells the other parts, waits for them to let go (part 0) and removes the folder. why: of this
 * part's failure, or NULL. */
void aci_ckpt_give_up(ac_ckpt_save *s, const char *why);

/* ---- arena.c ---- */
struct ac_ckpt_arena {
  unsigned char *p;
  size_t bytes;
  _Atomic bool busy;
};
/* Copies the tensors of all files into it and lets the plans read from there. */
ac_status aci_ckpt_snapshot(ac_ckpt_save *s, ac_ckpt_arena *a, ac_team *team, ac_err *e);

/* ---- open.c ---- */
typedef struct aci_ckpt_object {
  char *name;
  struct aci_sharded *s; /* NULL: not opened so far */
} aci_ckpt_object;
struct ac_ckpt {
  char *path;
  aci_manifest m;
  int n_objects;
  aci_ckpt_object *object;
  int at; /* ac_ckpt_verify: file, place in it, checksum so far, bytes of the files before it */
  uint64_t offset;
  uint32_t crc;
  uint64_t summed;
};

/* ---- object.c ---- */
bool aci_is_safetensors(const char *name);
ac_status aci_ckpt_list_objects(ac_ckpt *c, ac_err *e);
void aci_ckpt_close_objects(ac_ckpt *c);
/* A file of an object whose tensors were requested. NULL: not opened, or not a file of tensors. */
const ac_safetensors *aci_ckpt_opened(const ac_ckpt *c, const char *file, const char *path);

#endif
