/* OpenCL in accel's table of devices: what ac_device_provider_get returns. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ac_param_info params[] = {
    {"OPENCL_KINDS", AC_PARAM_STR, "all", "all|gpu|cpu", "which OpenCL devices are used"},
    {"OPENCL_MEM_LIMIT", AC_PARAM_SIZE, "0", NULL, "most memory of each OpenCL device's pool; 0: 9/10 of what the device has"},
};

static int probe(const ac_params *p, char *why, size_t n) { return ocl_count(ac_params_str(p, "OPENCL_KINDS"), why, n); }

static ac_status open_device(const ac_params *p, int index, ac_team *team, ac_device **out, ac_err *e) {
  const size_t limit = (size_t)ac_params_int(p, "OPENCL_MEM_LIMIT"), there = ocl_at(index)->global_bytes;
  (void)team; /* kernels run on the device */
  return ac_device_open(ocl_vtable(), index, limit != 0 ? limit : there / 10 * 9, NULL, out, e);
}

/* One list of all: maps by their formulas, then the files' own. Made once, by whichever host asks first. */
static ac_device_kernel *list;
static void make_list(void) {
  static const ac_device_kernel *const files[] = {ocl_map_kernels, ocl_move_kernels,  ocl_reduce_kernels, ocl_row_kernels,    ocl_matmul_kernels,
                                                  ocl_mlp_kernels,
                                                  ocl_index_kernels, ocl_loss_kernels,   ocl_random_kernels, ocl_optim_kernels};
  enum { N_FILES = sizeof files / sizeof files[0] };
  size_t n = 1, at = 0;
  for (int i = 0; ocl_map_name(i) != NULL; i++) n++;
  for (int i = 0; i < N_FILES; i++)
    for (const ac_device_kernel *k = files[i]; k->op != NULL; k++) n++;
  ac_device_kernel *all = calloc(n, sizeof *all);
  if (all == NULL) return; /* a device without kernels: every op says so */
  for (int i = 0; ocl_map_name(i) != NULL; i++) all[at++] = (ac_device_kernel){ocl_map_name(i), ocl_map};
  for (int i = 0; i < N_FILES; i++)
    for (const ac_device_kernel *k = files[i]; k->op != NULL; k++) all[at++] = *k;
  list = all;
}
static const ac_device_kernel *kernels(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_list);
  return list;
}

static AC_DEVICE(opencl, .params = params, .n_params = 2, .probe = probe, .libraries = ocl_libraries, .describe = ocl_describe,
                 .open = open_device, .kernels = kernels);

AC_API const ac_device_provider *ac_device_provider_get(void);
const ac_device_provider *ac_device_provider_get(void) { return &aci_device_opencl; }
