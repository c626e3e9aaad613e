/* Tensors of the host copied to a device ahead of their use, on a stream of their own, so that
 * kernels of the current step and copies of the next batch overlap. Used by the loaders of an
 * Accelerator with non_blocking (bindings/tensor/lac_prefetch.c).
 *
 * Bytes go through page-locked memory of the device's pool, so that neither the host nor the
 * device's own order of work waits for a copy:
 *
 *   begin   makes a tensor, whose memory the queued work of the compute stream may still read: the
 *           copy waits for that work. Its bytes are put into page-locked memory, and the copy from
 *           there is queued
 *   join    the compute stream waits for the begun copies: from then on the tensors have their
 *           values, for all work queued later
 *
 * Page-locked memory is used again once its copy is through. Tensors are held until they are
 * joined, so that their memory does not go to others while a copy writes it. */
#ifndef ACI_TENSOR_PREFETCH_H
#define ACI_TENSOR_PREFETCH_H
#include "accel/tensor.h"

typedef struct aci_prefetch aci_prefetch;

/* Whether copies to d can go ahead: it has streams. */
bool aci_prefetch_takes(const ac_device *d);
ac_status aci_prefetch_new(ac_device *d, aci_prefetch **out, ac_err *e);
/* t: on the CPU, contiguous. The caller may reuse it on return. *out: on the device, to be used
 * after a join. */
ac_status aci_prefetch_begin(aci_prefetch *p, const ac_tensor *t, ac_tensor **out, ac_err *e);
ac_status aci_prefetch_join(aci_prefetch *p, ac_err *e);
/* Joins copies that were begun and not joined. NULL is fine. */
void aci_prefetch_free(aci_prefetch *p);

#endif
