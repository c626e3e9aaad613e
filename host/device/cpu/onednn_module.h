/* Declarations shared by the files of the module accel_onednn.so: both interfaces of oneDNN under
 * one name, the engine, and execution on the calling thread alone. */
#ifndef ACI_ONEDNN_MODULE_H
#define ACI_ONEDNN_MODULE_H
#include <dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/onednn.h"

enum { ACI_DNNL_MAX_ARGS = 6 };

/* ---- the differences between the two interfaces, 2.x and 3.x ---- */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t desc; /* owned */
typedef const_dnnl_memory_desc_t desc_ref;
static inline void desc_free(desc *d) {
  if (*d != NULL) dnnl_memory_desc_destroy(*d);
  *d = NULL;
}
static inline desc_ref desc_of(const desc *d) { return *d; }
static inline dnnl_status_t desc_init(desc *d, int nd, const dnnl_dims_t dims, dnnl_data_type_t t,
                                      const dnnl_dims_t strides) {
  return strides != NULL ? dnnl_memory_desc_create_with_strides(d, nd, dims, t, strides)
                         : dnnl_memory_desc_create_with_tag(d, nd, dims, t, dnnl_format_tag_any);
}
static inline dnnl_status_t desc_query(desc *d, const_dnnl_primitive_desc_t pd, dnnl_query_t what) {
  const_dnnl_memory_desc_t q = dnnl_primitive_desc_query_md(pd, what, 0);
  return q == NULL ? dnnl_unimplemented : dnnl_memory_desc_clone(d, q);
}
static inline bool desc_equal(const desc *a, const desc *b) {
  return dnnl_memory_desc_equal(*a, *b) != 0;
}
#else
typedef dnnl_memory_desc_t desc;
typedef const dnnl_memory_desc_t *desc_ref;
static inline void desc_free(desc *d) { (void)d; }
static inline desc_ref desc_of(const desc *d) { return d; }
static inline dnnl_status_t desc_init(desc *d, int nd, const dnnl_dims_t dims, dnnl_data_type_t t,
                                      const dnnl_dims_t strides) {
  return strides != NULL ? dnnl_memory_desc_init_by_strides(d, nd, dims, t, strides)
                         : dnnl_memory_desc_init_by_tag(d, nd, dims, t, dnnl_format_tag_any);
}
static inline dnnl_status_t desc_query(desc *d, const_dnnl_primitive_desc_t pd, dnnl_query_t what) {
  const dnnl_memory_desc_t *q = dnnl_primitive_desc_query_md(pd, what, 0);
  if (q == NULL) return dnnl_unimplemented;
  *d = *q;
  return dnnl_success;
}
static inline bool desc_equal(const desc *a, const desc *b) {
  return dnnl_memory_desc_equal(a, b) != 0;
}
#endif

#define TRY(expr)                          \
  do {                                     \
    if ((expr) != dnnl_success) goto done; \
  } while (0)

static inline dnnl_data_type_t type_of(int32_t t) {
  switch (t) {
    case ACI_GEMM_F32: return dnnl_f32;
    case ACI_GEMM_BF16: return dnnl_bf16;
    case ACI_GEMM_F16: return dnnl_f16;
    case ACI_GEMM_I8: return dnnl_s8;
    case ACI_GEMM_I32: return dnnl_s32;
    default: return dnnl_data_type_undef;
  }
}

extern dnnl_engine_t aci_dnnl_engine; /* made by accel_onednn_open */

/* oneDNN threads by OpenMP in some builds. Our use of it runs on the calling thread alone. This
 * includes making primitives, which remember the number of threads. The setting is per thread and
 * restored, because the thread may be the program's, with OpenMP of its own. */
int aci_dnnl_alone_begin(void);
void aci_dnnl_alone_end(int threads);

typedef struct arg {
  int index;
  const desc *d;
  const void *p;
} arg;
bool aci_dnnl_execute(dnnl_primitive_t prim, const arg *args, int n);
/* A reorder between two layouts with its scratchpad by the user. Both NULL if there is none. */
bool aci_dnnl_reorder(const desc *from, const desc *to, dnnl_primitive_t *prim, desc *scratch);

/* ---- the cache of plans, onednn_cache.c ---- */
/* A kind of plan. Plans begin with aci_dnnl_plan and hold their shape, which is the key, byte by
 * byte. */
typedef struct aci_dnnl_kind {
  size_t plan_bytes, shape_at, shape_bytes;
  bool (*make)(void *plan); /* from the shape. False: there is no such primitive */
  /* the fields that make filled in, even when it failed. Not the plan itself */
  void (*free)(void *plan);
} aci_dnnl_kind;

typedef struct aci_dnnl_plan {
  aci_onednn_plan pub; /* first: the library's view */
  const aci_dnnl_kind *kind;
  struct aci_dnnl_plan *next; /* in its bucket */
  uint64_t used;              /* clock of the last get */
  int refs;
  bool failed; /* make failed: remembered, so that it is not tried again */
} aci_dnnl_plan;

/* The plan of this shape, held until it is put back. NULL: there is none. */
const aci_onednn_plan *aci_dnnl_get(const aci_dnnl_kind *kind, const void *shape);
void aci_dnnl_put(const aci_onednn_plan *p);

/* Convolutions, onednn_conv.c. */
const aci_onednn_plan *aci_dnnl_conv_get(const aci_onednn_conv_shape *s);
bool aci_dnnl_conv_pack(const aci_onednn_plan *p, const void *w, void *packed, void *scratch);
bool aci_dnnl_conv_run(const aci_onednn_plan *p, const void *x, const void *w, const void *bias,
                       const void *y, void *scratch);

#endif
