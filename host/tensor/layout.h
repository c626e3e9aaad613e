/* Layouts of quantised tensors, for ops and bindings. accel/tensor.h defines them. */
#ifndef ACI_TENSOR_LAYOUT_H
#define ACI_TENSOR_LAYOUT_H
#include "base/hostdev.h"
#include "tensor/tensor_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ACI_NESTED_BLOCK = 256, ACI_LAYOUT_ALIGN = 64 };

/* One array in the bytes of a quantised tensor. */
typedef struct aci_part {
  ac_dtype dtype;
  int ndim;            /* 0: one value */
  int64_t shape[2], n; /* elements */
  size_t at;           /* first byte */
} aci_part;

int64_t aci_layout_numel(const ac_layout *l);
int64_t aci_layout_blocks(const ac_layout *l);
/* Four bits a value? */
static inline bool aci_layout_is_4bit(const ac_layout *l) {
  return l->type == AC_QUANT_NF4 || l->type == AC_QUANT_FP4;
}
/* n == 0: the layout has no such array. */
ACI_MODULE_API aci_part aci_layout_part(const ac_layout *l, ac_layout_part part);
bool aci_layout_same(const ac_layout *a, const ac_layout *b);
/* Gives t, which has no storage yet, this layout once it is allocated. OOM. */
ac_status aci_layout_give(ac_tensor *t, const ac_layout *l, ac_err *e);
/* Address of an array in resident memory. */
static inline void *aci_part_data(const ac_tensor *t, const aci_part *p) {
  return (char *)t->storage->ptr + p->at;
}

#ifdef __cplusplus
}
#endif
#endif
