/* Arrays inside other files (NumPy's, IDX): elements of one dtype from a byte on. Called by the
 * bindings (accel.file.core.read_array), which accel.data.numpy and accel.data.IDX use. */
#ifndef ACI_FILE_ARRAY_H
#define ACI_FILE_ARRAY_H
#include "accel/tensor.h"

typedef struct aci_array {
  uint64_t at; /* byte of the first element */
  ac_dtype dtype;
  int ndim;
  int64_t shape[AC_MAX_DIMS];
  int swap; /* bytes of a number whose order is turned, 0: none */
  /* Map the file instead of reading it: writes stay in memory. Needs the elements at a multiple of
   * their size, and no swap: otherwise the array is read. */
  bool map;
} aci_array;

/* A contiguous tensor. IO, NOT_FOUND, or PARSE: the file ends before the array does. */
ac_status aci_array_read(ac_device *cpu, const char *path, const aci_array *a, ac_tensor **out,
                         ac_err *e);

/* Raw deflate data (RFC 1951) that is exactly n_out bytes long when unpacked: PARSE if not. */
ac_status aci_inflate(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e);
/* The reverse. *out is malloc'ed. */
ac_status aci_deflate(const void *in, size_t n_in, void **out, size_t *n_out, ac_err *e);

#endif
