/* accel/precision.h - in which format the numbers are: autocast.
 *
 * Inside an autocast region, ops whose class is LOWER (matrix products, convolutions, attention)
 * get f32 inputs cast to the region's dtype, ops of class F32 get 16-bit inputs cast to f32,
 * PROMOTE takes the widest input. Every other op runs in the dtype of its inputs. The classes are
 * PyTorch's lists for the CPU. Casts are recorded, so gradients arrive in the dtype of the
 * parameters. The cast of a leaf that requires gradients is made once per region and version.
 *
 * On CPUs without AMX, linear, addmm and mlp of 64 rows and more in bf16 do without a cast of
 * weights that are such leaves, the first time in the region: they round the f32 weight as they
 * read it. Results are the same, bit for bit. The weight's gradient is the sum in f32, not rounded
 * to bf16 first. backward reads the weight itself, so changing it in place before backward is an
 * error, as it is without autocast. */
#ifndef ACCEL_PRECISION_H
#define ACCEL_PRECISION_H
#include "accel/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The state that a region replaces. Pass it to ac_autocast_end. */
typedef struct ac_autocast_state {
  bool on;
  ac_dtype dtype;
  bool cache;
} ac_autocast_state;

/* Enters a region. Regions nest, and enabled = false makes a hole. dtype BF16 or F16, DTYPE
 * otherwise. */
AC_API ac_status ac_autocast_begin(ac_ctx *c, bool enabled, ac_dtype dtype, bool cache,
                                   ac_autocast_state *outer, ac_err *e);
/* Leaves it. Leaving the outermost region drops the cached casts. */
AC_API void ac_autocast_end(ac_ctx *c, const ac_autocast_state *outer);
AC_API bool ac_autocast_enabled(const ac_ctx *c);
AC_API ac_dtype ac_autocast_dtype(const ac_ctx *c);

#ifdef __cplusplus
}
#endif
#endif
