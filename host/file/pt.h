/* Files of torch.save: declarations shared by the parts of their reader. The public face is in
 * accel/file.h.
 *
 *   pt.c             opening (which layout it is), values and storages by number
 *   pt_zip.c         the archive of PyTorch 1.6 and later
 *   pt_zip_entries.c its directory, entry by entry
 *   pt_legacy.c      the layout before
 *   pt_pickle.c      the opcodes of a pickle, which make values
 *   pt_values.c      values, lists, the check of the finished tree
 *   pt_names.c       the names a pickle may hold
 *   pt_global.c      the values they make: tags, never calls
 *   pt_numpy.c       NumPy's arrays, scalars and dtypes
 *   pt_tensor.c      dtypes, storages (persistent ids), tensors and their bounds
 *
 * Rules, by the names that messages use:
 *   format          neither layout, TorchScript, a tar archive, a bare pickle
 *   truncated       ends too early
 *   name            an entry that torch.save does not write, twice, "..", absolute. Two top folders
 *   compressed      an entry that is not stored as it is, or encrypted
 *   missing         data.pkl or a storage is not there
 *   size            sizes that contradict each other, overlap, leave a hole, or exceed the capacity
 *                   of the file
 *   crc             an entry's CRC-32 differs
 *   opcode          one that torch.save has no use for
 *   unknown_global  a name outside the list
 *   arguments       of a name that is in it
 *   build           of anything but an OrderedDict, an array, or an object whose state is kept
 *   stack           too few values, no mark, too many
 *   memo            a slot that was never put
 *   utf8            a string that is not UTF-8
 *   depth           more than 256 values inside each other
 *   cycle           a value inside itself
 *   bounds          a tensor that leaves its storage
 *
 * Limits: a pickle of 256 MiB, 16 M values, a stack of 1 M, 4 M memo slots (dense), 256 open marks,
 * integers of 1024 bytes. Strings end with the pickle. A byte of a pickle makes at most one value and
 * names at most one item, which bounds memory and time by its size. */
#ifndef ACI_FILE_PT_H
#define ACI_FILE_PT_H
#include "accel/file.h"

enum {
  ACI_PT_MAX_DEPTH = 256,
  ACI_PT_MAX_MARKS = 256,
  ACI_PT_MAX_STACK = 1 << 20,
  ACI_PT_MAX_MEMO = 1 << 22,
  ACI_PT_MAX_VALUES = 1 << 24,
  ACI_PT_MAX_LONG = 1024,
  ACI_PT_MAX_PICKLE = 256 << 20,
  ACI_PT_MAX_ENTRIES = 1 << 22
};
/* Kinds of values that only exist while a pickle is read. */
enum {
  ACI_PT_TAG = AC_PT_KINDS,
  ACI_PT_STORAGE, /* i: number of the storage. n: 1 + number of the view, 0 for the whole */
  ACI_PT_NPDTYPE, /* n: the value of its name. i: dtype, and from bit 8 on whether it is big-endian */
  ACI_PT_ARRAY    /* NumPy's, before BUILD makes a tensor of it */
};
enum { ACI_PT_NO_DTYPE = 255, ACI_PT_BIG = 256 }; /* in i of ACI_PT_NPDTYPE */
enum { ACI_PT_ORDERED = 4 }; /* the mark of an OrderedDict until the tree is checked */

/* ---- dtypes ---- */
typedef struct aci_pt_dtype {
  const char *name, *storage; /* "float32", "FloatStorage". NULL: there is no storage class */
  int dtype;                  /* ac_dtype. -1: elements.h converts it */
  int bytes;                  /* of one element */
  bool pairs;                 /* complex: two elements of our dtype, or one of c64 or c128 */
} aci_pt_dtype;
/* Index into the table, -1 when there is none. ACI_PT_UNTYPED is UntypedStorage's. */
enum { ACI_PT_UNTYPED = 0 };
int aci_pt_dtype_find(const char *name, size_t n, bool of_storage);
int aci_pt_dtype_of(ac_dtype d); /* PyTorch's dtype of ours */
const aci_pt_dtype *aci_pt_dtype_at(int i);

/* ---- the file ---- */
typedef struct aci_pt_storage {
  size_t made_at;  /* byte of the pickle that names it first */
  const char *key; /* in the pickle */
  uint32_t key_len;
  int dtype; /* index of a dtype */
  uint64_t numel, bytes;
  uint64_t at; /* byte of the file. Set by the layout's reader */
  uint32_t crc;
  bool placed; /* the layout's reader has found it */
  bool has_bool;
  const char *data;  /* not NULL: NumPy's, bytes of the pickle */
  bool data_swapped; /* ... in the other byte order than this machine's */
  /* elements that have no dtype here, and the storage that holds them converted: 1 + its number. Of
   * that one: the next of the same source */
  uint32_t converted;
  uint32_t from; /* of such a storage: 1 + the number of its source */
  const struct aci_element *element;
} aci_pt_storage;

typedef struct aci_pt_view { /* a part of a storage, as the layout before PyTorch 0.4 has it */
  uint64_t first, numel;     /* in elements of the storage */
} aci_pt_view;

typedef struct aci_pt_entry { /* of an archive: stored bytes */
  const char *name;           /* after the top folder, in `directory` */
  uint32_t name_len;
  uint64_t header_at, at, bytes; /* from the beginning of the archive */
  uint32_t crc, flags;
} aci_pt_entry;

struct ac_pt {
  int fd;
  char *path;
  uint64_t begin, end; /* the part of the file that is looked at */
  bool big_endian;     /* its storages are, and this machine is not */
  bool has_crc;        /* of storages */
  /* names of torch.distributed.checkpoint's metadata are in the list, tensors are not */
  bool metadata;
  /* pickle */
  unsigned char *pickle; /* strings of values point into it */
  size_t pickle_bytes;
  uint64_t pickle_at; /* byte of the file */
  ac_pt_value *value;
  uint32_t n_values, cap_values, root;
  uint64_t copied; /* bytes and items that globals copied: at most as many as the pickle has */
  char **text;     /* strings made by globals */
  uint32_t n_text, cap_text;
  /* tensors and storages, in the order in which they were made */
  ac_pt_tensor *tensor;
  uint32_t n_tensors, cap_tensors;
  aci_pt_storage *storage;
  uint32_t n_storages, cap_storages;
  aci_pt_view *view;
  uint32_t n_views, cap_views;
  uint32_t *key_hash; /* index + 1 by key */
  uint32_t key_mask;
  uint64_t hash_key;
  /* archive */
  unsigned char *directory;
  aci_pt_entry *entry;
  uint32_t n_entries;
};

/* PARSE: "<path>: not a torch.save file that can be read: rule <rule> at byte <at>: ..." */
ac_status aci_pt_refuse(ac_err *e, const ac_pt *f, uint64_t at, const char *rule, const char *fmt,
                        ...) AC_PRINTF(5, 6);
ac_status aci_pt_no_memory(ac_err *e, const ac_pt *f);
/* Doubles *list of `size`-byte elements when n == *cap. */
ac_status aci_pt_room(ac_err *e, const ac_pt *f, void *list, uint32_t n, uint32_t *cap,
                      size_t size);

/* Opens bytes [begin, begin + bytes) of a file as one of torch.save (the whole file: 0,
 * UINT64_MAX): items of a .distcp file. */
ac_status aci_pt_open_part(const char *path, uint64_t begin, uint64_t bytes, ac_pt **out,
                           ac_err *e);
/* A folder's ".metadata" of torch.distributed.checkpoint: a bare pickle of its own list of
 * names. */
ac_status aci_pt_open_metadata(const char *path, ac_pt **out, ac_err *e);
/* Whether this reader handles a file: by its first bytes, or by its name if these are
 * inconclusive. */
ac_status aci_pt_is(const char *path, bool *is, ac_err *e);

/* ---- layouts: each reads its pickle and places its storages ---- */
ac_status aci_pt_zip(ac_pt *f, ac_err *e);
ac_status aci_pt_zip_directory(ac_pt *f, ac_err *e); /* pt_zip_entries.c: f->entry, validated */
const aci_pt_entry *aci_pt_zip_find(const ac_pt *f, const char *name, size_t n);
ac_status aci_pt_legacy(ac_pt *f, ac_err *e);

/* ---- pickles ---- */
/* Reads the pickle at bytes [from, n) of `pickle`. *used: its end. *cut (may be NULL): whether it
 * does not end within n. */
ac_status aci_pt_pickle(ac_pt *f, size_t from, size_t n, size_t *used, uint32_t *root, bool *cut,
                        ac_err *e);
/* A new value made at byte `at` of the pickle. */
ac_status aci_pt_value(ac_pt *f, int kind, size_t at, uint32_t *id, ac_err *e);
/* Appends to a list, set, dict (key, then value). Items are the caller's to have counted. */
ac_status aci_pt_append(ac_pt *f, uint32_t list, const uint32_t *items, uint32_t n, ac_err *e);
void aci_pt_clear(ac_pt *f); /* back to no values, tensors and storages */
/* The finished tree below root holds values only, no cycle, and is not too deep. */
ac_status aci_pt_check_tree(ac_pt *f, uint32_t root, ac_err *e);
/* A string from bytes that Python's encode("latin1") made of s. */
ac_status aci_pt_latin1(ac_pt *f, size_t at, const ac_pt_value *s, uint32_t *id, ac_err *e);

/* pt_global.c: the opcodes that use names. */
ac_status aci_pt_global(ac_pt *f, size_t at, const char *module, size_t n_module, const char *name,
                        size_t n_name, uint32_t *id, ac_err *e);
ac_status aci_pt_reduce(ac_pt *f, size_t at, uint32_t callee, uint32_t args, uint32_t *id,
                        ac_err *e);
ac_status aci_pt_newobj(ac_pt *f, size_t at, uint32_t cls, uint32_t args, uint32_t *id, ac_err *e);
ac_status aci_pt_build(ac_pt *f, size_t at, uint32_t object, uint32_t state, ac_err *e);
ac_status aci_pt_dtype_value(ac_pt *f, size_t at, int dtype, uint32_t *id, ac_err *e);
/* pt_numpy.c: calls of NumPy's names, and BUILD of the dtypes and arrays that they make. */
ac_status aci_pt_numpy(ac_pt *f, size_t at, int tag, uint32_t args, uint32_t *id, ac_err *e);
ac_status aci_pt_numpy_build(ac_pt *f, size_t at, uint32_t object, uint32_t state, ac_err *e);
/* pt_tensor.c */
ac_status aci_pt_persistent(ac_pt *f, size_t at, uint32_t pid, uint32_t *id, ac_err *e);
ac_status aci_pt_tensor(ac_pt *f, size_t at, uint32_t args, int version, uint32_t *id, ac_err *e);
ac_status aci_pt_parameter(ac_pt *f, size_t at, uint32_t args, uint32_t *id, ac_err *e);
/* Adds a tensor of this dtype (by its number) on t->storage, whose geometry is in elements of the dtype. It is
 * checked, and converted to a dtype of ours. *index: its number. */
ac_status aci_pt_tensor_add(ac_pt *f, size_t at, ac_pt_tensor t, int dtype, int64_t *index,
                            ac_err *e);
/* Nonnegative integers of a tuple. */
ac_status aci_pt_dims(ac_pt *f, size_t at, const ac_pt_value *t, const char *what, int64_t *out,
                      ac_err *e);
aci_pt_storage *aci_pt_storage_find(const ac_pt *f, const char *key, size_t n);

/* The kind of a value, for messages: "an int", "a tensor". */
const char *aci_pt_kind_name(int kind);

#endif
