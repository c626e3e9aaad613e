/* The module's own face of a CUDA device: fields that device.cu fills in and launchers of kernels
 * read.
 *
 * Order of work: everything of a device runs on its compute stream (stream NULL), one for all
 * contexts of the process, unless a caller names another. Memory of the pool is reused in the order
 * of the stream it was allocated for, so that a block which another stream reads or writes must be
 * waited for by its own stream before it is freed: event_record(other), stream_wait(own). */
#ifndef ACI_CUDA_IMPL_H
#define ACI_CUDA_IMPL_H
#include <cuda_runtime.h>

#include "device/capture.h"
#include "device/device_impl.h"

struct ac_stream {
  cudaStream_t handle;
};
struct ac_event {
  cudaEvent_t handle;
};

struct aci_cuda_uploads; /* upload.cu */

/* dev->impl */
typedef struct aci_cuda {
  int ordinal;
  ac_stream compute;
  /* while work is recorded: the compute stream's own handle. The recording stream, made on first
   * use */
  cudaStream_t order, recorder;
  struct aci_cuda_kept *kept; /* bytes of the host that the work under way copies */
  int multiprocessors;
  size_t shared_bytes; /* that a block may ask for */
  /* the chip that this module's code for the device was compiled for, 75 or 90: an 8.0 runs the
   * code of 7.5 */
  int code;
  size_t total_bytes;
  struct aci_cuda_uploads *uploads; /* NULL: none so far */
  int *
      /* kernels report invalid values here (host memory they can reach): an aci_cuda_fault */
      fault;
} aci_cuda;

/* Kernels cannot raise. They skip invalid values, and the next wait for the device reports the
 * fault. */
enum aci_cuda_fault { ACI_FAULT_NONE, ACI_FAULT_INDEX, ACI_FAULT_WEIGHTS };
/* INDEX when a kernel that ran before met an index out of range, INVALID for weights that cannot be
 * drawn from. Each is reported once. */
ac_status aci_cuda_faults(const ac_device *dev, ac_err *e);

/* Makes the device current for the calling thread. Takes some nanoseconds when it is already. */
ac_status aci_cuda_enter(const ac_device *dev, ac_err *e);
/* AC_OK, or one line: the device, the operation, the driver's text. For a sticky error (an earlier
 * kernel failed) the message explains how to find its op. */
ac_status aci_cuda_check(const ac_device *dev, cudaError_t code, const char *what, ac_err *e);
/* Checks for errors after a launch. sync: waits for the kernel. */
ac_status aci_cuda_launched(const ac_device *dev, cudaStream_t s, const char *kernel, bool sync,
                            ac_err *e);

/* The vtable's upload. */
ac_status aci_cuda_upload(ac_device *dev, ac_stream *s, void *dst, const void *src, size_t bytes,
                          ac_err *e);
void aci_cuda_uploads_close(aci_cuda *c);

/* capture.cu: the vtable's functions, and the check of a copy inside recorded work: AC_OK unless
 * host memory takes part. */
ac_status aci_cuda_capture_begin(ac_device *dev, ac_err *e);
ac_status aci_cuda_capture_end(ac_device *dev, ac_device_graph **out, ac_err *e);
ac_status aci_cuda_graph_launch(ac_device *dev, ac_device_graph *g, ac_err *e);
void aci_cuda_graph_free(ac_device *dev, ac_device_graph *g);
void aci_cuda_capture_close(aci_cuda *c);
/* Bytes that the host makes inside a recorded step, such as arange's: each replay copies the same
 * ones. */
ac_status aci_cuda_capture_upload(ac_device *dev, void *dst, const void *src, size_t bytes,
                                  ac_err *e);
ac_status aci_cuda_capture_copy(const ac_device *dev, const void *dst, const void *src, ac_err *e);

int aci_cuda_devices(char *why, size_t n);
void aci_cuda_describe(int index, char *text, size_t n);
const ac_device_vtable *aci_cuda_vtable();

static inline const aci_cuda *aci_cuda_of(const ac_device *dev) {
  return (const aci_cuda *)dev->impl;
}
static inline cudaStream_t aci_cuda_stream(const ac_device *dev, const ac_stream *s) {
  return s != NULL ? s->handle : aci_cuda_of(dev)->compute.handle;
}

#endif
