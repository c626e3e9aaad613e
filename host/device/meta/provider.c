/* The meta device in the table of devices: every context opens it, and it needs no kernels. */
#include "device/meta/meta_flags.h"

static const ac_param_info params[] = {
    {"META_ACCELERATOR", AC_PARAM_BOOL, "0", NULL,
     "meta predicts the memory of an accelerator instead of the CPU's"},
    {"META_ZEROS", AC_PARAM_BOOL, "0", NULL,
     "values of meta tensors count as zero if a shape depends on them, as in a dry run"},
};

AC_DEVICE(meta, .single = true, .params = params, .n_params = sizeof params / sizeof params[0],
          .n_flags = 2);
