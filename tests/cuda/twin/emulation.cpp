/* The twin's runtime, whose device memory is the host's. See cuda_runtime.h; the threads of kernels: fibers.cpp. */
#include "emulation.h"

#include <stdio.h>
#include <sys/mman.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <set>

/* ---- device memory: closed to the host but while kernels and copies run ---- */
/* So that host code which reads or writes it dies here as it would on a GPU machine. Calls of several threads take turns. */
namespace {
std::recursive_mutex device_lock;
typedef std::map<const void *, size_t> places;
places device_memory, page_locked;
int device_open;

bool holds(const places &all, const void *p) {
  auto m = all.upper_bound(p);
  return m != all.begin() && (const char *)p < (const char *)(--m)->first + m->second;
}

/* Where the processor has protection keys, a thread opens memory by a register; else pages are told, which costs more than most kernels. */
int key() {
  static const int k = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  return k;
}
void protect(bool open) {
  if (key() >= 0) pkey_set(key(), open ? 0 : PKEY_DISABLE_ACCESS);
  else
    for (const auto &m : device_memory) mprotect((void *)m.first, m.second, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}
struct on_device {
  on_device() { emulated_open(); }
  ~on_device() { emulated_close(); }
};
} // namespace

void emulated_open() {
  device_lock.lock();
  if (device_open++ == 0) protect(true);
}
void emulated_close() {
  if (--device_open == 0) protect(false);
  device_lock.unlock();
}

/* ---- the runtime ---- */
static thread_local cudaError_t last = cudaSuccess;
cudaError_t emulated_give(cudaError_t code) { return code == cudaSuccess ? code : (last = code); }
static cudaError_t give(cudaError_t code) { return emulated_give(code); }

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
static thread_local int current;
cudaError_t cudaGetDevice(int *device) { return *device = current, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return give(cudaErrorInvalidDevice);
  return current = device, cudaSuccess;
}

/* CUDA_TWIN_WAITS names a file that is told at the end how often the host waited for the device, or may have: memory that is freed, copies to
 * or from host memory that is not page-locked. */
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
static bool paged(const void *p) { return !holds(device_memory, p) && !holds(page_locked, p); }

cudaError_t cudaMalloc(void **p, size_t bytes) {
  const on_device open;
  *p = NULL;
  if (!emulated_may_wait()) return give(cudaErrorStreamCaptureUnsupported);
  bytes = (bytes + 4095) & ~(size_t)4095;
  if (bytes > (size_t)1 << 30) return give(cudaErrorMemoryAllocation);
  void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (m == MAP_FAILED) return give(cudaErrorMemoryAllocation);
  if (key() >= 0 && pkey_mprotect(m, bytes, PROT_READ | PROT_WRITE, key()) != 0) abort();
  memset(m, 0xAB, bytes < 1 << 20 ? bytes : 1 << 20); /* device memory is not zeros */
  device_memory[m] = bytes;
  *p = m;
  return cudaSuccess;
}
/* The stream that a device has work on which nobody has waited for. Work on another one, unordered as it is, meets the same memory. */
static std::map<int, cudaStream_t> busy;

/* Copies of such a stream between device and page-locked memory, either way, are made when somebody waits for them, not before: until then their
 * destination has its old bytes, and what is written to their source meanwhile is what arrives. */
struct late_copy {
  cudaStream_t stream;
  void *dst;
  const void *src;
  size_t bytes;
  long number;
};
static std::deque<late_copy> late;
static long late_numbers;
/* CUDA_TWIN_BESIDE names a file that is told at the end how many kernels began while such copies were under way. */
static struct beside {
  long kernels = 0;
  ~beside() {
    const char *path = getenv("CUDA_TWIN_BESIDE");
    FILE *f = path != NULL ? fopen(path, "w") : NULL;
    if (f == NULL) return;
    fprintf(f, "%ld\n", kernels);
    fclose(f);
  }
} beside;
/* Those of a stream (NULL: of a device) up to a number. */
static void make_late(cudaStream_t s, int device, long upto) {
  for (auto at = late.begin(); at != late.end();) {
    if (at->number > upto || (s != NULL ? at->stream != s : at->stream->device != device)) {
      ++at;
      continue;
    }
    memcpy(at->dst, at->src, at->bytes);
    at = late.erase(at);
  }
}
static void work_on(cudaStream_t s) {
  cudaStream_t &b = busy[s->device];
  if (b != NULL && b != s) emulated_wrong("work on two streams of a device, and neither waits for the other");
  b = s;
}
/* CUDA_TWIN_STAGED=1: streams of communication copy results to page-locked memory and go on with the next call of a library, whose memory they have
 * waited for once. */
static bool is_staged() {
  static const bool told = getenv("CUDA_TWIN_STAGED") != NULL;
  return told;
}
static void wait_for(cudaStream_t s) {
  const on_device lock;
  make_late(s, 0, late_numbers);
  cudaStream_t &b = busy[s->device];
  if (b == s) b = NULL;
}
static void wait_for_device() {
  const on_device lock;
  make_late(NULL, current, late_numbers);
  busy[current] = NULL;
}

/* For the stand-in of NCCL, whose free does not wait for the device. */
extern "C" __attribute__((visibility("default"))) int emulated_memory(void **p, size_t bytes) { return cudaMalloc(p, bytes); }
extern "C" __attribute__((visibility("default"))) int emulated_memory_free(void *p) {
  if (busy[current] != NULL) emulated_wrong("memory of NCCL is freed while a stream has work");
  return cudaFree(p);
}

cudaError_t cudaFree(void *p) {
  const on_device open;
  if (!emulated_may_wait()) return give(cudaErrorStreamCaptureUnsupported);
  make_late(NULL, current, late_numbers);
  busy[current] = NULL;
  const auto m = device_memory.find(p);
  if (m == device_memory.end()) return give(p == NULL ? cudaSuccess : cudaErrorInvalidValue);
  munmap(p, m->second);
  device_memory.erase(m);
  return waits.n++, cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
  const on_device open;
  *p = aligned_alloc(4096, bytes = (bytes + 4095) & ~(size_t)4095);
  if (*p == NULL) return give(cudaErrorMemoryAllocation);
  page_locked[*p] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) {
  const on_device open;
  for (int i = 0; i < devices(); i++) make_late(NULL, i, late_numbers);
  page_locked.erase(p);
  return free(p), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind, cudaStream_t s) {
  const on_device open;
  if (s->capture != NULL) {
    if (paged(dst) || paged(src)) return give(emulated_spoil(s));
    emulated_record(s, NULL, [=] { memcpy(dst, src, bytes); });
    return s->capture->copies++, cudaSuccess;
  }
  const bool down = s->copies && holds(page_locked, dst) && holds(device_memory, src);
  if (down && s->waits == 0 && !is_staged()) emulated_wrong("a copy from the device on a stream that has waited for nothing");
  if (down || (s->copies && holds(page_locked, src) && holds(device_memory, dst))) {
    late.push_back({s, dst, src, bytes, ++late_numbers});
    return cudaSuccess;
  }
  if (s->copies) make_late(s, 0, late_numbers); /* a stream keeps its order */
  work_on(s);
  if (paged(dst) || paged(src)) waits.n++;
  if ((const char *)dst < (const char *)src + bytes && (const char *)src < (const char *)dst + bytes)
    emulated_wrong("a copy between places that overlap");
  return memcpy(dst, src, bytes), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes, cudaStream_t s) {
  const on_device open;
  if (s->capture != NULL) {
    emulated_record(s, NULL, [=] { memset(dst, byte, bytes); });
    return s->capture->fills++, cudaSuccess;
  }
  work_on(s);
  return memset(dst, byte, bytes), cudaSuccess;
}

static std::set<cudaStream_t> streams;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
  const on_device lock;
  return streams.insert(*s = new emulated_stream{current, false, NULL, 0, 0, 0}), cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int) {
  const on_device lock;
  return streams.insert(*s = new emulated_stream{current, true, NULL, 0, 0, 0}), cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int device) {
  if (device < 0 || device >= devices() || n < 13) return give(cudaErrorInvalidDevice);
  snprintf(id, (size_t)n, "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
/* Bytes of shared memory beyond what every kernel may have. */
static std::map<const void *, size_t> granted;
bool emulated_starts(const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t s) {
  static const bool meddle = getenv("CUDA_TWIN_MEDDLE") != NULL;
  const bool same = s->device == current;
  if (!same) give(cudaErrorInvalidResourceHandle);
  if (meddle) current = (current + 1) % devices();
  if (!same) return false;
  const size_t threads = (size_t)block.x * block.y * block.z, blocks = (size_t)grid.x * grid.y * grid.z;
  if (threads < 1 || threads > 1024 || block.z > 64 || blocks < 1 || grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535)
    return give(cudaErrorInvalidConfiguration), false;
  const on_device lock;
  if (s->capture == NULL) {
    work_on(s);
    emulated_launched(kernel);
    beside.kernels += !late.empty();
  }
  const auto g = granted.find(kernel);
  if (shared > (g != granted.end() ? g->second : (size_t)48 << 10)) return give(cudaErrorInvalidValue), false;
  return true;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  wait_for(s);
  const on_device lock;
  return streams.erase(s), delete s, cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (s->capture != NULL) return give(emulated_spoil(s));
  return wait_for(s), waits.n++, cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (!emulated_may_wait()) return give(cudaErrorStreamCaptureUnsupported);
  return wait_for_device(), waits.n++, cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  const on_device open;
  s->waits++;
  if (s->capture != NULL || e->capture != NULL) return give(emulated_join(s, e));
  if (e->stream != NULL && e->stream != s) make_late(e->stream, 0, e->number);
  return busy[current] = NULL, cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
  return *e = new emulated_event(), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  const on_device lock;
  e->capture = s->capture;
  e->recorded_on = s;
  e->recorded = s->work;
  e->stream = s->copies && s->capture == NULL ? s : NULL;
  return e->number = late_numbers, cudaSuccess;
}
/* Its copies are not made so far. */
static bool is_late(cudaEvent_t e) {
  for (const late_copy &c : late)
    if (c.stream == e->stream && c.number <= e->number) return true;
  return false;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  const on_device lock;
  if (e->capture != NULL && !e->capture->ended) return give(cudaErrorCapturedEvent);
  if (!is_late(e)) return e->asked = 0, cudaSuccess;
  if (++e->asked < 100) return give(cudaErrorNotReady);
  make_late(e->stream, 0, e->number); /* time goes by for who asks again and again */
  return e->asked = 0, cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  const on_device open;
  if (e->capture != NULL && !e->capture->ended) return give(cudaErrorCapturedEvent);
  if (e->stream != NULL) make_late(e->stream, 0, e->number);
  return waits.n++, cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p) {
  const on_device lock;
  a->type = holds(device_memory, p) ? cudaMemoryTypeDevice : holds(page_locked, p) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
void emulated_work_on(cudaStream_t s) { work_on(s); }

int emulated_device() { return current; }
const char *emulated_library_call(void *stream) {
  const on_device lock;
  const auto found = streams.find((cudaStream_t)stream);
  if (found == streams.end()) return "on no stream";
  emulated_stream *s = *found;
  if (s->device != current) return "on a stream of another device";
  if (s->capture != NULL) return "on a stream that records";
  if (s->waits == 0 && !is_staged()) return "on a stream that has waited for nothing since the call before";
  s->waits = 0;
  make_late(s, 0, late_numbers); /* the library's work comes after the stream's copies */
  return NULL;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *) {
  const char *ptx = getenv("CUDA_TWIN_PTX");
  return a->ptxVersion = ptx != NULL ? atoi(ptx) : 90, cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value) {
  const on_device lock;
  if (value > 227 << 10) return give(cudaErrorInvalidValue);
  return granted[kernel] = (size_t)value, cudaSuccess;
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
