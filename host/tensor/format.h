/* The autograd stage's part in printing. */
#ifndef ACI_TENSOR_FORMAT_H
#define ACI_TENSOR_FORMAT_H
#include "accel/tensor.h"

/* Name of the node that made t, for "grad_fn=<...>". Set once by the autograd stage, NULL
 * before. */
extern const char *(*aci_tensor_grad_name)(const ac_tensor *t);

#endif
