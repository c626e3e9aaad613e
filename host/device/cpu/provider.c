/* The CPU in the table of devices: every context opens it, and its kernels stand in the descriptors
 * of ops. */
#include "device/device_impl.h"

AC_DEVICE(cpu, .single = true);
