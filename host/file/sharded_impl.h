/* Declarations shared by sharded.c and sharded_read.c. */
#ifndef ACI_FILE_SHARDED_IMPL_H
#define ACI_FILE_SHARDED_IMPL_H
#include "file/sharded.h"

struct aci_sharded {
  int n_files;
  ac_safetensors **file;
  int64_t **offsets;     /* per file: of all dims of its entries, in their order */
  int64_t **dims_before; /* start of its offsets, per file and entry */
  int n;
  aci_sharded_tensor *tensor;
  aci_shard_chunk *chunk; /* of all tensors */
  int64_t *dims;          /* shapes of all tensors */
  uint32_t *hash;         /* index + 1 by name */
  uint32_t hash_mask;
  uint64_t hash_key;
};

/* PARSE: "<path>: rule <rule>: ..." */
ac_status aci_sharded_refuse(ac_err *e, const ac_safetensors *f, const char *rule, const char *fmt,
                             ...) AC_PRINTF(4, 5);

#endif
