/* Devices of all platforms, and calls of their kernels: see device.h. */
#include "device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

/* ---- which there are ---- */
static ocl_device devices[OCL_MAX_DEVICES];
static int n_devices;
static char libraries[128], missing[160];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool looked;

static void describe_one(ocl_device *d, int index) {
  cl_device_fp_config doubles = 0, singles = 0;
  cl_ulong global = 0, largest = 0;
  clGetDeviceInfo(d->id, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof doubles, &doubles, NULL);
  clGetDeviceInfo(d->id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof singles, &singles, NULL);
  clGetDeviceInfo(d->id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof global, &global, NULL);
  clGetDeviceInfo(d->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof largest, &largest, NULL);
  cl_device_type type = 0;
  clGetDeviceInfo(d->id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
  d->cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
  d->f64 = doubles != 0;
  d->exact_divide = (singles & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  d->global_bytes = (size_t)global;
  d->largest_bytes = (size_t)largest;
  snprintf(d->label, sizeof d->label, "opencl:%d", index);
  pthread_mutex_init(&d->lock, NULL);
}

static void look(cl_device_type kinds) {
  cl_platform_id platform[8];
  cl_uint n = 0;
  if (clGetPlatformIDs(8, platform, &n) != CL_SUCCESS) n = 0;
  n = n > 8 ? 8 : n;
  for (cl_uint i = 0; i < n; i++) {
    cl_device_id id[OCL_MAX_DEVICES];
    cl_uint m = 0;
    if (clGetDeviceIDs(platform[i], kinds, OCL_MAX_DEVICES, id, &m) != CL_SUCCESS) continue;
    for (cl_uint k = 0; k < m && k < OCL_MAX_DEVICES && n_devices < OCL_MAX_DEVICES; k++) {
      devices[n_devices].id = id[k];
      describe_one(&devices[n_devices], n_devices);
      n_devices++;
    }
    const size_t at = strlen(libraries);
    char name[64] = "", version[64] = "";
    clGetPlatformInfo(platform[i], CL_PLATFORM_NAME, sizeof name, name, NULL);
    clGetPlatformInfo(platform[i], CL_PLATFORM_VERSION, sizeof version, version, NULL);
    char *end = strchr(version, ' '); /* "OpenCL 3.0 PoCL ...": its first two words */
    if (end != NULL) end[1 + strcspn(end + 1, " ")] = '\0';
    if (m > 0) snprintf(libraries + at, sizeof libraries - at, "%s%s (%s)", at > 0 ? ", " : "", version, name);
  }
  snprintf(missing, sizeof missing, n == 0 ? "no OpenCL platform is installed (Debian: pocl-opencl-icd)"
                                           : "the OpenCL platforms show no device of the kinds ACCEL_OPENCL_KINDS names");
}

int ocl_count(const char *kinds, char *why, size_t n) {
  pthread_mutex_lock(&lock);
  if (!looked) look(strcmp(kinds, "gpu") == 0 ? CL_DEVICE_TYPE_GPU : strcmp(kinds, "cpu") == 0 ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_ALL);
  looked = true;
  pthread_mutex_unlock(&lock);
  if (n_devices == 0) snprintf(why, n, "%s", missing);
  return n_devices;
}

const char *ocl_libraries(void) { return libraries[0] != '\0' ? libraries : NULL; }

void ocl_describe(int index, char *text, size_t n) {
  char name[80] = "?";
  const ocl_device *d = ocl_at(index);
  clGetDeviceInfo(d->id, CL_DEVICE_NAME, sizeof name, name, NULL);
  name[sizeof name - 1] = '\0';
  snprintf(text, n, "%s, %.1f GiB%s", name, (double)d->global_bytes / (1 << 30), d->f64 ? "" : ", no f64");
}

ocl_device *ocl_at(int index) { return &devices[index]; }

/* ---- what a failed call means ---- */
static const char *code_name(cl_int code) {
  switch (code) {
    case CL_DEVICE_NOT_AVAILABLE: return "CL_DEVICE_NOT_AVAILABLE";
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
    case CL_OUT_OF_RESOURCES: return "CL_OUT_OF_RESOURCES";
    case CL_OUT_OF_HOST_MEMORY: return "CL_OUT_OF_HOST_MEMORY";
    case CL_BUILD_PROGRAM_FAILURE: return "CL_BUILD_PROGRAM_FAILURE";
    case CL_INVALID_BUFFER_SIZE: return "CL_INVALID_BUFFER_SIZE";
    case CL_INVALID_KERNEL_ARGS: return "CL_INVALID_KERNEL_ARGS";
    case CL_INVALID_WORK_GROUP_SIZE: return "CL_INVALID_WORK_GROUP_SIZE";
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: return "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST";
    default: return NULL;
  }
}

static ac_status say_lost(const ocl_device *d, int code, const char *what, ac_err *e) {
  const char *name = code_name(code);
  char number[24];
  snprintf(number, sizeof number, "OpenCL error %d", code);
  return AC_FAIL(e, DEVICE, "%s is lost%s%s (%s): its tensors cannot be read any more; start again from a checkpoint", d->label,
                 what != NULL ? " in " : "", what != NULL ? what : "", name != NULL ? name : number);
}

ac_status ocl_alive(ocl_device *d, ac_err *e) {
  const int code = atomic_load_explicit(&d->lost, memory_order_relaxed);
  return code == 0 ? AC_OK : say_lost(d, code, NULL, e);
}

ac_status ocl_check(ocl_device *d, cl_int code, const char *what, ac_err *e) {
  if (code == CL_SUCCESS) return AC_OK;
  if (code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY)
    return AC_FAIL(e, OOM, "%s: out of memory in %s (%s)", d->label, what, code_name(code));
  /* what a queue answers after its device is gone, or a kernel of it went astray */
  if (code == CL_DEVICE_NOT_AVAILABLE || code == CL_OUT_OF_RESOURCES || code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) {
    atomic_store(&d->lost, code);
    return say_lost(d, code, what, e);
  }
  const char *name = code_name(code);
  return AC_FAIL(e, DEVICE, "%s: %s: %s (OpenCL error %d)", d->label, what, name != NULL ? name : "failed", code);
}

/* ---- context and queue ---- */
typedef struct ocl_program {
  struct ocl_program *next;
  const char *source, *kernel;
  char *head;
  cl_program program;
  cl_kernel run;
} ocl_program;

static ac_status open_queue(ocl_device *d, ac_err *e) {
  cl_int code;
  d->context = clCreateContext(NULL, 1, &d->id, NULL, NULL, &code);
  AC_TRY(ocl_check(d, code, "context", e));
  d->queue = clCreateCommandQueue(d->context, d->id, 0, &code);
  const ac_status st = ocl_check(d, code, "queue", e);
  if (st != AC_OK) clReleaseContext(d->context);
  return st;
}

ac_status ocl_enter(ocl_device *d, ac_err *e) {
  pthread_mutex_lock(&lock);
  const ac_status st = d->users > 0 ? AC_OK : open_queue(d, e);
  d->users += st == AC_OK;
  pthread_mutex_unlock(&lock);
  return st;
}

void ocl_leave(ocl_device *d) {
  pthread_mutex_lock(&lock);
  if (--d->users == 0) {
    /* A lost device is not waited for before; what was queued on it may still run or be compiled on the driver's threads, and a process that
     * ends under them crashes in the driver's destructors. */
    clFinish(d->queue);
    while (d->programs != NULL) {
      ocl_program *p = d->programs;
      d->programs = p->next;
      clReleaseKernel(p->run);
      clReleaseProgram(p->program);
      free(p->head);
      free(p);
    }
    clReleaseCommandQueue(d->queue);
    clReleaseContext(d->context);
    atomic_store(&d->lost, 0);
  }
  pthread_mutex_unlock(&lock);
}

/* ---- programs ---- */
static ac_status build_failed(ocl_device *d, cl_program program, const char *kernel, ac_err *e) {
  char log[2000] = "";
  clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
  const char *error = strstr(log, "error:");
  return AC_FAIL(e, DEVICE, "%s: its compiler refuses the kernel %s: %.300s", d->label, kernel, error != NULL ? error : log);
}

static ac_status build(const ocl_call *c, ocl_program *p, ac_err *e) {
  ocl_device *d = c->d;
  const char *text[4] = {d->f64 ? "#define F64\n" : "", c->head, ocl_prelude_cl, c->source};
  char options[80];
  cl_int code;
  snprintf(options, sizeof options, "-cl-std=CL1.2%s", d->exact_divide ? " -cl-fp32-correctly-rounded-divide-sqrt" : "");
  p->program = clCreateProgramWithSource(d->context, 4, text, NULL, &code);
  AC_TRY(ocl_check(d, code, "program", e));
  code = clBuildProgram(p->program, 1, &d->id, options, NULL, NULL);
  ac_status st = code == CL_BUILD_PROGRAM_FAILURE ? build_failed(d, p->program, c->kernel, e) : ocl_check(d, code, c->kernel, e);
  if (st == AC_OK) {
    p->run = clCreateKernel(p->program, c->kernel, &code);
    st = ocl_check(d, code, c->kernel, e);
  }
  if (st != AC_OK) clReleaseProgram(p->program);
  return st;
}

/* Under the device's lock. */
static ac_status find(const ocl_call *c, cl_kernel *run, ac_err *e) {
  ocl_program **last = &c->d->programs;
  for (ocl_program *p; (p = *last) != NULL; last = &p->next) {
    if (p->source != c->source || strcmp(p->kernel, c->kernel) != 0 || strcmp(p->head, c->head) != 0) continue;
    *last = p->next; /* what is used often stands in front */
    p->next = c->d->programs;
    c->d->programs = p;
    *run = p->run;
    return AC_OK;
  }
  ocl_program *p = calloc(1, sizeof *p);
  char *head = strdup(c->head);
  ac_status st = p == NULL || head == NULL ? AC_FAIL(e, OOM, "no memory for a program") : build(c, p, e);
  if (st != AC_OK) {
    free(p);
    free(head);
    return st;
  }
  *p = (ocl_program){c->d->programs, c->source, c->kernel, head, p->program, p->run};
  c->d->programs = p;
  *run = p->run;
  return AC_OK;
}

/* ---- calls ---- */
void ocl_begin(ocl_call *c, ac_frame *f, const char *source, const char *kernel) {
  c->f = f;
  c->d = ocl_of(f->device);
  c->source = source;
  c->kernel = kernel;
  c->st = AC_OK;
  c->n_args = 0;
  c->n_head = c->n_bytes = 0;
  c->head[0] = '\0';
}

void ocl_define(ocl_call *c, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const int n = vsnprintf(c->head + c->n_head, sizeof c->head - c->n_head, format, list);
  va_end(list);
  if (n < 0 || c->n_head + (size_t)n >= sizeof c->head)
    c->st = AC_FAIL(&c->why, INTERNAL, "the definitions of the kernel %s are too long", c->kernel);
  else c->n_head += (size_t)n;
}

void ocl_value(ocl_call *c, const void *value, size_t size) {
  if (c->n_args == 32 || c->n_bytes + size > sizeof c->bytes) {
    c->st = AC_FAIL(&c->why, INTERNAL, "too many arguments for the kernel %s", c->kernel);
    return;
  }
  c->arg[c->n_args].at = c->n_bytes;
  c->arg[c->n_args++].size = size;
  memcpy(c->bytes + c->n_bytes, value, size);
  c->n_bytes += size;
}

void ocl_long(ocl_call *c, int64_t v) { ocl_value(c, &v, sizeof v); }

void ocl_real(ocl_call *c, const char *type, double v) {
  const float x = (float)v;
  if (type[0] == 'd') ocl_value(c, &v, sizeof v);
  else ocl_value(c, &x, sizeof x);
}

void ocl_wide(ocl_call *c, double v) { ocl_real(c, c->d->f64 ? "double" : "float", v); }

void ocl_memory(ocl_call *c, const void *p) {
  cl_mem mem = NULL;
  size_t at = 0;
  if (p != NULL && c->st == AC_OK) c->st = ocl_find(c->d, p, &mem, &at, &c->why);
  const cl_ulong offset = at;
  ocl_value(c, &mem, sizeof mem);
  ocl_value(c, &offset, sizeof offset);
}

static ac_status enqueue(const ocl_call *c, const size_t global[3], const size_t local[3], ac_err *e) {
  cl_kernel run;
  AC_TRY(find(c, &run, e));
  cl_int code = CL_SUCCESS;
  for (int i = 0; i < c->n_args && code == CL_SUCCESS; i++)
    code = clSetKernelArg(run, (cl_uint)i, c->arg[i].size, c->bytes + c->arg[i].at);
  if (code == CL_SUCCESS)
    code = clEnqueueNDRangeKernel(ocl_queue(c->d, c->f->stream), run, 3, NULL, global, local, 0, NULL, NULL);
  return ocl_check(c->d, code, c->kernel, e);
}

ac_status ocl_run3(ocl_call *c, const size_t global[3], const size_t local[3], ac_err *e) {
  if (c->st != AC_OK) {
    if (e != NULL) *e = c->why;
    return c->st;
  }
  AC_TRY(ocl_alive(c->d, e));
  pthread_mutex_lock(&c->d->lock);
  const ac_status st = enqueue(c, global, local, e);
  pthread_mutex_unlock(&c->d->lock);
  return st;
}

ac_status ocl_run(ocl_call *c, int64_t n, int group, ac_err *e) {
  const size_t g = (size_t)group, global[3] = {((size_t)n + g - 1) / g * g, 1, 1}, local[3] = {g, 1, 1};
  return n == 0 && c->st == AC_OK ? AC_OK : ocl_run3(c, global, local, e);
}

ac_status ocl_type(const ac_frame *f, ac_dtype dt, const char **type, ac_err *e) {
  const ocl_device *d = ocl_of(f->device);
  if (dt > AC_BOOL) return AC_FAIL(e, DTYPE, "%s is a storage dtype; cast it first", ac_dtype_name(dt));
  if (dt == AC_F64 && !d->f64) return AC_FAIL(e, UNSUPPORTED, "%s has no 64-bit floats; use f32", d->label);
  *type = dt == AC_F64 ? "double" : ac_dtype_is_float(dt) ? "float" : "long";
  return AC_OK;
}
