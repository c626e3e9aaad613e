/* Machine code that was made while a program ran: see cuda_library.h. */
#include "cuda_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include <vector>

#include "emulation.h"

struct emulated_library {
  void (*enter)(emulated_place *here, void *arg); /* one thread */
  size_t bytes;                                   /* of the argument */
};

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, void *, void *, unsigned, void *, void *, unsigned) {
  emulated_code head;
  memcpy(&head, code, sizeof head);
  if (memcmp(head.magic, "twincode", 8) != 0) return emulated_give(cudaErrorInvalidValue);
  char path[] = "/tmp/accel_twin_XXXXXX";
  const int fd = mkstemp(path);
  if (fd < 0) return emulated_give(cudaErrorMemoryAllocation);
  const bool written = write(fd, (const char *)code + sizeof head, head.bytes) == (ssize_t)head.bytes;
  close(fd);
  void *h = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  unlink(path);
  if (h == NULL) return emulated_give(cudaErrorInvalidValue);
  const size_t *bytes = (const size_t *)dlsym(h, "emulated_bytes");
  *library = new emulated_library{(void (*)(emulated_place *, void *))dlsym(h, "emulated_enter"), bytes != NULL ? *bytes : 0};
  return (*library)->enter != NULL ? cudaSuccess : emulated_give(cudaErrorInvalidValue);
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
  *kernel = library;
  return strcmp(name, "fused") == 0 ? cudaSuccess : emulated_give(cudaErrorInvalidValue);
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
  const emulated_library *l = (const emulated_library *)kernel;
  if (block.x > 256) return emulated_give(cudaErrorInvalidConfiguration); /* of its __launch_bounds__ */
  if (!emulated_starts(kernel, grid, block, shared, s)) return cudaGetLastError();
  const std::vector<char> arg((const char *)args[0], (const char *)args[0] + l->bytes);
  const auto work = [=] { emulated_run(grid, block, shared, [=] { l->enter(&emulated_here, (void *)arg.data()); }); };
  if (emulated_records(s)) emulated_record(s, kernel, work);
  else work();
  return cudaSuccess;
}
