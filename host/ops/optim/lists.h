/* Multi-tensor kernels: lists of tensors walked as one long row of chunks. Used by the optimizers
 * and clip_grad_norm_. */
#ifndef ACI_OPS_LISTS_H
#define ACI_OPS_LISTS_H
#include "ops/index/index.h"

enum {
  ACI_LIST_CHUNK = 16384 /* elements handed out at a time */,
  ACI_LIST_ROW = 1024 /* elements converted at a time */
};

/* fn(arg, i, begin, n): elements [begin, begin + n) of tensor i. n <= ACI_LIST_CHUNK. Cut by shapes
 * only. OOM. */
typedef void (*aci_list_fn)(void *arg, int i, int64_t chunk, int64_t begin, int64_t n);
ac_status aci_list_run(ac_frame *f, int n_tensors, ac_tensor *const *tensors, aci_list_fn fn,
                       void *arg, ac_err *e);
/* Chunks that aci_list_run makes of these tensors. */
int64_t aci_list_chunks(int n_tensors, ac_tensor *const *tensors);
/* INVALID if a parameter is in a list of gradients. */
ac_status aci_list_gradients(const ac_frame *f, int arg, ac_err *e);
/* Argument list arg has as many tensors as list 0, of the same shapes, floats of the same or
 * another dtype.
 */
ac_status aci_list_match(const ac_frame *f, int arg, ac_err *e);
ac_status aci_list_floats(const ac_frame *f, int arg, ac_err *e);

/* A rank-0 tensor as a double, and back. */
double aci_number_get(const ac_tensor *t);
void aci_number_set(const ac_tensor *t, double v);
/* SHAPE unless argument arg has one element. */
ac_status aci_number_check(const ac_frame *f, int arg, ac_err *e);

/* n elements from begin of t in the compute type: in place when t is contiguous and of that type,
 * else loaded into buf. */
static inline void *aci_list_row(const ac_tensor *t, aci_ctype ct, bool in_place, int64_t begin,
                                 int64_t n, void *buf) {
  if (in_place) return (char *)aci_data(t) + begin * (int64_t)aci_ctype_bytes(ct);
  aci_elems_load(t, ct, begin, n, buf);
  return buf;
}
static inline bool aci_list_direct(const ac_tensor *t, aci_ctype ct) {
  return (ct == ACI_C_F32 ? t->dtype == AC_F32 : t->dtype == AC_F64) && aci_is_contiguous(t);
}

#endif
