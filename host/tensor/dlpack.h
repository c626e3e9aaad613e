/* The structs of DLPack 1.x as they lie in memory, under the tags that its own header uses.
 * Private: programs that look inside include <dlpack/dlpack.h>. Used by dlpack.c, by the capsules
 * of the bindings and by tests. */
#ifndef ACI_TENSOR_DLPACK_H
#define ACI_TENSOR_DLPACK_H
#include "accel/tensor.h"

enum { ACI_DL_CPU = 1 }; /* device types */
enum {
  ACI_DL_INT,
  ACI_DL_UINT,
  ACI_DL_FLOAT,
  ACI_DL_BFLOAT = 4,
  ACI_DL_COMPLEX = 5,
  ACI_DL_BOOL = 6,
  ACI_DL_F8_E4M3FN = 10,
  ACI_DL_F8_E5M2 = 12
};
enum { ACI_DL_MAJOR = 1, ACI_DL_MINOR = 0 };
#define ACI_DL_READ_ONLY ((uint64_t)1)

typedef struct aci_dl_tensor {
  void *data;
  struct {
    int32_t type, id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape;
  int64_t *strides; /* in elements. NULL: row-major */
  uint64_t byte_offset;
} aci_dl_tensor;

struct DLManagedTensor {
  aci_dl_tensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
};

struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  aci_dl_tensor dl_tensor;
};

#endif
