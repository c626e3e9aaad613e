/* The placement of parameters on ranks: the part of sharding that needs the internals of tensors.
 * Policies, units and their order are stdlib/accel/shard, which reaches this through
 * bindings/shard/lac_shard.c.
 *
 *   boxes.c      a range of a row-major tensor as boxes, for checkpoints
 *   gathered.c   storage that is there only between unshard and reshard
 *   bind.c       a parameter moves into the memory of its unit */
#ifndef ACI_SHARD_SHARD_H
#define ACI_SHARD_SHARD_H
#include "accel/op.h"
#include "accel/tensor.h"

/* ---- boxes.c ---- */
typedef struct aci_box {
  /* position of its first element in the range, from 0: boxes follow each other there */
  int64_t at;
  int64_t count; /* elements */
  int64_t offset[AC_MAX_DIMS], shape[AC_MAX_DIMS];
} aci_box;
enum { ACI_MAX_BOXES = 2 * AC_MAX_DIMS - 1 };
/* The boxes whose elements, in row-major order and one box after the other, are [from, from +
 * count) of a tensor of this
 * shape: as few as possible, at most 2 * ndim - 1 (1 if ndim is 0). Returns their number, 0 for an
 * empty range. The range must be inside the tensor. */
int aci_boxes(int ndim, const int64_t *shape, int64_t from, int64_t count,
              aci_box out[ACI_MAX_BOXES]);

/* ---- gathered.c ---- */
/* Makes the bytes be there (aci_gathered_set), or fails. */
typedef ac_status (*aci_gather_fn)(void *user, ac_err *e);
/* Storage of a unit's whole parameters. It has bytes between aci_gathered_set(s, bytes) and
 * aci_gathered_set(s, NULL). If it is used without them, it calls gather inside a backward, or
 * anywhere if so configured. Elsewhere it is an error that names the unit. ctx must outlive the
 * calls of its ops. free_fn(user) runs when the storage is freed. On failure user stays the
 * caller's. */
ac_status aci_gathered_new(ac_ctx *c, ac_device *d, size_t bytes, const char *unit, bool anywhere,
                           aci_gather_fn gather, void *user, void (*free_fn)(void *),
                           ac_storage **out, ac_err *e);
/* bytes (as large, on the same device) are retained. NULL releases them. Its version does not
 * change. */
ac_status aci_gathered_set(ac_storage *s, ac_storage *bytes, ac_err *e);
bool aci_gathered_is(const ac_storage *s);    /* made here? */
bool aci_gathered_there(const ac_storage *s); /* has it bytes? */
bool aci_gathered_used(const ac_storage *s);  /* does an op that runs have its bytes? */
/* did an op write to it since its bytes were set? */
bool aci_gathered_written(const ac_storage *s);

/* ---- bind.c ---- */
/* t, a leaf or a plain tensor, from now on lies contiguously in s from element `offset`, as dt:
 * same identity and shape. Earlier views and saved tensors keep the old memory. It moves to the
 * device of s. INVALID if it does not fit, or its gradient has another dtype or is on another
 * device. */
ac_status aci_tensor_bind(ac_tensor *t, ac_storage *s, ac_dtype dt, int64_t offset, ac_err *e);

/* ---- replace.c ---- */
/* t, a leaf or a plain tensor without a gradient, has from's shape, memory and device from now on:
 * same identity, dtype, rank. Earlier views and saved tensors keep the old memory. */
ac_status aci_tensor_replace(ac_tensor *t, const ac_tensor *from, ac_err *e);

#endif
