/* The twin's insides: blocks and threads of kernels on the calling thread, and a runtime whose device memory is the host's. See
 * cuda_runtime.h. */
#include "cuda_runtime.h"

#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

thread_local emulated_place emulated_here;

/* ---- device memory: closed to the host but while kernels and copies run ---- */
/* So that host code which reads or writes it dies here as it would on a GPU machine. Calls of several threads take turns. */
namespace {
std::recursive_mutex device_lock;
std::map<void *, size_t> device_memory;
int device_open;

void protect(int how) {
  for (const auto &m : device_memory) mprotect(m.first, m.second, how);
}
struct on_device {
  on_device() {
    device_lock.lock();
    if (device_open++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  ~on_device() {
    if (--device_open == 0) protect(PROT_NONE);
    device_lock.unlock();
  }
};
} // namespace

/* ---- threads of a block: fibers ---- */
namespace {
enum { STACK = 256 << 10 };
struct pending_copy {
  void *to;
  const void *from;
  int bytes, zeros;
};
/* What the lanes of a warp share while they meet. */
struct warp {
  char slot[2][32][EMULATED_SLOT];
  unsigned alive = 0, waiting = 0, generation = 0;
};
struct fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  dim3 place;
  bool running = false, done = false;
  unsigned index = 0; /* in the block */
  std::deque<std::vector<pending_copy>> copies; /* groups; the last one is open */
  void *fake = nullptr; /* AddressSanitizer's own stack of this fiber */
};
struct scheduler {
  ucontext_t home;
  std::vector<std::unique_ptr<fiber>> fibers;
  std::vector<std::unique_ptr<warp>> warps;
  char *shared = nullptr;
  bool copy_at_once = false;
  fiber *current = nullptr;
  unsigned alive = 0, waiting = 0, generation = 0;
  const std::function<void()> *body = nullptr;
  void *fake = nullptr;
  const void *bottom = nullptr;
  size_t size = 0;
};
thread_local scheduler S;

void leave(bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &S.current->fake, S.bottom, S.size);
#else
  (void)for_good;
#endif
  swapcontext(&S.current->context, &S.home);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(S.current->fake, &S.bottom, &S.size);
#endif
}

void open_barrier() {
  S.waiting = 0;
  S.generation++;
}

void open_warp(warp *w) {
  w->waiting = 0;
  w->generation++;
}

void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &S.bottom, &S.size);
#endif
  (*S.body)();
  S.current->done = true;
  S.alive--;
  if (S.alive > 0 && S.waiting == S.alive) open_barrier(); /* those that wait, wait for the living */
  warp *w = S.warps[S.current->index / 32].get();
  if (--w->alive > 0 && w->waiting == w->alive) open_warp(w);
  leave(true);
}

void resume(fiber *f) {
  S.current = f;
  emulated_here.thread = f->place;
  if (!f->running) {
    f->running = true;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack.get();
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = &S.home;
    makecontext(&f->context, fiber_main, 0);
  }
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&S.fake, f->stack.get(), STACK);
#endif
  swapcontext(&S.home, &f->context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(S.fake, nullptr, nullptr);
#endif
}

void run_block(unsigned n, dim3 block, bool reverse) {
  while (S.fibers.size() < n) {
    S.fibers.emplace_back(new fiber);
    S.fibers.back()->stack.reset(new char[STACK]);
  }
  while (S.warps.size() < (n + 31) / 32) S.warps.emplace_back(new warp);
  for (unsigned i = 0; i < n; i += 32) {
    warp *w = S.warps[i / 32].get();
    w->alive = n - i < 32 ? n - i : 32;
    w->waiting = w->generation = 0;
  }
  S.alive = n;
  S.waiting = S.generation = 0;
  S.copy_at_once = reverse;
  for (unsigned i = 0; i < n; i++) {
    fiber *f = S.fibers[i].get();
    f->running = f->done = false;
    f->index = i;
    f->copies.assign(1, {});
    f->place = dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
  }
  while (S.alive > 0)
    for (unsigned k = 0; k < n; k++) {
      fiber *f = S.fibers[reverse ? n - 1 - k : k].get();
      if (!f->done) resume(f);
    }
}
} // namespace

void emulated_barrier() {
  const unsigned g = S.generation;
  if (++S.waiting == S.alive) {
    open_barrier();
    return;
  }
  while (S.generation == g) leave(false);
}

char *emulated_shared() { return S.shared; }

const char (*emulated_exchange(const void *mine, size_t bytes))[EMULATED_SLOT] {
  const unsigned i = S.current->index;
  warp *w = S.warps[i / 32].get();
  const unsigned g = w->generation;
  char(*slots)[EMULATED_SLOT] = w->slot[g & 1];
  if (bytes > EMULATED_SLOT) abort();
  if (bytes > 0) memcpy(slots[i % 32], mine, bytes);
  if (++w->waiting == w->alive) open_warp(w);
  else
    while (w->generation == g) leave(false);
  return slots;
}

static void copy_now(const pending_copy &c) {
  memcpy(c.to, c.from, (size_t)c.bytes);
  memset((char *)c.to + c.bytes, 0, (size_t)c.zeros);
}
void emulated_copy(void *to, const void *from, int bytes, int zeros) {
  const pending_copy c = {to, from, bytes, zeros};
  if (S.copy_at_once) copy_now(c);
  else S.current->copies.back().push_back(c);
}
void emulated_copy_commit() { S.current->copies.emplace_back(); }
void emulated_copy_wait(int groups) {
  auto &q = S.current->copies;
  while ((int)q.size() - 1 > groups) { /* the open group is not under way yet */
    for (const pending_copy &c : q.front()) copy_now(c);
    q.pop_front();
  }
}

void emulated_run(dim3 grid, dim3 block, size_t shared, const std::function<void()> &thread) {
  const on_device open;
  const char *order = getenv("CUDA_TWIN_ORDER");
  const bool reverse = order != NULL && strcmp(order, "reverse") == 0;
  const unsigned blocks = grid.x * grid.y * grid.z;
  S.body = &thread;
  free(S.shared);
  S.shared = shared > 0 ? (char *)aligned_alloc(1024, (shared + 1023) / 1024 * 1024) : nullptr;
  if (shared > 0) memset(S.shared, 0xAB, shared);
  emulated_here.blocks = grid;
  emulated_here.threads = block;
  for (unsigned k = 0; k < blocks; k++) {
    const unsigned b = reverse ? blocks - 1 - k : k;
    emulated_here.block = dim3(b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y);
    run_block(block.x * block.y * block.z, block, reverse);
  }
}

/* ---- the runtime ---- */
static thread_local cudaError_t last = cudaSuccess;
static cudaError_t give(cudaError_t code) { return code == cudaSuccess ? code : (last = code); }

static int devices() {
  const char *n = getenv("CUDA_TWIN_DEVICES");
  return n != NULL ? atoi(n) : 2;
}

cudaError_t cudaGetDeviceCount(int *n) {
  return give((*n = devices()) > 0 ? cudaSuccess : cudaErrorInsufficientDriver);
}
cudaError_t cudaDriverGetVersion(int *v) { return *v = devices() > 0 ? CUDART_VERSION : 0, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
  if (device < 0 || device >= devices()) return give(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "emulated device");
  p->totalGlobalMem = (size_t)1 << 30;
  p->sharedMemPerBlockOptin = 227 << 10;
  p->multiProcessorCount = 2;
  p->major = 9;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return give(device >= 0 && device < devices() ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaMalloc(void **p, size_t bytes) {
  const on_device open;
  *p = NULL;
  bytes = (bytes + 4095) & ~(size_t)4095;
  if (bytes > (size_t)1 << 30) return give(cudaErrorMemoryAllocation);
  void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (m == MAP_FAILED) return give(cudaErrorMemoryAllocation);
  memset(m, 0xAB, bytes < 1 << 20 ? bytes : 1 << 20); /* device memory is not zeros */
  device_memory[m] = bytes;
  *p = m;
  return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
  const on_device open;
  const auto m = device_memory.find(p);
  if (m == device_memory.end()) return give(p == NULL ? cudaSuccess : cudaErrorInvalidValue);
  munmap(p, m->second);
  device_memory.erase(m);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
  *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
  return give(*p == NULL ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFreeHost(void *p) { return free(p), cudaSuccess; }
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  const on_device open;
  return memmove(dst, src, bytes), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes, cudaStream_t) {
  const on_device open;
  return memset(dst, byte, bytes), cudaSuccess;
}

struct emulated_stream {
  int unused;
};
struct emulated_event {
  int unused;
};
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
  return *s = new emulated_stream(), cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int) {
  return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) { return delete s, cudaSuccess; }
/* CUDA_TWIN_WAITS names a file that is told at the end how often the host waited for the device. */
static struct waits {
  std::atomic<long> n{0};
  ~waits() {
    const char *path = getenv("CUDA_TWIN_WAITS");
    FILE *f = path != NULL ? fopen(path, "w") : NULL;
    if (f == NULL) return;
    fprintf(f, "%ld\n", n.load());
    fclose(f);
  }
} waits;
cudaError_t cudaStreamSynchronize(cudaStream_t) { return waits.n++, cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return waits.n++, cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
  return *e = new emulated_event(), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return waits.n++, cudaSuccess; }

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *) {
  const char *ptx = getenv("CUDA_TWIN_PTX");
  return a->ptxVersion = ptx != NULL ? atoi(ptx) : 90, cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int value) {
  return give(value <= 227 << 10 ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGetLastError() {
  const cudaError_t code = last;
  last = cudaSuccess;
  return code;
}
const char *cudaGetErrorString(cudaError_t code) {
  switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    default: return "an emulated error";
  }
}

void emulated_open() {
  device_lock.lock();
  if (device_open++ == 0) protect(PROT_READ | PROT_WRITE);
}
void emulated_close() {
  if (--device_open == 0) protect(PROT_NONE);
  device_lock.unlock();
}
