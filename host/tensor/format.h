/* What printing asks of the autograd stage. */
#ifndef ACI_TENSOR_FORMAT_H
#define ACI_TENSOR_FORMAT_H
#include "accel/tensor.h"

/* Name of the node that made t, for "grad_fn=<...>"; set once by the autograd stage, NULL while there is none. */
extern const char *(*aci_tensor_grad_name)(const ac_tensor *t);

#endif
