/* The meta device in the table of devices: every context opens it, and it needs no kernels. */
#include "device/device_impl.h"

static const ac_param_info params[] = {
    {"META_ACCELERATOR", AC_PARAM_BOOL, "0", NULL, "meta foretells the memory of an accelerator, not that of the CPU"},
};

AC_DEVICE(meta, .single = true, .params = params, .n_params = sizeof params / sizeof params[0], .n_flags = 1);
