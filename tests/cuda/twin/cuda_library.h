/* The twin's part of the runtime that loads machine code made while a program runs: shared libraries of the CPU, which the stand-in for NVRTC
 * makes (nvrtc.cpp). Apart from cuda_runtime.h, as one file of the module uses it. */
#ifndef CUDA_TWIN_CUDA_LIBRARY_H
#define CUDA_TWIN_CUDA_LIBRARY_H
#include "cuda_runtime.h"

typedef struct emulated_library *cudaLibrary_t;
typedef struct emulated_library *cudaKernel_t; /* each has one */
cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, void *, void *, unsigned, void *, void *, unsigned);
cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name);
/* Of kernels of libraries alone. */
cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s);

/* How a library's code begins, so that its size is known: the number of bytes that follow. */
typedef struct emulated_code {
  char magic[8]; /* "twincode" */
  size_t bytes;
} emulated_code;

#endif
