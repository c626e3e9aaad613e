/* CUDA in the table of devices: the library's side of the module accel_cuda.so, which is opened
 * when a device is first asked for. One line reports a missing part. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_impl.h"
#include "ops/cuda/module.h"
#include "ops/core/fuse_device.h"

/* The result of the search, once per process: a module cannot be opened twice. */
static const aci_cuda_api *api;
static char missing[200];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool tried;

extern const struct aci_module_calls aci_module_table; /* generated */

static void open_module(const char *file) {
  void *h = aci_module_open(file);
  if (h == NULL) {
    snprintf(missing, sizeof missing, "this build has no CUDA (%s is missing)", file);
    ac_log_write(AC_LOG_DEBUG, "cuda", "no CUDA module: %s", dlerror());
    return;
  }
  aci_cuda_open_fn open_fn;
  void *symbol = dlsym(h, ACI_CUDA_SYMBOL);
  memcpy(&open_fn, &symbol, sizeof open_fn);
  const aci_cuda_api *got = symbol == NULL ? NULL : open_fn(&aci_module_table);
  if (got == NULL) {
    snprintf(missing, sizeof missing, "%s is of another version of accel", file);
    ac_log_write(AC_LOG_WARN, "cuda", "%s", missing);
    return;
  }
  aci_fuse_device_fn fuse;
  void *chains = dlsym(h, ACI_FUSE_SYMBOL);
  memcpy(&fuse, &chains, sizeof fuse);
  if (fuse != NULL) aci_fuse_set_device(got->vtable, fuse());
  api = got;
  ac_log_write(AC_LOG_DEBUG, "cuda", "CUDA runtime %s", api->runtime);
}

static const aci_cuda_api *module(const ac_params *p) {
  pthread_mutex_lock(&lock);
  if (!tried) open_module(ac_params_str(p, "CUDA_MODULE"));
  tried = true;
  pthread_mutex_unlock(&lock);
  return api;
}

/* The first three are flags: enum aci_cuda_flag. */
static const ac_param_info params[] = {
    [ACI_CUDA_SYNC] = {"CUDA_SYNC", AC_PARAM_BOOL, "0", NULL,
                       "wait for every CUDA kernel, so that an error names its op"},
    [ACI_CUDA_TF32] = {"CUDA_TF32", AC_PARAM_BOOL, "0", NULL,
                       "round factors of f32 products on CUDA to 10 bits (TF32)"},
    [ACI_CUDA_CUDNN] = {"CUDA_CUDNN", AC_PARAM_BOOL, "1", NULL,
                        "run convolutions on CUDA by cuDNN if it is installed"},
    {"CUDA_MODULE", AC_PARAM_STR, "accel_cuda.so", NULL,
     "file of the CUDA half (tests take their emulated twin)"},
    {"CUDA_MEM_LIMIT", AC_PARAM_SIZE, "0", NULL,
     "memory limit of each CUDA device's pool, 0: all of the device's memory"},
    {"CUDA_NVTX", AC_PARAM_BOOL, "0", NULL,
     "mark every op as an NVTX range (a profiler that starts the program switches it on)"},
};

static bool likely(const ac_params *p) {
  /* the twin needs no driver */
  if (api != NULL || strcmp(ac_params_str(p, "CUDA_MODULE"), "accel_cuda.so") != 0) return true;
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != NULL) dlclose(driver);
  return driver != NULL;
}

static int probe(const ac_params *p, char *why, size_t n) {
  if (module(p) != NULL) return api->count(why, n);
  snprintf(why, n, "%s", missing);
  return 0;
}

static const char *libraries(void) { return api != NULL ? api->runtime : NULL; }
static void describe(int index, char *text, size_t n) { api->describe(index, text, n); }
static const ac_device_kernel *kernels(void) { return api->kernels; }
static const aci_drivers *drivers(void) { return api->drivers; }

static ac_status open_device(const ac_params *p, int index, ac_team *team, ac_device **out,
                             ac_err *e) {
  (void)team; /* kernels run on the device */
  return ac_device_open(api->vtable, index, (size_t)ac_params_int(p, "CUDA_MEM_LIMIT"), NULL, out,
                        e);
}

/* ---- NVTX ranges ---- */
static void range_begin(void *user, const ac_frame *f) {
  (void)user;
  api->range_push(f->op->name);
}
static void range_end(void *user, const ac_frame *f, ac_status st) {
  (void)user, (void)f, (void)st;
  api->range_pop();
}

/* The profiler that starts us sets the variable. Without one a range would cost time for
 * nothing. */
static void attach(ac_ctx *c) {
  if (getenv("NVTX_INJECTION64_PATH") != NULL || ac_params_int(c->params, "CUDA_NVTX") != 0)
    aci_ctx_add_observer(c, (aci_observer){range_begin, range_end, c}, NULL);
}

AC_DEVICE(cuda, .preference = 10, .params = params, .n_params = sizeof params / sizeof params[0],
          .n_flags = 3, .probe = probe, .likely = likely, .libraries = libraries,
          .describe = describe, .open = open_device, .kernels = kernels, .drivers = drivers,
          .attach = attach);
