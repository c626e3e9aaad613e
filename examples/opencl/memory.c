/* Memory, copies, streams and events: the vtable of an OpenCL device.
 *
 * A pool deals in addresses, OpenCL in buffers. Each segment of the pool is a buffer and a range of addresses that nothing is mapped at:
 * an address says which buffer it means and how far from its start, and host code that touches one of a device ends there and then. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device.h"

enum { SMALL = 1 << 18 }; /* bytes that an upload copies so that its caller need not wait */

/* ---- segments of all devices, by address ---- */
typedef struct segment {
  uintptr_t at;
  size_t bytes;
  cl_mem mem;
  ocl_device *d;
} segment;
static segment *segments;
static size_t n_segments, cap_segments;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

/* How many begin at or before p. Under the lock. */
static size_t upto(uintptr_t p) {
  size_t lo = 0, hi = n_segments;
  while (lo < hi) {
    const size_t mid = (lo + hi) / 2;
    if (segments[mid].at <= p) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

static bool find(const void *p, segment *out) {
  pthread_rwlock_rdlock(&lock);
  const size_t i = upto((uintptr_t)p);
  const bool in = i > 0 && (uintptr_t)p - segments[i - 1].at < segments[i - 1].bytes;
  if (in) *out = segments[i - 1];
  pthread_rwlock_unlock(&lock);
  return in;
}

static ac_status add(segment s, ac_err *e) {
  pthread_rwlock_wrlock(&lock);
  ac_status st = AC_OK;
  if (n_segments == cap_segments) {
    const size_t cap = cap_segments * 2 + 32;
    segment *list = realloc(segments, cap * sizeof *list);
    if (list == NULL) st = AC_FAIL(e, OOM, "no memory for a list of %zu segments", cap);
    else segments = list, cap_segments = cap;
  }
  if (st == AC_OK) {
    const size_t i = upto(s.at);
    memmove(&segments[i + 1], &segments[i], (n_segments - i) * sizeof s);
    segments[i] = s;
    n_segments++;
  }
  pthread_rwlock_unlock(&lock);
  return st;
}

static cl_mem take_out(const void *p) {
  pthread_rwlock_wrlock(&lock);
  const size_t i = upto((uintptr_t)p) - 1;
  const cl_mem mem = segments[i].mem;
  memmove(&segments[i], &segments[i + 1], (--n_segments - i) * sizeof *segments);
  pthread_rwlock_unlock(&lock);
  return mem;
}

ac_status ocl_find(ocl_device *d, const void *p, cl_mem *mem, size_t *at, ac_err *e) {
  segment s;
  if (!find(p, &s) || s.d != d) return AC_FAIL(e, DEVICE, "%s: an operand is not in its memory", d->label);
  *mem = s.mem;
  *at = (size_t)((uintptr_t)p - s.at);
  return AC_OK;
}

/* ---- life ---- */
static ac_status open_device(ac_device *dev, ac_err *e) { return ocl_enter(ocl_of(dev), e); }
static void close_device(ac_device *dev) { ocl_leave(ocl_of(dev)); }

/* ---- the pool's segments ---- */
static ac_status map(ac_device *dev, ac_mem_class c, size_t bytes, void **out, ac_err *e) {
  ocl_device *d = ocl_of(dev);
  if (c == AC_MEM_PINNED) { /* memory of the host; OpenCL's own copies pin what they have to */
    *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *out != NULL ? AC_OK : AC_FAIL(e, OOM, "%s: no memory for %zu bytes on the host", d->label, bytes);
  }
  AC_TRY(ocl_alive(d, e));
  if (bytes > d->largest_bytes)
    return AC_FAIL(e, OOM, "%s: %zu bytes in one buffer, it has at most %zu", d->label, bytes, d->largest_bytes);
  void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return AC_FAIL(e, OOM, "%s: no addresses for %zu bytes", d->label, bytes);
  cl_int code;
  const cl_mem mem = clCreateBuffer(d->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
  ac_status st = ocl_check(d, code, "buffer", e);
  if (st == AC_OK) { /* a buffer may come without memory until it is used: out of memory is to be said here */
    st = ocl_check(d, clEnqueueMigrateMemObjects(d->queue, 1, &mem, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL), "buffer", e);
    if (st == AC_OK) st = add((segment){(uintptr_t)at, bytes, mem, d}, e);
    if (st != AC_OK) clReleaseMemObject(mem);
  }
  if (st != AC_OK) munmap(at, bytes);
  else *out = at;
  return st;
}

static void unmap(ac_device *dev, ac_mem_class c, void *p, size_t bytes) {
  (void)dev;
  if (c == AC_MEM_PINNED) {
    free(p);
    return;
  }
  clReleaseMemObject(take_out(p)); /* goes when what is queued on it is done */
  munmap(p, bytes);
}

/* ---- copies ---- */
static ac_status wait_for(ocl_device *d, cl_command_queue q, ac_err *e) { return ocl_check(d, clFinish(q), "waiting", e); }

/* Between two devices, which have no context in common: through the host. */
static ac_status across(const segment *dst, size_t to, const segment *src, size_t from, size_t bytes, ac_err *e) {
  void *host = malloc(bytes);
  if (host == NULL) return AC_FAIL(e, OOM, "no memory for %zu bytes between %s and %s", bytes, src->d->label, dst->d->label);
  ac_status st = ocl_check(src->d, clEnqueueReadBuffer(src->d->queue, src->mem, CL_TRUE, from, bytes, host, 0, NULL, NULL), "copy", e);
  if (st == AC_OK)
    st = ocl_check(dst->d, clEnqueueWriteBuffer(dst->d->queue, dst->mem, CL_TRUE, to, bytes, host, 0, NULL, NULL), "copy", e);
  free(host);
  return st;
}

static ac_status copy(ac_device *dev, ac_stream *s, void *dst, const void *src, size_t bytes, ac_err *e) {
  ocl_device *d = ocl_of(dev);
  segment a, b;
  if (bytes == 0 || dst == src) return AC_OK;
  AC_TRY(ocl_alive(d, e));
  const cl_command_queue q = ocl_queue(d, s);
  const bool to = find(dst, &a), from = find(src, &b);
  const size_t at = to ? (size_t)((uintptr_t)dst - a.at) : 0, bt = from ? (size_t)((uintptr_t)src - b.at) : 0;
  if (!to && !from) {
    AC_TRY(wait_for(d, q, e));
    memmove(dst, src, bytes);
    return AC_OK;
  }
  if (to && from && a.d != b.d) return across(&a, at, &b, bt, bytes, e);
  cl_int code;
  if (to && from) code = clEnqueueCopyBuffer(q, b.mem, a.mem, bt, at, bytes, 0, NULL, NULL);
  else if (to) code = clEnqueueWriteBuffer(q, a.mem, CL_FALSE, at, bytes, src, 0, NULL, NULL);
  else code = clEnqueueReadBuffer(q, b.mem, CL_FALSE, bt, bytes, dst, 0, NULL, NULL);
  return ocl_check(d, code, "copy", e);
}

static void CL_CALLBACK done_with(cl_event event, cl_int status, void *bytes) {
  (void)event, (void)status;
  free(bytes);
}

static ac_status upload(ac_device *dev, ac_stream *s, void *dst, const void *src, size_t bytes, ac_err *e) {
  ocl_device *d = ocl_of(dev);
  const cl_command_queue q = ocl_queue(d, s);
  cl_mem mem = NULL;
  size_t at = 0;
  if (bytes == 0) return AC_OK;
  AC_TRY(ocl_alive(d, e));
  AC_TRY(ocl_find(d, dst, &mem, &at, e));
  void *own = bytes <= SMALL ? malloc(bytes) : NULL;
  if (own == NULL) return ocl_check(d, clEnqueueWriteBuffer(q, mem, CL_TRUE, at, bytes, src, 0, NULL, NULL), "upload", e);
  cl_event done;
  memcpy(own, src, bytes);
  cl_int code = clEnqueueWriteBuffer(q, mem, CL_FALSE, at, bytes, own, 0, NULL, &done);
  if (code != CL_SUCCESS) {
    free(own);
    return ocl_check(d, code, "upload", e);
  }
  code = clSetEventCallback(done, CL_COMPLETE, done_with, own);
  if (code != CL_SUCCESS) {
    clWaitForEvents(1, &done);
    free(own);
  }
  clReleaseEvent(done);
  clFlush(q);
  return AC_OK;
}

static ac_status fill(ac_device *dev, ac_stream *s, void *dst, int byte, size_t bytes, ac_err *e) {
  ocl_device *d = ocl_of(dev);
  const cl_uchar pattern = (cl_uchar)byte;
  cl_mem mem = NULL;
  size_t at = 0;
  if (bytes == 0) return AC_OK;
  AC_TRY(ocl_alive(d, e));
  AC_TRY(ocl_find(d, dst, &mem, &at, e));
  return ocl_check(d, clEnqueueFillBuffer(ocl_queue(d, s), mem, &pattern, 1, at, bytes, 0, NULL, NULL), "fill", e);
}

ac_status ocl_fetch(const ac_frame *f, void *dst, const void *src, size_t bytes, ac_err *e) {
  AC_TRY(copy(f->device, f->stream, dst, src, bytes, e));
  return wait_for(ocl_of(f->device), ocl_queue(ocl_of(f->device), f->stream), e);
}
ac_status ocl_upload(const ac_frame *f, void *dst, const void *src, size_t bytes, ac_err *e) {
  return upload(f->device, f->stream, dst, src, bytes, e);
}

/* ---- streams and events ---- */
static ac_status stream_new(ac_device *dev, int priority, ac_stream **out, ac_err *e) {
  ocl_device *d = ocl_of(dev);
  cl_int code;
  int i = 0;
  (void)priority; /* OpenCL 1.2 has none */
  const cl_command_queue q = clCreateCommandQueue(d->context, d->id, 0, &code);
  AC_TRY(ocl_check(d, code, "stream", e));
  pthread_mutex_lock(&d->lock);
  while (i < OCL_MAX_STREAMS && d->streams[i] != NULL) i++;
  if (i < OCL_MAX_STREAMS) d->streams[i] = q;
  pthread_mutex_unlock(&d->lock);
  *out = (ac_stream *)(void *)q;
  if (i < OCL_MAX_STREAMS) return AC_OK;
  clReleaseCommandQueue(q);
  return AC_FAIL(e, DEVICE, "%s has %d streams already", d->label, OCL_MAX_STREAMS);
}
static void stream_free(ac_device *dev, ac_stream *s) {
  ocl_device *d = ocl_of(dev);
  if (s == NULL) return;
  pthread_mutex_lock(&d->lock);
  for (int i = 0; i < OCL_MAX_STREAMS; i++)
    if (d->streams[i] == ocl_queue(d, s)) d->streams[i] = NULL;
  pthread_mutex_unlock(&d->lock);
  clFinish(ocl_queue(d, s)); /* as ocl_leave does */
  clReleaseCommandQueue(ocl_queue(d, s));
}

typedef struct event {
  cl_event last; /* NULL: not recorded so far, which counts as done */
} event;
static event *event_of(ac_event *ev) { return (event *)(void *)ev; }

static ac_status event_new(ac_device *dev, ac_event **out, ac_err *e) {
  *out = (ac_event *)calloc(1, sizeof(event));
  return *out != NULL ? AC_OK : AC_FAIL(e, OOM, "%s: no memory for an event", ac_device_name(dev));
}
static void event_free(ac_device *dev, ac_event *ev) {
  (void)dev;
  if (ev != NULL && event_of(ev)->last != NULL) clReleaseEvent(event_of(ev)->last);
  free(ev);
}
static ac_status event_record(ac_device *dev, ac_event *ev, ac_stream *s, ac_err *e) {
  ocl_device *d = ocl_of(dev);
  cl_event mark;
  AC_TRY(ocl_alive(d, e));
  AC_TRY(ocl_check(d, clEnqueueMarkerWithWaitList(ocl_queue(d, s), 0, NULL, &mark), "event", e));
  if (event_of(ev)->last != NULL) clReleaseEvent(event_of(ev)->last);
  event_of(ev)->last = mark;
  return ocl_check(d, clFlush(ocl_queue(d, s)), "event", e); /* other queues may wait for it */
}
static ac_status event_query(ac_device *dev, ac_event *ev, bool *done, ac_err *e) {
  cl_int status = CL_COMPLETE;
  *done = true;
  if (event_of(ev)->last == NULL) return AC_OK;
  const cl_int code = clGetEventInfo(event_of(ev)->last, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
  *done = code == CL_SUCCESS && status <= CL_COMPLETE;
  return ocl_check(ocl_of(dev), code != CL_SUCCESS ? code : status < 0 ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : CL_SUCCESS, "event", e);
}
static ac_status stream_wait(ac_device *dev, ac_stream *s, ac_event *ev, ac_err *e) {
  ocl_device *d = ocl_of(dev);
  if (event_of(ev)->last == NULL) return AC_OK;
  return ocl_check(d, clEnqueueBarrierWithWaitList(ocl_queue(d, s), 1, &event_of(ev)->last, NULL), "event", e);
}
static ac_status sync_device(ac_device *dev, ac_stream *s, ac_err *e) {
  ocl_device *d = ocl_of(dev);
  cl_command_queue all[OCL_MAX_STREAMS + 1] = {ocl_queue(d, s)};
  int n = 1;
  AC_TRY(ocl_alive(d, e));
  pthread_mutex_lock(&d->lock);
  for (int i = 0; s == NULL && i < OCL_MAX_STREAMS; i++)
    if (d->streams[i] != NULL) clRetainCommandQueue(all[n++] = d->streams[i]);
  pthread_mutex_unlock(&d->lock);
  ac_status st = AC_OK;
  for (int i = 0; i < n; i++) {
    if (st == AC_OK) st = wait_for(d, all[i], e);
    if (i > 0) clReleaseCommandQueue(all[i]);
  }
  return st;
}

const ac_device_vtable *ocl_vtable(void) {
  static const ac_device_vtable vt = {.struct_size = sizeof vt,
                                      .name = "opencl",
                                      .open = open_device,
                                      .close = close_device,
                                      .mem_map = map,
                                      .mem_unmap = unmap,
                                      .copy = copy,
                                      .fill = fill,
                                      .stream_new = stream_new,
                                      .stream_free = stream_free,
                                      .event_new = event_new,
                                      .event_free = event_free,
                                      .event_record = event_record,
                                      .event_query = event_query,
                                      .stream_wait = stream_wait,
                                      .sync = sync_device,
                                      .upload = upload};
  return &vt;
}
