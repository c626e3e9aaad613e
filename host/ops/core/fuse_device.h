/* Chains of maps on devices that can compile kernels while a program runs (NVRTC): the table of a
 * device module, and its use in passes. */
#ifndef ACI_OPS_FUSE_DEVICE_H
#define ACI_OPS_FUSE_DEVICE_H
#include "ops/map/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ACI_FUSE_ARG_INPUTS = 16, ACI_FUSE_ARG_OUTPUTS = 32, ACI_FUSE_ARG_NUMBERS = 320 };

/* The argument of a kernel, whose text has the same struct. */
typedef struct aci_fuse_args {
  int64_t n;
  const void *in[ACI_FUSE_ARG_INPUTS];
  void *out[ACI_FUSE_ARG_OUTPUTS];
  /* inner, row, step: element i lies at row (i / inner) + step (i % inner) */
  int64_t at[ACI_FUSE_ARG_INPUTS][3];
  float num[ACI_FUSE_ARG_NUMBERS];
} aci_fuse_args;

/* The table of a module with a compiler. */
typedef struct aci_fuse_device {
  /* Everything besides its text that machine code depends on, "sm_90 nvrtc 13.0". False: nothing
   * can be compiled, and why holds the reason. */
  bool (*target)(const ac_device *d, char *text, size_t n, char *why, size_t room);
  /* Text with the kernel `fused` -> machine code, malloc'ed. False: why has the compiler's first
   * complaint. */
  bool (*compile)(const ac_device *d, const char *text, char **code, size_t *bytes, char *why,
                  size_t room);
  /* Loaded for the rest of the process. */
  ac_status (*load)(const ac_device *d, const void *code, size_t bytes, void **kernel, ac_err *e);
  ac_status (*launch)(const ac_frame *f, void *kernel, const aci_fuse_args *args, ac_err *e);
  /* One map alone, as outside of chains. */
  ac_status (*run_map)(const ac_frame *f, const aci_map_loop *loop, const aci_map_plan *p,
                       ac_err *e);
} aci_fuse_device;

/* The one of devices with this vtable, from the time on that their module is loaded. Of the
 * process, as the module is. */
void aci_fuse_set_device(const ac_device_vtable *vt, const aci_fuse_device *d);
/* Exported by a module that has a compiler: returns its table. */
#define ACI_FUSE_SYMBOL "accel_fuse_device"
typedef const aci_fuse_device *(*aci_fuse_device_fn)(void);

#ifdef __cplusplus
}
#endif
#endif
