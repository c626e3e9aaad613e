/* Host-readable bytes of a tensor, for the time it takes to look at single elements (item,
 * printing). */
#ifndef ACI_TENSOR_HOST_READ_H
#define ACI_TENSOR_HOST_READ_H
#include "tensor/tensor_impl.h"

typedef struct aci_host_read {
  /* address of the storage's first byte, even if it is not there. Positions count from here */
  const char *base;
  ac_storage *held; /* acquired from its provider */
  void *copy;
} aci_host_read;

/* DEVICE when there are no bytes (meta), and, unless `copy`, when the host cannot read the device's
 * memory directly. */
ac_status aci_host_read_open(const ac_tensor *t, bool copy, aci_host_read *out, ac_err *e);
void aci_host_read_close(aci_host_read *r);
/* The bytes of a contiguous tensor of the CPU that are about to be written, of a provided storage
 * as of any other: *p is element 0. */
ac_status aci_host_write_open(const ac_tensor *t, aci_host_read *out, void **p, ac_err *e);
void aci_host_write_close(aci_host_read *r);

#endif
