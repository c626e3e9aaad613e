/* Private face of tensors: fields that ops, autograd and bindings read directly.
 *
 * Invariants: shape and stride point into dims[]. offset and strides are in elements. A tensor
 * without storage is a shape that the dispatcher has not allocated yet. grad_fn is the node that
 * made this tensor (retained), acc the node that accumulates into ->grad of a leaf (it points back
 * without a reference). */
#ifndef ACI_TENSOR_IMPL_H
#define ACI_TENSOR_IMPL_H
#include <string.h>

#include "accel/tensor.h"
#include "device/device_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ac_node;      /* autograd */
struct ac_placement; /* shard: global shape, mesh, box of this rank */

/* A copy of the bytes in another form (bf16, packed, ...), valid while version matches. */
typedef struct aci_derived {
  struct aci_derived *next;
  uint32_t kind, version;
  ac_storage *storage;
} aci_derived;

struct ac_storage {
  AC_ATOMIC(int32_t) ref;
  AC_ATOMIC(uint32_t) version;
  uint32_t graph_version; /* in-place writes that autograd recorded: views taken before are stale */
  void *ptr;              /* NULL while not resident, and on phantom devices */
  size_t bytes;
  ac_device *device;           /* retained if there is no block. A block keeps it */
  ac_block *block;             /* NULL for wrapped and provided memory */
  const ac_provider *provider; /* NULL: resident for life */
  struct ac_layout *layout;    /* owned. NULL: plain. See layout.h */
  void *impl;                  /* the provider's, or the wrapper's user */
  void (*free_fn)(void *user);
  aci_derived *derived;
};

/* The place of a leaf's accumulated gradient when its memory belongs to a bucket or a flat unit. */
typedef struct aci_grad_slot {
  /* view of the owner's buffer, dtype may differ from the parameter's. Retained */
  struct ac_tensor *view;
  bool filled; /* false: the next gradient overwrites */
} aci_grad_slot;

enum {
  ACI_T_REQUIRES_GRAD = 1, /* leaf flag. A non-leaf requires grad when it has a grad_fn */
  ACI_T_RETAIN_GRAD = 2,
  ACI_T_VIEW = 4,      /* shares its storage with the tensor it was taken from */
  ACI_T_LEAF_VIEW = 8, /* ... and that was, directly or not, a leaf that requires grad */
  /* the gradient that is there still is to be multiplied (clipping): nothing may be added to it */
  ACI_T_GRAD_DUE = 16
};

struct ac_tensor {
  AC_ATOMIC(int32_t) ref;
  uint8_t dtype; /* ac_dtype */
  uint8_t ndim;
  uint8_t flags;
  uint8_t ext; /* for bindings: this Lua state keeps a box of it */
  int64_t numel;
  int64_t offset;
  ac_storage *storage; /* retained */
  struct ac_tensor *grad;
  struct ac_node *grad_fn; /* retained */
  /* retained: the leaf's accumulation node. It points back without a reference */
  struct ac_node *acc;
  int32_t out_nr;            /* which output of grad_fn */
  uint32_t view_version;     /* storage->graph_version when this view was taken */
  struct aci_meta *saved_by; /* in the nodes of ops that keep this tensor as an argument */
  aci_grad_slot *grad_slot;
  struct ac_placement *placement;
  /* owned, until the storage is there and takes it: of a result that is to be quantised */
  struct ac_layout *layout;
  /* == storage->device. Also set before storage exists. Not retained without storage */
  ac_device *device;
  const int64_t *stride;
  int64_t shape[]; /* ndim extents, then ndim strides (writable while being built) */
};

/* Called by tensor.c when a tensor that has autograd state is freed. Set once by the autograd
 * stage. */
extern void (*aci_tensor_drop_autograd)(ac_tensor *t);

/* A tensor without storage: contiguous strides filled in. NULL when memory is short. */
ac_tensor *aci_tensor_shell(ac_device *d, ac_dtype dt, int ndim, const int64_t *shape);
/* A new tensor viewing t's storage with another geometry and no autograd state. The caller
 * guarantees numel and bounds. */
ac_tensor *aci_tensor_alias(const ac_tensor *t, int ndim, const int64_t *shape,
                            const int64_t *stride, int64_t offset);
/* Same storage, same geometry, no autograd state. */
static inline ac_tensor *aci_tensor_detach(const ac_tensor *t) {
  return aci_tensor_alias(t, t->ndim, t->shape, t->stride, t->offset);
}
/* The real (0) or imaginary (1) parts of a complex tensor, without autograd state. NULL: no memory. */
ac_tensor *aci_tensor_part(const ac_tensor *t, int part);
/* gives a shell its storage (contiguous span of its strides) */
ac_status aci_tensor_alloc(ac_tensor *t, ac_mem_class c, ac_err *e);
static inline int64_t *aci_stride_mut(ac_tensor *t) { return t->shape + t->ndim; }

#ifndef __cplusplus
/* True when the caller held the last reference. A count of one cannot rise any more, so it needs no
 * locked instruction. */
static inline bool aci_unref(_Atomic int32_t *ref) {
  return atomic_load_explicit(ref, memory_order_acquire) == 1 ||
         atomic_fetch_sub_explicit(ref, 1, memory_order_acq_rel) == 1;
}
#endif

static inline bool aci_requires_grad(const ac_tensor *t) {
  return t->grad_fn != NULL || (t->flags & ACI_T_REQUIRES_GRAD);
}
static inline bool aci_is_leaf(const ac_tensor *t) { return t->grad_fn == NULL; }
static inline bool aci_is_complex(const ac_tensor *t) { return t->dtype >= AC_C64; }
/* The dtype of the parts of a complex one, and the complex dtype of parts of a float one. */
static inline ac_dtype aci_part_dtype(ac_dtype d) { return d == AC_C128 ? AC_F64 : AC_F32; }
static inline ac_dtype aci_complex_dtype(ac_dtype d) { return d == AC_F64 ? AC_C128 : AC_C64; }
/* Dtypes that have gradients. */
static inline bool aci_has_grad(ac_dtype d) { return ac_dtype_is_float(d) || d >= AC_C64; }
static inline size_t aci_dsize(ac_dtype d) {
  static const uint8_t bytes[AC_DTYPE_COUNT] = {
#define AC_X(name, s, t, b, cls) b,
      AC_DTYPE_LIST(AC_X)
#undef AC_X
  };
  return bytes[d];
}
static inline void *aci_data(const ac_tensor *t) {
  return t->storage->ptr == NULL
             ? NULL
             : (char *)t->storage->ptr + t->offset * (int64_t)aci_dsize((ac_dtype)t->dtype);
}
/* The stride of a dim with one element is never used. A tensor without elements is contiguous. */
static inline bool aci_is_contiguous(const ac_tensor *t) {
  int64_t step = 1;
  for (int i = t->ndim - 1; i >= 0; i--) {
    if (t->shape[i] == 1) continue;
    if (t->stride[i] != step) return t->numel == 0;
    step *= t->shape[i];
  }
  return true;
}
void aci_contiguous_strides(int ndim, const int64_t *shape, int64_t *stride);
/* Do two elements of t share an address (expanded or otherwise overlapping)? Exact for expand,
 * conservative for the rest. */
bool aci_overlaps_self(const ac_tensor *t);
static inline bool aci_same_shape(const ac_tensor *a, const ac_tensor *b) {
  if (a->ndim != b->ndim) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] != b->shape[i]) return false;
  return true;
}
/* Writes "(2, 3)" into buf and returns it. */
const char *aci_shape_str(int ndim, const int64_t *shape, char *buf, size_t n);
/* "f32 (2, 3) on cpu", for messages. */
const char *aci_tensor_str(const ac_tensor *t, char *buf, size_t n);
/* Broadcasts b onto (ndim,shape) in place as PyTorch does. SHAPE with both shapes otherwise. */
ac_status aci_broadcast(int *ndim, int64_t *shape, const ac_tensor *b, ac_err *e);
/* Strides that view t with this shape without a copy. False if there are none. */
bool aci_view_strides(const ac_tensor *t, int ndim, const int64_t *shape, int64_t *stride);

#ifdef __cplusplus
}
#endif

#endif
