/* Kernels of the tiny device, and the flag that they read. */
#ifndef TINY_KERNELS_H
#define TINY_KERNELS_H
#include "accel/opdef.h"

enum { TINY_ROUND };
ac_status tiny_fill(ac_frame *f, ac_err *e);
ac_status tiny_add(ac_frame *f, ac_err *e);
#endif
