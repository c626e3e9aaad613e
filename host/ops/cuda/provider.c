/* The library's side of CUDA: opens the module on first use, says in one line what is missing, and gives contexts its devices and
 * kernels. Called by the context when a script names a device "cuda". */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_impl.h"
#include "device/pool.h"
#include "ops/cuda/module.h"
#include "ops/op.h"

#include "ops/map/map.h"
#include "ops/reduce/reduce.h"

/* What was found, once per process: a module cannot be opened twice. */
static const aci_cuda_api *api;
static char missing[200];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool tried;

static const aci_cuda_calls calls = {
    .struct_size = sizeof calls,
    .ac_err_set = ac_err_set,
#define ACI_CUDA_X(result, name, params, args) .name = name,
    ACI_CUDA_CALLS(ACI_CUDA_X)
#undef ACI_CUDA_X
};

static void open_module(const char *file) {
  void *h = aci_module_open(file);
  if (h == NULL) {
    snprintf(missing, sizeof missing, "this build has no CUDA (%s is not there)", file);
    ac_log_write(AC_LOG_DEBUG, "cuda", "no CUDA module: %s", dlerror());
    return;
  }
  aci_cuda_open_fn open_fn;
  void *symbol = dlsym(h, ACI_CUDA_SYMBOL);
  memcpy(&open_fn, &symbol, sizeof open_fn);
  const aci_cuda_api *got = symbol == NULL ? NULL : open_fn(&calls);
  if (got == NULL || got->version != ACI_CUDA_VERSION) {
    snprintf(missing, sizeof missing, "%s is of another version of accel", file);
    ac_log_write(AC_LOG_WARN, "cuda", "%s", missing);
    return;
  }
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

bool aci_cuda_likely(const ac_params *p) {
  if (api != NULL || strcmp(ac_params_str(p, "CUDA_MODULE"), "accel_cuda.so") != 0) return true; /* the twin needs no driver */
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != NULL) dlclose(driver);
  return driver != NULL;
}

int aci_cuda_count(const ac_params *p) {
  char why[200];
  return module(p) == NULL ? 0 : api->count(why, sizeof why);
}

bool aci_cuda_state(const ac_params *p, char *text, size_t n) {
  char why[200] = "";
  if (module(p) == NULL) return snprintf(text, n, "%s", missing), false;
  const int count = api->count(why, sizeof why);
  int at = snprintf(text, n, "%s", api->runtime);
  if (count == 0) snprintf(text + at, n - (size_t)at, "; %s", why);
  for (int i = 0; i < count && at < (int)n - 1; i++) {
    api->describe(i, why, sizeof why);
    at += snprintf(text + at, n - (size_t)at, "; cuda:%d %s", i, why);
  }
  return true;
}

/* ---- contexts ---- */
static void range_begin(void *user, const ac_frame *f) {
  (void)user;
  api->range_push(f->op->name);
}
static void range_end(void *user, const ac_frame *f, ac_status st) {
  (void)user, (void)f, (void)st;
  api->range_pop();
}

static void give_kernels(ac_ctx *c) {
  if (c->drivers[AC_DEV_CUDA] != NULL) return;
  c->drivers[AC_DEV_CUDA] = api->drivers;
  for (int i = 0; i < c->n_ops; i++) {
    const ac_op_desc *d = c->ops[i]->desc;
    if (d->any_device || d->cpu == aci_map_cpu) c->ops[i]->kernel[AC_DEV_CUDA] = d->cpu;
  }
  for (const aci_cuda_kernel *k = api->kernels; k != NULL; k = k->next) {
    ac_err e;
    if (ac_kernel_register(c, k->op, AC_DEV_CUDA, k->run, &e) != AC_OK) ac_log_write(AC_LOG_WARN, "cuda", "%s", e.msg);
  }
  /* set by the profiler that starts us; without one a range costs what it tells nobody */
  if (getenv("NVTX_INJECTION64_PATH") != NULL || ac_params_int(c->params, "CUDA_NVTX") != 0)
    aci_ctx_add_observer(c, (aci_observer){range_begin, range_end, c}, NULL);
}

void aci_cuda_share(ac_ctx *c) {
  for (int i = 0; i < c->n_devices; i++)
    if (c->device[i]->kind == AC_DEV_CUDA && module(c->params) != NULL) give_kernels(c);
}

/* "cuda" is the first; -1: not a name of ours. */
static int index_of(const char *name) {
  if (strcmp(name, "cuda") == 0) return 0;
  char *end;
  if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9' || strlen(name) > 8) return -1;
  const long i = strtol(name + 5, &end, 10);
  return *end == '\0' ? (int)i : -1;
}

ac_status aci_cuda_device(ac_ctx *c, const char *name, ac_device **out, ac_err *e) {
  char why[200];
  const int index = index_of(name);
  if (index < 0) return AC_FAIL(e, DEVICE, "devices of CUDA are \"cuda\" (the first) or \"cuda:0\", \"cuda:1\", ...");
  if (module(c->params) == NULL) return AC_FAIL(e, DEVICE, "%s", missing);
  const int n = api->count(why, sizeof why);
  if (n == 0) return AC_FAIL(e, DEVICE, "%s", why);
  if (index >= n) return AC_FAIL(e, DEVICE, "this process sees %d CUDA device%s", n, n == 1 ? "" : "s, from cuda:0 on");
  ac_device *d = NULL;
  AC_TRY(ac_device_open(api->vtable, index, (size_t)ac_params_int(c->params, "CUDA_MEM_LIMIT"), NULL, &d, e));
  aci_pool_debug_set(d, ac_params_int(c->params, "POISON") != 0, ac_params_int(c->params, "ALLOC_FAIL"));
  const ac_status st = ac_ctx_add_device(c, d, e);
  if (st != AC_OK) {
    ac_device_release(d);
    return st;
  }
  api->set_sync(ac_params_int(c->params, "CUDA_SYNC") != 0);
  api->set_tf32(ac_params_int(c->params, "CUDA_TF32") != 0);
  api->set_cudnn(ac_params_int(c->params, "CUDA_CUDNN") != 0);
  give_kernels(c);
  *out = d;
  return AC_OK;
}
