/* The device of dropin/tiny as a library of its own, for ACCEL_DEVICE_MODULES. */
#include "dropin/tiny/kernels.c"
#include "dropin/tiny/provider.c"

AC_API const ac_device_provider *ac_device_provider_get(void);
const ac_device_provider *ac_device_provider_get(void) { return &aci_device_tiny; }
