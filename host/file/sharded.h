/* Logical tensors whose chunks are in several safetensors files, as torch.distributed.checkpoint's
 * HuggingFaceStorageWriter and our checkpoints save them. A file's metadata DCP_SHARDING_INFO =
 * {"<name>":{"saved_offsets":[...]}} gives the offset of each of its tensors in the whole one. A
 * tensor that it does not name is whole. Called by the bindings (accel.load of a folder) and by the
 * checkpoint code, which loads any box of any tensor in any world.
 *
 * Rules, by the names that messages use: C1 DCP_SHARDING_INFO is JSON of that form. C2 every name
 * in it is a tensor of the file. C3 an offset per dim, and offset + extent without overflow. C4
 * chunks of one tensor agree in dtype and rank. C5 they do not overlap. C6 they cover the whole
 * tensor, whose extents are the largest offset + extent. */
#ifndef ACI_FILE_SHARDED_H
#define ACI_FILE_SHARDED_H
#include "accel/file.h"

#define ACI_SHARDING_KEY "DCP_SHARDING_INFO"

typedef struct aci_sharded aci_sharded;
typedef struct aci_shard_chunk {
  int file; /* index into the paths */
  const ac_safetensors_entry *entry;
  const int64_t *offset; /* ndim: of its first element in the whole tensor */
} aci_shard_chunk;
typedef struct aci_sharded_tensor {
  const char *name;
  const char *dtype_name; /* as in the files */
  bool has_dtype;         /* false: a format dtype without tensors here */
  ac_dtype dtype;
  int ndim;
  const int64_t *shape; /* of the whole tensor */
  int n_chunks;
  const aci_shard_chunk *chunk; /* in the order of the paths */
} aci_sharded_tensor;

/* Opens and validates all n files. NOT_FOUND, IO or PARSE: the errors of ac_safetensors_open for a
 * file, or "<path>: rule C5: tensor 'x' ...". All files stay open until the close. */
ac_status aci_sharded_open(int n, const char *const *paths, aci_sharded **out, ac_err *e);
void aci_sharded_close(aci_sharded *s); /* NULL is fine */
int aci_sharded_count(const aci_sharded *s);
const aci_sharded_tensor *aci_sharded_at(const aci_sharded *s,
                                         int i); /* in the order of the files, then of the bytes */
const aci_sharded_tensor *aci_sharded_find(const aci_sharded *s, const char *name); /* NULL: none */
int aci_sharded_n_files(const aci_sharded *s);
/* An opened file, for its metadata. borrowed. */
ac_safetensors *aci_sharded_file(const aci_sharded *s, int i);
/* Reads the box of `shape` elements at `offset` (both of t->ndim) into dst: contiguous,
 * host-readable, of that
 * shape and t's dtype. Only the bytes of the box are read, or little more. A chunk that is read
 * whole is compared with its checksum if its file has them. INVALID when the box leaves the tensor,
 * PARSE on a wrong checksum, IO. dst is undefined then. */
ac_status aci_sharded_read(aci_sharded *s, const aci_sharded_tensor *t, const int64_t *offset,
                           const int64_t *shape, ac_tensor *dst, ac_err *e);

#endif
