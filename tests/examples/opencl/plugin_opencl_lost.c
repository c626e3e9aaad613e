/* Stands before OpenCL's library (LD_PRELOAD): after OPENCL_LOST_AFTER kernels its queues take none any more, as when a driver has lost its
 * device. Knows nothing of OpenCL's headers, which not every machine has. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "accel/base.h"

typedef int (*enqueue_fn)(void *, void *, unsigned, const size_t *, const size_t *, const size_t *, unsigned, void *, void *);

AC_API int clEnqueueNDRangeKernel(void *queue, void *kernel, unsigned dims, const size_t *at, const size_t *global, const size_t *local,
                                  unsigned n_events, void *events, void *event);
int clEnqueueNDRangeKernel(void *queue, void *kernel, unsigned dims, const size_t *at, const size_t *global, const size_t *local,
                           unsigned n_events, void *events, void *event) {
  static int calls;
  const char *after = getenv("OPENCL_LOST_AFTER");
  enqueue_fn real;
  if (after != NULL && ++calls > atoi(after)) return -2; /* CL_DEVICE_NOT_AVAILABLE */
  void *library = dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_NOLOAD), *symbol = library != NULL ? dlsym(library, "clEnqueueNDRangeKernel") : NULL;
  if (symbol == NULL) return -2;
  memcpy(&real, &symbol, sizeof real);
  return real(queue, kernel, dims, at, global, local, n_events, events, event);
}
