/* The CUDA device: memory for the pool, copies, fills, streams and events. Called through its
 * vtable. The pool does the caching, the statistics and the out-of-memory protocol (device/pool.c).
 * Its records are on the host.
 *
 * Memory comes from cudaMalloc in the pool's segments and goes back only when the pool is trimmed:
 * cudaFree waits for the whole device. Class PINNED is page-locked host memory that the device can
 * address. */
#include "device/cuda/cuda_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include <map>
#include <mutex>

/* sync: the caller waited for this kernel alone, so an error is its own. */
static ac_status check(const ac_device *dev, cudaError_t code, const char *what, bool sync,
                       ac_err *e) {
  if (code == cudaSuccess) return AC_OK;
  cudaGetLastError(); /* errors that are not sticky are reported once */
  const bool astray = code == cudaErrorIllegalAddress || code == cudaErrorMisalignedAddress ||
                      code == cudaErrorLaunchFailure || code == cudaErrorAssert ||
                      code == cudaErrorIllegalInstruction;
  const bool memory = code == cudaErrorMemoryAllocation;
  const ac_status st = ac_err_set(
      e, memory ? AC_OOM : AC_DEVICE, __FILE__, __LINE__, "%s: %s: %s%s", dev->name, what,
      cudaGetErrorString(code),
      astray && !sync ? " (some kernel before this; ACCEL_CUDA_SYNC=1 names its op)" : "");
  if (e != NULL) snprintf(e->device, sizeof e->device, "%s", dev->name);
  return st;
}

ac_status aci_cuda_check(const ac_device *dev, cudaError_t code, const char *what, ac_err *e) {
  return check(dev, code, what, false, e);
}

ac_status aci_cuda_enter(const ac_device *dev, ac_err *e) {
  const int ordinal = aci_cuda_of(dev)->ordinal;
  /* asked, not remembered: the host program and its libraries may have changed it since */
  int current;
  if (cudaGetDevice(&current) == cudaSuccess && current == ordinal) return AC_OK;
  return aci_cuda_check(dev, cudaSetDevice(ordinal), "cannot be used", e);
}

static ac_status faults(const ac_device *dev, bool sync, ac_err *e) {
  volatile int *fault = aci_cuda_of(dev)->fault;
  const int what = *fault;
  if (what == ACI_FAULT_NONE) return AC_OK;
  *fault = ACI_FAULT_NONE;
  const char *whose = sync ? "" : " (an op before this wait; ACCEL_CUDA_SYNC=1 names it)";
  if (what == ACI_FAULT_WEIGHTS)
    return AC_FAIL(
        e, INVALID,
        "%s: weights to draw by are negative, not finite, or too few of them are above 0%s",
        dev->name, whose);
  return AC_FAIL(e, INDEX, "%s: an index of an op is out of range%s", dev->name, whose);
}

ac_status aci_cuda_faults(const ac_device *dev, ac_err *e) { return faults(dev, false, e); }

ac_status aci_cuda_launched(const ac_device *dev, cudaStream_t s, const char *kernel, bool sync,
                            ac_err *e) {
  cudaError_t code = cudaGetLastError();
  if (code == cudaSuccess && sync) code = cudaStreamSynchronize(s);
  if (code != cudaSuccess) return check(dev, code, kernel, sync, e);
  return sync ? faults(dev, true, e) : AC_OK;
}

/* ---- the devices of this machine ---- */
int aci_cuda_devices(char *why, size_t n) {
  int count = 0, driver = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    snprintf(why, n, "CUDA is built in, but there is no NVIDIA driver on this machine");
  else if (code == cudaErrorInsufficientDriver)
    snprintf(why, n, "the NVIDIA driver supports CUDA up to %d.%d, this build needs %d.%d",
             driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  else if (code == cudaSuccess || code == cudaErrorNoDevice)
    snprintf(why, n, "the NVIDIA driver shows no GPU%s%.60s%s",
             visible != NULL ? " (CUDA_VISIBLE_DEVICES=" : "", visible != NULL ? visible : "",
             visible != NULL ? ")" : "");
  else snprintf(why, n, "CUDA does not start: %s", cudaGetErrorString(code));
  return 0;
}

void aci_cuda_describe(int index, char *text, size_t n) {
  cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, index) != cudaSuccess) {
    snprintf(text, n, "(no properties)");
    return;
  }
  snprintf(text, n, "%.60s, %.1f GiB, compute %d.%d", p.name, (double)p.totalGlobalMem / (1 << 30),
           p.major, p.minor);
}

/* ---- life ---- */
static __global__ void probe() {}

/* Contexts open a device each, and so does a worker without one from the script. Tensors go from
 * one to the other, so all of their work on a GPU has one order. Never destroyed: contexts may
 * outlive main. */
struct own_order {
  cudaStream_t stream;
  int users;
};
static std::map<int, own_order> &orders = *new std::map<int, own_order>; /* by ordinal */
static std::mutex orders_lock;

static ac_status enter_order(const ac_device *dev, aci_cuda *c, ac_err *e) {
  std::lock_guard<std::mutex> hold(orders_lock);
  own_order &o = orders[c->ordinal];
  if (o.users == 0) /* does not wait for the legacy stream, which other libraries may use */
    AC_TRY(aci_cuda_check(dev, cudaStreamCreateWithFlags(&o.stream, cudaStreamNonBlocking),
                          "stream", e));
  o.users++;
  c->compute.handle = o.stream;
  return AC_OK;
}

static void leave_order(const aci_cuda *c) {
  std::lock_guard<std::mutex> hold(orders_lock);
  own_order &o = orders[c->ordinal];
  if (--o.users == 0) cudaStreamDestroy(o.stream);
}

static ac_status open_device(ac_device *dev, ac_err *e) {
  aci_cuda *c = (aci_cuda *)calloc(1, sizeof *c);
  if (c == NULL) return AC_FAIL(e, OOM, "no memory for device %s", dev->name);
  dev->impl = c;
  c->ordinal = dev->index;
  cudaDeviceProp p;
  ac_status st = aci_cuda_enter(dev, e);
  cudaFuncAttributes code = {};
  if (st == AC_OK)
    st = aci_cuda_check(dev, cudaGetDeviceProperties(&p, c->ordinal), "properties", e);
  if (st == AC_OK)
    st = aci_cuda_check(dev, cudaFuncGetAttributes(&code, (const void *)probe), "kernels", e);
  if (st == AC_OK) st = enter_order(dev, c, e);
  if (st == AC_OK) {
    st = aci_cuda_check(dev,
                        cudaHostAlloc((void **)&c->fault, sizeof *c->fault, cudaHostAllocPortable),
                        "page-locked memory", e);
    if (st != AC_OK) leave_order(c);
  }
  if (st != AC_OK) {
    free(c);
    dev->impl = NULL;
    return st;
  }
  *c->fault = ACI_FAULT_NONE;
  c->multiprocessors = p.multiProcessorCount;
  c->shared_bytes = p.sharedMemPerBlockOptin;
  c->code = code.ptxVersion;
  c->total_bytes = p.totalGlobalMem;
  return AC_OK;
}

static void close_device(ac_device *dev) {
  aci_cuda *c = (aci_cuda *)dev->impl;
  if (aci_cuda_enter(dev, NULL) == AC_OK) {
    aci_cuda_uploads_close(c);
    aci_cuda_capture_close(c);
    leave_order(c);
    cudaFreeHost(c->fault);
  }
  free(c);
  dev->impl = NULL;
}

/* ---- memory ---- */
static ac_status map(ac_device *dev, ac_mem_class k, size_t bytes, void **out, ac_err *e) {
  AC_TRY(aci_cuda_enter(dev, e));
  if (k == AC_MEM_PINNED)
    return aci_cuda_check(dev, cudaHostAlloc(out, bytes, cudaHostAllocPortable),
                          "page-locked memory", e);
  /* mapping memory is not work: it is allowed while work is recorded */
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  const cudaError_t code = cudaMalloc(out, bytes);
  cudaThreadExchangeStreamCaptureMode(&mode);
  return aci_cuda_check(dev, code, "memory", e);
}

static void unmap(ac_device *dev, ac_mem_class k, void *p, size_t bytes) {
  (void)bytes;
  if (aci_cuda_enter(dev, NULL) != AC_OK) return;
  if (k == AC_MEM_PINNED) cudaFreeHost(p);
  else cudaFree(p);
}

static ac_status copy(ac_device *dev, ac_stream *s, void *dst, const void *src, size_t bytes,
                      ac_err *e) {
  if (bytes == 0 || dst == src) return AC_OK;
  AC_TRY(aci_cuda_enter(dev, e));
  if (dev->capture != NULL) AC_TRY(aci_cuda_capture_copy(dev, dst, src, e));
  /* the addresses show the side. The driver stages host memory that is not page-locked */
  return aci_cuda_check(
      dev, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, aci_cuda_stream(dev, s)), "copy", e);
}

static ac_status fill(ac_device *dev, ac_stream *s, void *dst, int byte, size_t bytes, ac_err *e) {
  if (bytes == 0) return AC_OK;
  AC_TRY(aci_cuda_enter(dev, e));
  return aci_cuda_check(dev, cudaMemsetAsync(dst, byte, bytes, aci_cuda_stream(dev, s)), "fill", e);
}

/* ---- streams and events ---- */
static ac_status stream_new(ac_device *dev, int priority, ac_stream **out, ac_err *e) {
  int least = 0, greatest = 0;
  *out = NULL;
  AC_TRY(aci_cuda_enter(dev, e));
  AC_TRY(aci_cuda_check(dev, cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream", e));
  ac_stream *s = (ac_stream *)calloc(1, sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for a stream");
  /* ours: higher is more urgent. CUDA's: lower is */
  const int want = -priority < greatest ? greatest : -priority > least ? least : -priority;
  const ac_status st = aci_cuda_check(
      dev, cudaStreamCreateWithPriority(&s->handle, cudaStreamNonBlocking, want), "stream", e);
  if (st != AC_OK) free(s);
  else *out = s;
  return st;
}

static void stream_free(ac_device *dev, ac_stream *s) {
  if (s == NULL) return;
  if (aci_cuda_enter(dev, NULL) == AC_OK) cudaStreamDestroy(s->handle);
  free(s);
}

static ac_status event_new(ac_device *dev, ac_event **out, ac_err *e) {
  *out = NULL;
  AC_TRY(aci_cuda_enter(dev, e));
  ac_event *ev = (ac_event *)calloc(1, sizeof *ev);
  if (ev == NULL) return AC_FAIL(e, OOM, "no memory for an event");
  const ac_status st = aci_cuda_check(
      dev, cudaEventCreateWithFlags(&ev->handle, cudaEventDisableTiming), "event", e);
  if (st != AC_OK) free(ev);
  else *out = ev;
  return st;
}

static void event_free(ac_device *dev, ac_event *ev) {
  if (ev == NULL) return;
  if (aci_cuda_enter(dev, NULL) == AC_OK) cudaEventDestroy(ev->handle);
  free(ev);
}

static ac_status event_record(ac_device *dev, ac_event *ev, ac_stream *s, ac_err *e) {
  AC_TRY(aci_cuda_enter(dev, e));
  return aci_cuda_check(dev, cudaEventRecord(ev->handle, aci_cuda_stream(dev, s)), "event", e);
}

static ac_status event_query(ac_device *dev, ac_event *ev, bool *done, ac_err *e) {
  AC_TRY(aci_cuda_enter(dev, e));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed; /* a query is not work */
  cudaThreadExchangeStreamCaptureMode(&mode);
  const cudaError_t code = cudaEventQuery(ev->handle);
  cudaThreadExchangeStreamCaptureMode(&mode);
  *done = code == cudaSuccess;
  if (code == cudaErrorNotReady) {
    cudaGetLastError(); /* it is not an error: nobody after us may take it for one */
    return AC_OK;
  }
  return aci_cuda_check(dev, code, "event", e);
}

static ac_status stream_wait(ac_device *dev, ac_stream *s, ac_event *ev, ac_err *e) {
  AC_TRY(aci_cuda_enter(dev, e));
  return aci_cuda_check(dev, cudaStreamWaitEvent(aci_cuda_stream(dev, s), ev->handle, 0), "event",
                        e);
}

static ac_status sync_device(ac_device *dev, ac_stream *s, ac_err *e) {
  AC_TRY(aci_cuda_enter(dev, e));
  AC_TRY(aci_capture_refuse(dev, "the host waits for the device", e));
  const cudaError_t code = s != NULL ? cudaStreamSynchronize(s->handle) : cudaDeviceSynchronize();
  AC_TRY(aci_cuda_check(dev, code, "waiting", e));
  /* who takes no error leaves it to the next wait */
  return e != NULL ? aci_cuda_faults(dev, e) : AC_OK;
}

static void *stream_handle(ac_device *dev, ac_stream *s) { return aci_cuda_stream(dev, s); }

static void identity(ac_device *dev, char *id, size_t n) {
  if (cudaDeviceGetPCIBusId(id, (int)n, aci_cuda_of(dev)->ordinal) == cudaSuccess) return;
  cudaGetLastError();
  id[0] = 0;
}

const ac_device_vtable *aci_cuda_vtable() {
  static const ac_device_vtable vt = {
      sizeof vt,
      "cuda",
      false,
      open_device,
      close_device,
      map,
      unmap,
      NULL /* no pages come and go */,
      copy,
      fill,
      stream_new,
      stream_free,
      event_new,
      event_free,
      event_record,
      event_query,
      stream_wait,
      sync_device,
      aci_cuda_upload,
      stream_handle,
      identity,
      aci_cuda_capture_begin,
      aci_cuda_capture_end,
      aci_cuda_graph_launch,
      aci_cuda_graph_free,
  };
  return &vt;
}
