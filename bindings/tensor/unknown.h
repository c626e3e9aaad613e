/* The error for a field or method that tensors do not have. */
#ifndef LAC_UNKNOWN_H
#define LAC_UNKNOWN_H
#include "bindings/core/lac.h"

/* Raises for t.KEY, the tensor at index 1. Upvalue 3 of the running function is the table accel.Tensor. */
int lac_unknown_field(lua_State *L, lac_state *S, const char *key);

#endif
