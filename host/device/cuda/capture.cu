/* Work that is recorded as a CUDA graph, and run again by one call. Called through the vtable by
 * ops/core/capture.c.
 *
 * A separate stream records, in the place of the compute stream and for this device handle alone.
 * Work of other contexts of the process on the GPU runs meanwhile and is not recorded. Streams that
 * wait for an event of the recording one (NCCL's) record as well, until that waits for them. */
#include "device/cuda/cuda_impl.h"

#include <stdlib.h>
#include <string.h>

/* Page-locked bytes that a graph copies from. */
struct aci_cuda_kept {
  aci_cuda_kept *next;
  void *p;
};
struct ac_device_graph {
  cudaGraphExec_t run;
  aci_cuda_kept *kept;
};

static void drop(aci_cuda_kept *k) {
  while (k != NULL) {
    aci_cuda_kept *next = k->next;
    cudaFreeHost(k->p);
    free(k);
    k = next;
  }
}

static bool on_device(const void *p) {
  cudaPointerAttributes a = {};
  if (cudaPointerGetAttributes(&a, p) == cudaSuccess) return a.type == cudaMemoryTypeDevice;
  cudaGetLastError();
  return false;
}

ac_status aci_cuda_capture_copy(const ac_device *dev, const void *dst, const void *src, ac_err *e) {
  if (!on_device(dst))
    return aci_capture_refuse(
        dev,
        "values are read on the host (item(), tolist(), a copy to the CPU, a shape that depends on data)",
        e);
  if (!on_device(src))
    return aci_capture_refuse(
        dev, "values of the host are copied to the device (make or move the tensor outside)", e);
  return AC_OK;
}

ac_status aci_cuda_capture_upload(ac_device *dev, void *dst, const void *src, size_t bytes,
                                  ac_err *e) {
  aci_cuda *c = (aci_cuda *)dev->impl;
  aci_cuda_kept *k = (aci_cuda_kept *)calloc(1, sizeof *k);
  if (k == NULL) return AC_FAIL(e, OOM, "no memory for a recorded step");
  /* mapping memory is not recorded work */
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  ac_status st = aci_cuda_check(dev, cudaHostAlloc(&k->p, bytes, cudaHostAllocPortable),
                                "page-locked memory", e);
  cudaThreadExchangeStreamCaptureMode(&mode);
  if (st != AC_OK) {
    free(k);
    return st;
  }
  memcpy(k->p, src, bytes);
  k->next = c->kept;
  c->kept = k;
  return aci_cuda_check(
      dev, cudaMemcpyAsync(dst, k->p, bytes, cudaMemcpyHostToDevice, aci_cuda_stream(dev, NULL)),
      "copy", e);
}

ac_status aci_cuda_capture_begin(ac_device *dev, ac_err *e) {
  aci_cuda *c = (aci_cuda *)dev->impl;
  AC_TRY(aci_cuda_enter(dev, e));
  if (c->order != NULL) return AC_FAIL(e, STATE, "%s: work is being recorded already", dev->name);
  if (c->recorder == NULL)
    AC_TRY(aci_cuda_check(dev, cudaStreamCreateWithFlags(&c->recorder, cudaStreamNonBlocking),
                          "stream", e));
  AC_TRY(aci_cuda_check(dev, cudaStreamBeginCapture(c->recorder, cudaStreamCaptureModeThreadLocal),
                        "recording", e));
  c->order = c->compute.handle;
  c->compute.handle = c->recorder;
  return AC_OK;
}

ac_status aci_cuda_capture_end(ac_device *dev, ac_device_graph **out, ac_err *e) {
  aci_cuda *c = (aci_cuda *)dev->impl;
  cudaGraph_t graph = NULL;
  if (out != NULL) *out = NULL;
  AC_TRY(aci_cuda_enter(dev, e));
  if (c->order == NULL) return AC_FAIL(e, STATE, "%s: nothing is being recorded", dev->name);
  c->compute.handle = c->order;
  c->order = NULL;
  ac_status st = aci_cuda_check(dev, cudaStreamEndCapture(c->recorder, &graph), "recording", e);
  if (st == AC_OK && out != NULL) {
    ac_device_graph *g = (ac_device_graph *)calloc(1, sizeof *g);
    if (g == NULL) st = AC_FAIL(e, OOM, "no memory for a recorded step");
    else st = aci_cuda_check(dev, cudaGraphInstantiate(&g->run, graph, 0), "recording", e);
    if (st == AC_OK) {
      g->kept = c->kept;
      c->kept = NULL;
      *out = g;
    } else {
      free(g);
    }
  }
  drop(c->kept);
  c->kept = NULL;
  if (graph != NULL) cudaGraphDestroy(graph);
  return st;
}

ac_status aci_cuda_graph_launch(ac_device *dev, ac_device_graph *g, ac_err *e) {
  AC_TRY(aci_cuda_enter(dev, e));
  return aci_cuda_check(dev, cudaGraphLaunch(g->run, aci_cuda_stream(dev, NULL)), "replay", e);
}

void aci_cuda_graph_free(ac_device *dev, ac_device_graph *g) {
  if (g == NULL) return;
  if (aci_cuda_enter(dev, NULL) == AC_OK) cudaGraphExecDestroy(g->run);
  /* a replay under way may still read them */
  if (g->kept != NULL) cudaStreamSynchronize(aci_cuda_stream(dev, NULL));
  drop(g->kept);
  free(g);
}

void aci_cuda_capture_close(aci_cuda *c) {
  if (c->recorder != NULL) cudaStreamDestroy(c->recorder);
  c->recorder = NULL;
}
