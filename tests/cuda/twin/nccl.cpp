/* The twin's stand-in for NCCL (ACCEL_NCCL names its file): the calls of comm/nccl/library.h between processes, over a file that the unique id
 * names, by plain loops over the twin's memory. As the real library does for communicators that do not block, calls return that they are in
 * progress and a thread does them in order. What the real one leaves to the program is refused here: members that call different things, other
 * counts, types or roots, the default stream, a stream of another device or one that has not waited for the work that its call reads, two streams of
 * one communicator, calls inside a group that is not ended, a communicator that was given back, memory that is
 * registered twice or given back while it is registered.
 *
 * NCCL_TWIN_LOG: a file that gets a line a call: member, communicator, kind, dtype, reduction, root, count, messages, whether its memory is
 * registered, its stream by number. NCCL_TWIN_REGISTER=no: refuses to register. NCCL_TWIN_STRICT: refuses memory that is not registered; "memory": and reductions in
 * memory that is not of ncclMemAlloc. NCCL_TWIN_MEMORY=no: makes none. NCCL_TWIN_FAIL=N: the
 * N-th collective of member 1 fails, as a lost link does. NCCL_TWIN_LOST=N: member 1 takes the N-th and never ends it. NCCL_TWIN_VERSION:
 * what it says it is. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/vmath.h"
#include "comm/nccl/library.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
enum { FINE = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };
enum { MOST = 8, AREA = 8 << 20, LIVE = 0x4CC1 };
enum Kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, MESSAGES, SPLIT };
static const char *const names[] = {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "messages", "split"};

/* What a member puts into the file for its next call. */
struct Member {
  std::atomic<uint32_t> arrived, done; /* calls so far */
  int kind, type, op, root;
  uint64_t count;
  uint64_t offset[MOST], bytes[MOST]; /* messages to each member, in data */
  char data[AREA];
};
struct Shared {
  std::atomic<int> failed;
  Member member[MOST];
};

struct Message {
  bool sends;
  const void *from;
  void *to;
  size_t n;
  int type, peer;
};
struct Call {
  int kind, type, op, root;
  const void *send;
  void *recv;
  size_t count;
  std::vector<Message> messages;
  int color, key;
  ncclComm **split;
  void *stream;
};

struct ncclComm {
  int live, n, me;
  std::string path;
  Shared *shared;
  uint32_t calls;
  std::atomic<int> status, aborted;
  std::mutex lock;
  std::condition_variable more;
  std::deque<Call> queue;
  bool stop;
  int device;   /* that was current when it was made */
  void *stream; /* of its first call */
  std::thread thread;
  std::vector<std::pair<const char *, size_t>> known; /* registered; empty places are NULL */
};

static thread_local int depth;
static thread_local std::vector<std::pair<ncclComm *, Call>> grouped;

static size_t size_of(int type) {
  switch (type) {
    case ACI_NCCL_I8:
    case ACI_NCCL_U8: return 1;
    case ACI_NCCL_F16:
    case ACI_NCCL_BF16: return 2;
    case ACI_NCCL_I64:
    case ACI_NCCL_F64: return 8;
    default: return 4;
  }
}

/* Device memory is closed to the host's loads and stores (emulation.cpp); the library's engines reach it all the same, here by the kernel. */
static int memory() {
  static const int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  return fd;
}
static bool fetch(void *to, const void *device, size_t n) {
  for (size_t at = 0; at < n;) {
    const ssize_t k = pread(memory(), (char *)to + at, n - at, (off_t)(uintptr_t)device + (off_t)at);
    if (k <= 0) return false;
    at += (size_t)k;
  }
  return true;
}
static bool store(void *device, const void *from, size_t n) {
  for (size_t at = 0; at < n;) {
    const ssize_t k = pwrite(memory(), (const char *)from + at, n - at, (off_t)(uintptr_t)device + (off_t)at);
    if (k <= 0) return false;
    at += (size_t)k;
  }
  return true;
}

/* ---- arithmetic ---- */
template <class T> static T combine(int op, T a, T b) {
  switch (op) {
    case ACI_NCCL_PROD: return (T)(a * b);
    case ACI_NCCL_MAX: return a > b ? a : b;
    case ACI_NCCL_MIN: return a < b ? a : b;
    default: return (T)(a + b);
  }
}
template <class T> static void reduce_plain(int op, int n, void *out, const char *const *in, size_t count) {
  for (size_t i = 0; i < count; i++) {
    T sum = ((const T *)(const void *)in[0])[i];
    for (int r = 1; r < n; r++) sum = combine(op, sum, ((const T *)(const void *)in[r])[i]);
    ((T *)out)[i] = op == ACI_NCCL_AVG ? (T)(sum / (T)n) : sum;
  }
}
static void reduce_half(int type, int op, int n, void *out, const char *const *in, size_t count) {
  for (size_t i = 0; i < count; i++) {
    float sum = 0;
    for (int r = 0; r < n; r++) {
      const uint16_t bits = ((const uint16_t *)(const void *)in[r])[i];
      const float x = type == ACI_NCCL_F16 ? aci_f16_to_f32(bits) : aci_bf16_to_f32(bits);
      sum = r == 0 ? x : combine(op, sum, x);
    }
    if (op == ACI_NCCL_AVG) sum /= (float)n;
    ((uint16_t *)out)[i] = type == ACI_NCCL_F16 ? aci_f32_to_f16(sum) : aci_f32_to_bf16(sum);
  }
}
static void reduce(int type, int op, int n, void *out, const char *const *in, size_t count) {
  switch (type) {
    case ACI_NCCL_F32: return reduce_plain<float>(op, n, out, in, count);
    case ACI_NCCL_F64: return reduce_plain<double>(op, n, out, in, count);
    case ACI_NCCL_I64: return reduce_plain<int64_t>(op, n, out, in, count);
    case ACI_NCCL_I32: return reduce_plain<int32_t>(op, n, out, in, count);
    case ACI_NCCL_I8: return reduce_plain<int8_t>(op, n, out, in, count);
    case ACI_NCCL_U8: return reduce_plain<uint8_t>(op, n, out, in, count);
    default: return reduce_half(type, op, n, out, in, count);
  }
}

/* ---- members meet ---- */
static void nap() {
  struct timespec t = {0, 100000};
  nanosleep(&t, NULL);
}

/* Until all have reached this call; false: aborted, or another one failed. */
static bool meet(ncclComm *c, std::atomic<uint32_t> Member::*word, uint32_t value) {
  (c->shared->member[c->me].*word).store(value);
  for (int r = 0; r < c->n; r++)
    while ((int32_t)((c->shared->member[r].*word).load() - value) < 0) {
      if (c->aborted || c->shared->failed) return false;
      nap();
    }
  return true;
}

static int wanted(const char *name) {
  const char *text = getenv(name);
  return text != NULL ? atoi(text) : 0;
}

/* Whether p lies in registered memory; NULL does. */
static bool is_known(ncclComm *c, const void *p) {
  std::lock_guard<std::mutex> hold(c->lock);
  for (const auto &k : c->known)
    if (k.first != NULL && (size_t)((const char *)p - k.first) < k.second) return true;
  return p == NULL;
}
static bool is_registered(ncclComm *c, const Call &call) {
  bool all = is_known(c, call.send) && is_known(c, call.recv);
  for (const Message &m : call.messages) all = all && is_known(c, m.sends ? m.from : m.to);
  return all;
}

/* Streams are numbered as they come; 0: none. */
static int number_of(void *stream) {
  static std::mutex lock;
  static std::vector<void *> seen;
  std::lock_guard<std::mutex> hold(lock);
  for (size_t i = 0; i < seen.size() && stream != NULL; i++)
    if (seen[i] == stream) return (int)i + 1;
  if (stream != NULL) seen.push_back(stream);
  return stream != NULL ? (int)seen.size() : 0;
}

static void note(ncclComm *c, const char *kind, const Call &call) {
  const char *log = getenv("NCCL_TWIN_LOG"), *slash = strrchr(c->path.c_str(), '/');
  if (log == NULL) return;
  FILE *f = fopen(log, "a");
  if (f == NULL) return;
  fprintf(f, "%d/%d %s %s type %d op %d root %d count %zu messages %zu registered %s stream %d\n", c->me, c->n,
          slash != NULL ? slash + 1 : c->path.c_str(), kind, call.type, call.op, call.root, call.count, call.messages.size(),
          is_registered(c, call) ? "yes" : "no", number_of(call.stream));
  fclose(f);
}

static int open_shared(ncclComm *c) {
  const int fd = open(c->path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) return SYSTEM_ERROR;
  void *p = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (p == MAP_FAILED) return SYSTEM_ERROR;
  c->shared = (Shared *)p;
  return ACI_NCCL_SUCCESS;
}

static ncclComm *make(const std::string &path, int n, int me);

/* One piece of a collective, so many elements that every member's part fits its area. */
static bool piece(ncclComm *c, const Call &k, size_t at, size_t n) {
  Member *own = &c->shared->member[c->me];
  const size_t size = size_of(k.type);
  const size_t whole = k.kind == REDUCE_SCATTER ? (size_t)c->n : 1;
  const bool gives = k.kind != BROADCAST || c->me == k.root;
  for (size_t r = 0; gives && r < whole; r++)
    if (!fetch(own->data + r * n * size, (const char *)k.send + (r * k.count + at) * size, n * size)) return false;
  if (!meet(c, &Member::arrived, ++c->calls)) return false;
  const char *in[MOST];
  for (int r = 0; r < c->n; r++) in[r] = c->shared->member[r].data + (k.kind == REDUCE_SCATTER ? (size_t)c->me * n * size : 0);
  char *out = (char *)k.recv + at * size;
  bool good = true;
  if (k.kind == BROADCAST) good = store(out, in[k.root], n * size);
  else if (k.kind == ALL_GATHER)
    for (int r = 0; r < c->n && good; r++) good = store((char *)k.recv + ((size_t)r * k.count + at) * size, in[r], n * size);
  else if (k.kind != REDUCE || c->me == k.root) {
    std::vector<char> sums(n * size);
    reduce(k.type, k.op, c->n, sums.data(), in, n);
    good = store(out, sums.data(), n * size);
  }
  return meet(c, &Member::done, c->calls) && good;
}

static int collective(ncclComm *c, const Call &k) {
  Member *own = &c->shared->member[c->me];
  own->kind = k.kind, own->type = k.type, own->op = k.op, own->root = k.root, own->count = k.count;
  if (!meet(c, &Member::arrived, ++c->calls)) return SYSTEM_ERROR;
  for (int r = 0; r < c->n; r++) {
    const Member *m = &c->shared->member[r];
    if (m->kind == k.kind && m->type == k.type && m->op == k.op && m->root == k.root && m->count == k.count) continue;
    fprintf(stderr, "nccl_twin: members %d and %d make different calls: %s and %s\n", c->me, r, names[k.kind], names[m->kind]);
    return INVALID_USAGE;
  }
  if (!meet(c, &Member::done, c->calls)) return SYSTEM_ERROR;
  const size_t most = AREA / size_of(k.type) / (size_t)c->n;
  for (size_t at = 0; at < k.count; at += most)
    if (!piece(c, k, at, k.count - at < most ? k.count - at : most)) return SYSTEM_ERROR;
  return ACI_NCCL_SUCCESS;
}

/* A group of sends and receives, in which all members take part. */
static int messages(ncclComm *c, const Call &k) {
  Member *own = &c->shared->member[c->me];
  size_t used = 0;
  memset(own->bytes, 0, sizeof own->bytes);
  own->kind = MESSAGES;
  for (const Message &m : k.messages) {
    const size_t bytes = m.n * size_of(m.type);
    if (!m.sends) continue;
    if (used + bytes > AREA) return INVALID_ARGUMENT;
    if (!fetch(own->data + used, m.from, bytes)) return SYSTEM_ERROR;
    own->offset[m.peer] = used;
    own->bytes[m.peer] = bytes;
    used += bytes;
  }
  if (!meet(c, &Member::arrived, ++c->calls)) return SYSTEM_ERROR;
  for (const Message &m : k.messages) {
    const Member *peer = &c->shared->member[m.peer];
    if (m.sends) continue;
    if (peer->kind != MESSAGES || peer->bytes[c->me] != m.n * size_of(m.type)) {
      fprintf(stderr, "nccl_twin: member %d expects %zu bytes of %d, which sends %llu\n", c->me, m.n * size_of(m.type), m.peer,
              (unsigned long long)peer->bytes[c->me]);
      return INVALID_USAGE;
    }
    if (!store(m.to, peer->data + peer->offset[c->me], peer->bytes[c->me])) return SYSTEM_ERROR;
  }
  return meet(c, &Member::done, c->calls) ? FINE : SYSTEM_ERROR;
}

static int split(ncclComm *c, const Call &k) {
  Member *own = &c->shared->member[c->me];
  own->kind = SPLIT, own->root = k.color, own->op = k.key;
  if (!meet(c, &Member::arrived, ++c->calls)) return SYSTEM_ERROR;
  int n = 0, me = 0;
  for (int r = 0; r < c->n; r++) {
    const Member *m = &c->shared->member[r];
    if (m->kind != SPLIT) return INVALID_USAGE;
    if (m->root != k.color) continue;
    n++;
    if (m->op < k.key || (m->op == k.key && r < c->me)) me++;
  }
  if (!meet(c, &Member::done, c->calls)) return SYSTEM_ERROR;
  if (k.color == ACI_NCCL_NO_COLOR) return *k.split = NULL, ACI_NCCL_SUCCESS;
  *k.split = make(c->path + "." + std::to_string(c->calls) + "." + std::to_string(k.color), n, me);
  if (*k.split != NULL) (*k.split)->device = c->device;
  return *k.split != NULL ? FINE : SYSTEM_ERROR;
}

/* What ncclMemAlloc made. */
static std::mutex made_lock;
static std::vector<std::pair<const char *, size_t>> made;
static bool is_made(const void *p) {
  std::lock_guard<std::mutex> hold(made_lock);
  for (const auto &m : made)
    if ((size_t)((const char *)p - m.first) < m.second) return true;
  return false;
}

static int run(ncclComm *c, const Call &k) {
  static std::atomic<int> collectives;
  const char *strict = getenv("NCCL_TWIN_STRICT");
  if (strict != NULL && strcmp(strict, "memory") == 0 && (k.kind == ALL_REDUCE || k.kind == REDUCE_SCATTER) && !is_made(k.send)) {
    fprintf(stderr, "nccl_twin: %s in memory that is not of ncclMemAlloc\n", names[k.kind]);
    return INVALID_USAGE;
  }
  note(c, names[k.kind], k);
  if (k.kind != SPLIT && getenv("NCCL_TWIN_STRICT") != NULL && !is_registered(c, k)) {
    fprintf(stderr, "nccl_twin: %s of memory that is not registered\n", names[k.kind]);
    return INVALID_USAGE;
  }
  if (k.kind != SPLIT && c->me == 1) {
    const int number = ++collectives;
    if (number == wanted("NCCL_TWIN_FAIL")) return c->shared->failed = 1, SYSTEM_ERROR;
    if (number == wanted("NCCL_TWIN_LOST")) {
      while (!c->aborted) nap();
      return SYSTEM_ERROR;
    }
  }
  return k.kind == MESSAGES ? messages(c, k) : k.kind == SPLIT ? split(c, k) : collective(c, k);
}

static void serve(ncclComm *c) {
  for (;;) {
    std::unique_lock<std::mutex> hold(c->lock);
    c->more.wait(hold, [c] { return c->stop || !c->queue.empty(); });
    if (c->queue.empty()) return;
    const Call k = c->queue.front();
    hold.unlock();
    const int status = c->aborted ? SYSTEM_ERROR : run(c, k);
    hold.lock();
    c->queue.pop_front();
    if (status != ACI_NCCL_SUCCESS) c->status = status;
    else if (c->queue.empty() && c->status == ACI_NCCL_IN_PROGRESS) c->status = ACI_NCCL_SUCCESS;
  }
}

/* A function of the emulated device, whose module the process has loaded. */
static void *emulated(const char *name) {
  const char *module = getenv("ACCEL_CUDA_MODULE");
  void *h = module != NULL ? dlopen(module, RTLD_NOW | RTLD_NOLOAD) : NULL;
  return h != NULL ? dlsym(h, name) : NULL;
}

static ncclComm *make(const std::string &path, int n, int me) {
  ncclComm *c = new ncclComm();
  c->live = LIVE, c->n = n, c->me = me;
  c->path = path;
  if (open_shared(c) != ACI_NCCL_SUCCESS) return delete c, nullptr;
  c->thread = std::thread(serve, c);
  return c;
}

static int put(ncclComm *c, const Call &k) {
  std::lock_guard<std::mutex> hold(c->lock);
  if (c->status != ACI_NCCL_SUCCESS && c->status != ACI_NCCL_IN_PROGRESS) return c->status;
  c->status = ACI_NCCL_IN_PROGRESS;
  c->queue.push_back(k);
  c->more.notify_one();
  return ACI_NCCL_IN_PROGRESS;
}

/* What the emulated device says of a call on a stream; NULL: nothing is wrong. */
static const char *asked(void *stream) {
  typedef const char *Ask(void *);
  static Ask *const ask = (Ask *)emulated("emulated_library_call");
  return ask != NULL ? ask(stream) : "beside no emulated device";
}

static int wrong(int kind, const char *what) {
  fprintf(stderr, "nccl_twin: %s %s\n", names[kind], what);
  return INVALID_USAGE;
}

static int give(ncclComm *c, Call k, void *stream) {
  if (c == NULL || c->live != LIVE) return INVALID_ARGUMENT;
  if (k.kind != SPLIT && stream == NULL) return wrong(k.kind, "on the default stream");
  if (k.kind != SPLIT && c->stream != NULL && c->stream != stream) return wrong(k.kind, "on another stream than its communicator's");
  k.stream = stream;
  if (depth > 0) return grouped.push_back({c, k}), ACI_NCCL_SUCCESS;
  if (k.kind != SPLIT) {
    typedef int Device();
    static Device *const device = (Device *)emulated("emulated_device");
    const char *bad = asked(stream);
    if (bad == NULL && c->device != device()) bad = "of a communicator of another device"; /* asked: it is the stream's */
    if (bad != NULL) return wrong(k.kind, bad);
    c->stream = stream;
  }
  return put(c, k);
}

/* ---- the calls ---- */
EXPORT const char *ncclGetErrorString(int status) {
  return status == SYSTEM_ERROR ? "unhandled system error" : status == INVALID_USAGE ? "invalid usage" : "invalid argument";
}
EXPORT int ncclGetVersion(int *version) { return *version = wanted("NCCL_TWIN_VERSION") ? wanted("NCCL_TWIN_VERSION") : 22809, 0; }
EXPORT int ncclGetUniqueId(aci_nccl_id *id) {
  static std::atomic<int> made;
  memset(id, 0, sizeof *id); /* holds the file's name alone: the folder, which all ranks know, may have a long path */
  snprintf(id->bytes, sizeof id->bytes, "nccl.%d.%d", (int)getpid(), ++made);
  return 0;
}
EXPORT int ncclCommInitRankConfig(ncclComm **out, int n, aci_nccl_id id, int rank, aci_nccl_config *config) {
  if (n < 1 || n > MOST || rank < 0 || rank >= n || config->magic != ACI_NCCL_CONFIG_MAGIC || config->size != sizeof *config || config->blocking != 0)
    return INVALID_ARGUMENT;
  typedef int Device();
  static Device *const device = (Device *)emulated("emulated_device");
  const char *dir = getenv("ACCEL_TEST_TMP");
  *out = make(std::string(dir != NULL ? dir : "/tmp") + "/" + id.bytes, n, rank);
  if (*out != NULL) (*out)->device = device != NULL ? device() : -1;
  return *out != NULL ? 0 : SYSTEM_ERROR;
}
EXPORT int ncclCommSplit(ncclComm *c, int color, int key, ncclComm **out, aci_nccl_config *config) {
  if (config->magic != ACI_NCCL_CONFIG_MAGIC) return INVALID_ARGUMENT;
  Call k = {};
  k.kind = SPLIT, k.color = color, k.key = key, k.split = out;
  return give(c, k, NULL);
}
EXPORT int ncclCommGetAsyncError(ncclComm *c, int *error) {
  if (c == NULL || c->live != LIVE) return INVALID_ARGUMENT;
  return *error = c->status, 0;
}
static int end(ncclComm *c, bool abort) {
  if (c == NULL || c->live != LIVE) return INVALID_ARGUMENT;
  if (abort) c->aborted = 1;
  for (const auto &k : c->known)
    if (!abort && k.first != NULL) fprintf(stderr, "nccl_twin: a communicator is given back with registered memory\n");
  {
    std::lock_guard<std::mutex> hold(c->lock);
    c->stop = true;
    c->more.notify_one();
  }
  c->thread.join();
  munmap(c->shared, sizeof(Shared));
  unlink(c->path.c_str());
  c->live = 0;
  return delete c, 0;
}
EXPORT int ncclCommFinalize(ncclComm *c) { return c != NULL && c->live == LIVE ? 0 : INVALID_ARGUMENT; }
EXPORT int ncclCommDestroy(ncclComm *c) { return end(c, false); }
EXPORT int ncclCommAbort(ncclComm *c) { return end(c, true); }
EXPORT int ncclGroupStart(void) { return depth++, 0; }
EXPORT int ncclGroupEnd(void) {
  if (depth == 0) return INVALID_USAGE;
  if (--depth > 0) return 0;
  std::vector<std::pair<ncclComm *, Call>> calls;
  calls.swap(grouped);
  int status = 0;
  Call all = {};
  all.kind = MESSAGES;
  ncclComm *c = NULL;
  void *stream = NULL;
  for (auto &x : calls) { /* of a group, as accel makes them: one communicator on one stream */
    if ((c != NULL && c != x.first) || (stream != NULL && stream != x.second.stream)) return wrong(x.second.kind, "of another communicator or stream");
    c = x.first;
    stream = x.second.stream;
    if (x.second.kind == MESSAGES) all.messages.push_back(x.second.messages[0]);
  }
  bool first = true;
  for (auto &x : calls) {
    if (x.second.kind == MESSAGES) continue;
    status = first ? give(c, x.second, stream) : put(c, x.second);
    first = false;
  }
  if (!all.messages.empty()) status = give(c, all, stream);
  return status;
}
EXPORT int ncclAllReduce(const void *s, void *r, size_t n, int type, int op, ncclComm *c, void *stream) {
  return give(c, Call{ALL_REDUCE, type, op, 0, s, r, n, {}, 0, 0, NULL, NULL}, stream);
}
EXPORT int ncclReduce(const void *s, void *r, size_t n, int type, int op, int root, ncclComm *c, void *stream) {
  return give(c, Call{REDUCE, type, op, root, s, r, n, {}, 0, 0, NULL, NULL}, stream);
}
EXPORT int ncclBroadcast(const void *s, void *r, size_t n, int type, int root, ncclComm *c, void *stream) {
  return give(c, Call{BROADCAST, type, 0, root, s, r, n, {}, 0, 0, NULL, NULL}, stream);
}
EXPORT int ncclAllGather(const void *s, void *r, size_t n, int type, ncclComm *c, void *stream) {
  return give(c, Call{ALL_GATHER, type, 0, 0, s, r, n, {}, 0, 0, NULL, NULL}, stream);
}
EXPORT int ncclReduceScatter(const void *s, void *r, size_t n, int type, int op, ncclComm *c, void *stream) {
  return give(c, Call{REDUCE_SCATTER, type, op, 0, s, r, n, {}, 0, 0, NULL, NULL}, stream);
}
EXPORT int ncclMemAlloc(void **p, size_t bytes) {
  typedef int Memory(void **, size_t);
  static Memory *const memory = (Memory *)emulated("emulated_memory");
  const char *refuse = getenv("NCCL_TWIN_MEMORY");
  if (memory == NULL || (refuse != NULL && strcmp(refuse, "no") == 0) || memory(p, bytes) != 0) return SYSTEM_ERROR;
  std::lock_guard<std::mutex> hold(made_lock);
  made.push_back({(const char *)*p, bytes});
  return ACI_NCCL_SUCCESS;
}
EXPORT int ncclMemFree(void *p) {
  typedef int Free(void *);
  static Free *const release = (Free *)emulated("emulated_memory_free");
  {
    std::lock_guard<std::mutex> hold(made_lock);
    size_t i = 0;
    while (i < made.size() && made[i].first != p) i++;
    if (i == made.size()) return fprintf(stderr, "nccl_twin: memory is freed that is not of ncclMemAlloc\n"), INVALID_ARGUMENT;
    made.erase(made.begin() + (long)i);
  }
  return release(p) == 0 ? FINE : INVALID_ARGUMENT;
}
EXPORT int ncclCommRegister(ncclComm *c, void *base, size_t bytes, void **handle) {
  const char *refuse = getenv("NCCL_TWIN_REGISTER");
  if (c == NULL || c->live != LIVE || base == NULL || bytes == 0) return INVALID_ARGUMENT;
  if (refuse != NULL && strcmp(refuse, "no") == 0) return SYSTEM_ERROR;
  if (is_known(c, base)) return fprintf(stderr, "nccl_twin: memory is registered twice\n"), INVALID_USAGE;
  note(c, "register", Call{ALL_REDUCE, 0, 0, 0, NULL, NULL, bytes, {}, 0, 0, NULL, NULL});
  std::lock_guard<std::mutex> hold(c->lock);
  c->known.push_back({(const char *)base, bytes});
  return *handle = (void *)(uintptr_t)c->known.size(), ACI_NCCL_SUCCESS;
}
EXPORT int ncclCommDeregister(ncclComm *c, void *handle) {
  if (c == NULL || c->live != LIVE) return INVALID_ARGUMENT;
  const size_t i = (size_t)(uintptr_t)handle - 1;
  {
    std::lock_guard<std::mutex> hold(c->lock);
    if (i >= c->known.size() || c->known[i].first == NULL) return INVALID_ARGUMENT;
    c->known[i].first = NULL;
  }
  note(c, "deregister", Call{ALL_REDUCE, 0, 0, 0, NULL, NULL, 0, {}, 0, 0, NULL, NULL});
  return ACI_NCCL_SUCCESS;
}
EXPORT int ncclSend(const void *p, size_t n, int type, int peer, ncclComm *c, void *stream) {
  return give(c, Call{MESSAGES, type, 0, 0, NULL, NULL, n, {Message{true, p, NULL, n, type, peer}}, 0, 0, NULL, NULL}, stream);
}
EXPORT int ncclRecv(void *p, size_t n, int type, int peer, ncclComm *c, void *stream) {
  return give(c, Call{MESSAGES, type, 0, 0, NULL, NULL, n, {Message{false, NULL, p, n, type, peer}}, 0, 0, NULL, NULL}, stream);
}
