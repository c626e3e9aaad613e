/* The meta device in the table of devices: every context opens it, and it needs no kernels. */
#include "device/device_impl.h"

AC_DEVICE(meta, .single = true);
