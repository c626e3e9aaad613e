/* Launching kernels and walking elements: the base of every .cu.
 *
 *   static __global__ void scale(int64_t n, float *y, float a) { for (int64_t i = aci_first(); i <
 *   n; i += aci_step()) y[i] *= a; }
 *   return aci_launch(f, "scale", scale, aci_blocks(dev, n), n, y, a);
 *
 * Kernels are grid-stride loops over 64-bit positions: a grid covers the machine a few times, not
 * the data. A block has ACI_BLOCK threads. Structs of arguments are `const __grid_constant__`:
 * taking their address would copy them to every thread. The shapes alone determine the results: no
 * atomics on floats, no order that the scheduler chooses. */
#ifndef ACI_CUDA_LAUNCH_CUH
#define ACI_CUDA_LAUNCH_CUH
#include "accel/opdef.h"
#include "device/cuda/cuda_impl.h"
#include "ops/cuda/module.h"
#include "tensor/tensor_impl.h"

#ifdef ACI_CUDA_EMULATED
/* two warps. Few blocks, so that strides of the grid are walked */
enum { ACI_BLOCK = 64, ACI_WAVES = 1 };
#else
enum { ACI_BLOCK = 256, ACI_WAVES = 8 };
#endif

static __device__ __forceinline__ int64_t aci_first() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ __forceinline__ int64_t aci_step() { return (int64_t)gridDim.x * blockDim.x; }

/* Blocks for n positions, one a thread and round: at least 1, at most ACI_WAVES per multiprocessor
 * and 8 kernels side by side. */
static inline unsigned aci_blocks(const ac_device *dev, int64_t n, int block = ACI_BLOCK) {
  const int64_t want = (n + block - 1) / block,
                most = (int64_t)aci_cuda_of(dev)->multiprocessors * ACI_WAVES;
  return (unsigned)(want < 1 ? 1 : want < most ? want : most);
}

/* shared: bytes that a block finds at ACI_SHARED, in addition to the kernel's declared ones. More
 * than 48 KiB need a chip that has them. */
struct aci_shape_of_launch {
  dim3 grid, block;
  size_t shared;
  aci_shape_of_launch(unsigned blocks) : grid(blocks), block(ACI_BLOCK), shared(0) {}
  aci_shape_of_launch(dim3 g, dim3 b, size_t shared = 0) : grid(g), block(b), shared(shared) {}
};

#ifdef ACI_CUDA_EMULATED
#define ACI_SHARED(name) char *const name = emulated_shared()
#else
#define ACI_SHARED(name) extern __shared__ __align__(1024) char name[]
#endif

/* Checks for errors after a launch on the frame's device. Waits for the kernel if the context's
 * flag is set. */
static inline ac_status aci_launched(const ac_frame *f, cudaStream_t s, const char *kernel,
                                     ac_err *e) {
  return aci_cuda_launched(f->device, s, kernel, aci_flag(f, ACI_CUDA_SYNC) != 0, e);
}

/* The counter of a random op's draws (random/draw.h), which moves on with every replay of a
 * recorded step. */
struct aci_counter {
  uint64_t call;
  const uint64_t *replayed;
#ifdef ACI_CUDA_EMULATED
  operator uint64_t() const { return replayed != NULL ? call + *replayed : call; }
#else
  __device__ __forceinline__ operator uint64_t() const {
    return replayed != NULL ? call + *replayed : call;
  }
#endif
};
static inline aci_counter aci_counter_of(const ac_frame *f, uint64_t call) {
  const aci_counter c = {call, f->ctx->replayed};
  return c;
}

/* On the frame's device and stream. Errors name the kernel. The dispatcher adds the op. */
template <class... P, class... A>
static ac_status aci_launch(const ac_frame *f, const char *name, void (*kernel)(P...),
                            aci_shape_of_launch s, ac_err *e, A... args) {
  AC_TRY(aci_cuda_enter(f->device, e));
  const cudaStream_t stream = aci_cuda_stream(f->device, f->stream);
  if (s.shared > (size_t)48 << 10)
    AC_TRY(aci_cuda_check(f->device,
                          cudaFuncSetAttribute((const void *)kernel,
                                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               (int)s.shared),
                          name, e));
#ifdef ACI_CUDA_EMULATED
  emulated_launch(kernel, s.grid, s.block, s.shared, stream, static_cast<P>(args)...);
#else
  kernel<<<s.grid, s.block, s.shared, stream>>>(static_cast<P>(args)...);
#endif
  return aci_launched(f, stream, name, e);
}

/* Scratch for a library, which wants it at a multiple of 256, while blocks begin at one of 64. The
 * caller frees the block. 0 bytes: none. */
static inline ac_status aci_workspace(const ac_frame *f, size_t bytes, ac_block **block, void **p,
                                      ac_err *e) {
  *block = NULL;
  *p = NULL;
  if (bytes == 0) return AC_OK;
  AC_TRY(ac_block_alloc(f->device, bytes + 256 - 64, AC_MEM_ACTIVATION, f->stream, block, e));
  *p = (void *)(((uintptr_t)(*block)->ptr + 255) / 256 * 256);
  return AC_OK;
}

/* ---- registers of the module: linked when it is loaded ---- */
struct aci_cuda_entry {
  const char *op;
  ac_kernel run;
  aci_cuda_entry *next;
  aci_cuda_entry(const char *op, ac_kernel run) : op(op), run(run), next(head()) { head() = this; }
  static aci_cuda_entry *&head();
};
/* AC_KERNEL(cuda, sum, launch): launch is the op's kernel on this device. */
#define AC_KERNEL(device, op, fn) static aci_cuda_entry aci_entry_##device##_##op(#op, fn);

#endif
