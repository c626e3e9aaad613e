/* Uploads that do not make the host wait: bytes are put into page-locked slots in a ring, and the
 * device takes them from there in the order of the stream. A slot is used again when its copy is
 * done. The host waits only when all slots are under way. The driver copies larger uploads than all
 * slots together, and the host waits for them. */
#include "device/cuda/cuda_impl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 16, SLOT_BYTES = 128 << 10 };

struct aci_cuda_uploads {
  pthread_mutex_t lock; /* threads of workers may use the device as well */
  char *room;
  cudaEvent_t done[SLOTS];
  int n_events, next;
};

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

void aci_cuda_uploads_close(aci_cuda *c) {
  aci_cuda_uploads *u = c->uploads;
  if (u == NULL) return;
  for (int i = 0; i < u->n_events; i++) cudaEventDestroy(u->done[i]);
  if (u->room != NULL) cudaFreeHost(u->room);
  pthread_mutex_destroy(&u->lock);
  free(u);
  c->uploads = NULL;
}

static ac_status make(ac_device *dev, aci_cuda *c, ac_err *e) {
  aci_cuda_uploads *u = (aci_cuda_uploads *)calloc(1, sizeof *u);
  if (u == NULL) return AC_FAIL(e, OOM, "no memory for uploads");
  pthread_mutex_init(&u->lock, NULL);
  c->uploads = u;
  ac_status st = aci_cuda_check(
      dev, cudaHostAlloc((void **)&u->room, (size_t)SLOTS * SLOT_BYTES, cudaHostAllocPortable),
      "page-locked memory", e);
  for (; st == AC_OK && u->n_events < SLOTS; u->n_events += st == AC_OK)
    st = aci_cuda_check(
        dev, cudaEventCreateWithFlags(&u->done[u->n_events], cudaEventDisableTiming), "event", e);
  if (st != AC_OK) aci_cuda_uploads_close(c);
  return st;
}

static ac_status through_slots(ac_device *dev, aci_cuda_uploads *u, cudaStream_t s, char *dst,
                               const char *src, size_t bytes, ac_err *e) {
  for (size_t at = 0; at < bytes; at += SLOT_BYTES) {
    const size_t n = bytes - at < SLOT_BYTES ? bytes - at : (size_t)SLOT_BYTES;
    const int i = u->next;
    /* an event that was never recorded is complete */
    cudaError_t code = cudaEventQuery(u->done[i]);
    if (code == cudaErrorNotReady) {
      cudaGetLastError();
      code = cudaEventSynchronize(u->done[i]);
    }
    AC_TRY(aci_cuda_check(dev, code, "copy", e));
    char *slot = u->room + (size_t)i * SLOT_BYTES;
    memcpy(slot, src + at, n);
    AC_TRY(aci_cuda_check(dev, cudaMemcpyAsync(dst + at, slot, n, cudaMemcpyHostToDevice, s),
                          "copy", e));
    AC_TRY(aci_cuda_check(dev, cudaEventRecord(u->done[i], s), "event", e));
    u->next = (i + 1) % SLOTS;
  }
  return AC_OK;
}

ac_status aci_cuda_upload(ac_device *dev, ac_stream *stream, void *dst, const void *src,
                          size_t bytes, ac_err *e) {
  if (bytes == 0) return AC_OK;
  AC_TRY(aci_cuda_enter(dev, e));
  if (dev->capture != NULL && dev->capture->recording)
    return aci_cuda_capture_upload(dev, dst, src, bytes, e);
  const cudaStream_t s = aci_cuda_stream(dev, stream);
  if (bytes > (size_t)SLOTS * SLOT_BYTES) {
    AC_TRY(aci_cuda_check(dev, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, s), "copy",
                          e));
    return aci_cuda_check(dev, cudaStreamSynchronize(s), "copy", e);
  }
  aci_cuda *c = (aci_cuda *)dev->impl;
  pthread_mutex_lock(&opening);
  ac_status st = c->uploads != NULL ? AC_OK : make(dev, c, e);
  pthread_mutex_unlock(&opening);
  AC_TRY(st);
  pthread_mutex_lock(&c->uploads->lock);
  st = through_slots(dev, c->uploads, s, (char *)dst, (const char *)src, bytes, e);
  pthread_mutex_unlock(&c->uploads->lock);
  return st;
}
