/* The twin: as much of CUDA as this tree uses, on the CPU, so that kernels and device code can be run and tested where no GPU is. A
 * host compiler takes the same .cu files with this header in the place of the toolkit's.
 *
 * Device memory is closed to the host but while kernels and copies run, so that host code which touches it dies
 * here as it would there; streams and events are complete at once. A kernel's blocks run one after the other, the
 * threads of a block as fibers that meet in __syncthreads, in an order that CUDA_TWIN_ORDER=reverse turns round: a
 * kernel whose result depends on it lacks a barrier. What a device refuses ends the process with a word why: threads that meet in different
 * barriers, lanes that have ended when their warp meets, copies between places that overlap; so does work on streams that nobody orders,
 * and, by a trap, an access at no multiple of its type. What the twin cannot tell: races between blocks, host memory in the hands of a
 * kernel, speed, the device's own arithmetic. */
#ifndef CUDA_TWIN_CUDA_RUNTIME_H
#define CUDA_TWIN_CUDA_RUNTIME_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <functional>

#define ACI_CUDA_EMULATED 1
#define __global__
#define __device__
#define __host__
#define __shared__ static /* kernels of several host threads take turns */
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct emulated_place {
  dim3 thread, block, blocks, threads;
};
extern emulated_place emulated_here __attribute__((visibility("hidden")));
#define threadIdx (emulated_here.thread)
#define blockIdx (emulated_here.block)
#define gridDim (emulated_here.blocks)
#define blockDim (emulated_here.threads)

/* All threads of the block that have not ended meet here, at one place of the source. */
void emulated_barrier(int line);
#define __syncthreads() emulated_barrier(__LINE__)
/* Ends the process: nothing that a device would let pass. */
[[noreturn]] void emulated_wrong(const char *what);

typedef struct emulated_stream *cudaStream_t;
/* A launch fails on a stream of another device than the thread's current one, with more threads or blocks than there may be or none, and
 * with more shared memory than the kernel was granted. */
bool emulated_starts(const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t s);
void emulated_run(dim3 grid, dim3 block, size_t shared, const std::function<void()> &thread);
/* Whether what the stream is given is recorded, and recording it; what: a kernel, or NULL. For libraries, too, which stand in for others. */
bool emulated_records(cudaStream_t s);
void emulated_record(cudaStream_t s, const void *what, std::function<void()> work);
/* static: files have structs of arguments of the same name, and each needs its own. */
template <class... P>
static void emulated_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream, P... args) {
  if (!emulated_starts((const void *)kernel, grid, block, shared, stream)) return;
  if (!emulated_records(stream)) return emulated_run(grid, block, shared, [&] { kernel(args...); });
  emulated_record(stream, (const void *)kernel, [=] { emulated_run(grid, block, shared, [=] { kernel(args...); }); });
}
/* The launch's own shared memory, of which every block finds the noise of the one before it. */
char *emulated_shared();

/* ---- what the lanes of a warp do together: emulated_warp.h builds on these ---- */
enum { EMULATED_SLOT = 64 };
/* Every lane of the warp comes with up to EMULATED_SLOT bytes; all of them get everybody's, 32 slots that stand until the
 * second exchange after this one. */
const char (*emulated_exchange(const void *mine, size_t bytes))[EMULATED_SLOT];
/* Copies that go on while the thread does: in groups, as cp.async. They take place when they are waited for; with CUDA_TWIN_ORDER=reverse
 * at once. So a wait that is missing shows one way, a place that is overwritten while it is read the other. */
void emulated_copy(void *to, const void *from, int bytes, int zeros);
void emulated_copy_commit();
void emulated_copy_wait(int groups); /* until at most so many are under way */
#define __syncwarp() ((void)emulated_exchange(NULL, 0))

/* ---- the runtime ---- */
typedef enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorAssert = 710,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorCapturedEvent = 907
} cudaError_t;
typedef struct emulated_event *cudaEvent_t;
typedef enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDefault = 4 } cudaMemcpyKind;
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostAllocPortable = 1 };
#define CUDART_VERSION 13000

typedef struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlockOptin;
  int multiProcessorCount, major, minor;
} cudaDeviceProp;

/* Two devices; CUDA_TWIN_DEVICES=n for another number, 0: as without a driver. */
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaDriverGetVersion(int *v);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaGetDevice(int *device);
/* CUDA_TWIN_MEDDLE=1: behind every launch another device becomes current, as if another library of the process had made it so. */
cudaError_t cudaSetDevice(int device);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes, cudaStream_t s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int device);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
typedef struct cudaFuncAttributes {
  int ptxVersion;
} cudaFuncAttributes;
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
/* Code for CUDA_TWIN_PTX (90): what kernels of older code do can be tried. */
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *kernel);
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute what, int value);
cudaError_t cudaGetLastError();
const char *cudaGetErrorString(cudaError_t code);

/* ---- recorded work: capture.cpp ---- */
/* CUDA_TWIN_GRAPHS names a file that is told at the end: of each graph what it holds, "graph 1 kernels 12 copies 0 fills 3 same", and of
 * each run its number, "run 1 of 7". same: these kernels were launched before, one behind the other in this order. */
typedef struct emulated_graph *cudaGraph_t;
typedef struct emulated_graph *cudaGraphExec_t;
typedef enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2
} cudaStreamCaptureMode;
typedef enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2 } cudaMemoryType;
typedef struct cudaPointerAttributes {
  cudaMemoryType type;
} cudaPointerAttributes;
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *run, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t run, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t run);

/* Device memory is the host's from one to the other: for libraries that stand in for those of the toolkit. */
void emulated_open();
void emulated_close();

#endif
