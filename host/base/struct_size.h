/* Structs of options with a struct_size: programs of older and newer headers pass other sizes than
 * this library's (struct_size.c). */
#ifndef ACI_BASE_STRUCT_SIZE_H
#define ACI_BASE_STRUCT_SIZE_H
#include "accel/base.h"

/* Copies the program's struct `from`, whose first member is its struct_size, over `to`, which has
 * `size` bytes and holds the defaults. An older, smaller struct leaves the defaults of the fields
 * that it lacks. A newer, larger one is fine as long as its further fields are 0: UNSUPPORTED
 * otherwise. INVALID for a size that no version of a struct can have. `name` begins the message. */
ac_status aci_struct_take(void *to, size_t size, const void *from, const char *name, ac_err *e);

#endif
