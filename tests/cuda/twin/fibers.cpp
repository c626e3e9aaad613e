/* The twin's threads: a block's are fibers on the calling thread that meet in barriers and exchanges. See cuda_runtime.h.
 *
 * A fiber takes one thread of the block after the other until one of them has to wait; then the next fiber goes on with those that have
 * not begun. So a kernel without a barrier stays on one fiber, and no kernel sees another order than a fiber for each thread would give.
 * Fibers stay when a block is done: the next one's threads run on them. Kernels of several host threads take turns (emulated_open). */
#include "cuda_runtime.h"

#include <stdio.h>
#include <ucontext.h>

#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

emulated_place emulated_here;

namespace {
enum { STACK = 256 << 10 };
struct pending_copy {
  void *to;
  const void *from;
  int bytes, zeros;
  unsigned group;
};
/* What the lanes of a warp share while they meet. */
struct warp {
  char slot[2][32][EMULATED_SLOT];
  unsigned lanes = 0, alive = 0, waiting = 0, generation = 0;
};
/* Where a stack goes on. */
#if defined(__x86_64__)
typedef void *spot;
#else
typedef ucontext_t spot;
#endif
struct fiber {
  spot at;
  std::unique_ptr<char[]> stack;
  bool busy = false; /* in the middle of a thread */
  dim3 place;
  unsigned index = 0; /* in the block */
  std::vector<pending_copy> copies;
  unsigned group = 0; /* the copies' open one */
  void *fake = nullptr; /* AddressSanitizer's own stack of this fiber */
};
struct scheduler {
  spot home;
  std::vector<std::unique_ptr<fiber>> fibers;
  std::vector<std::unique_ptr<warp>> warps;
  char *shared = nullptr;
  bool reverse = false;
  fiber *current = nullptr;
  dim3 block;
  unsigned n = 0, next = 0; /* the block's threads; how many have begun */
  unsigned alive = 0, waiting = 0, generation = 0;
  int line = 0;     /* of the barrier that is waited at */
  size_t moves = 0; /* threads that ended, meetings that everybody had come to */
  const std::function<void()> *body = nullptr;
  void *fake = nullptr;
  const void *bottom = nullptr;
  size_t size = 0;
};
scheduler &S = *new scheduler; /* for good: threads may outlive main */

/* ---- from stack to stack ---- */
#if defined(__x86_64__)
/* swapcontext asks the kernel for the signal mask each time: that would be most of what a kernel with barriers takes. What a call keeps lies
 * on the stack that is left, under the address to go on at. */
extern "C" void emulated_go(void **from, void *to) __attribute__((visibility("hidden")));
asm(".text\n.p2align 4\n.hidden emulated_go\n.globl emulated_go\n.type emulated_go, @function\nemulated_go:\n"
    "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
    "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n"
    ".size emulated_go, . - emulated_go\n");
void start(spot *s, char *stack, void (*entry)()) {
  void **top = (void **)(((uintptr_t)stack + STACK) / 16 * 16) - 2; /* aligned as after a call from nowhere */
  top[0] = (void *)entry, top[1] = NULL;
  *s = top - 6;
  memset(*s, 0, 6 * sizeof *top);
}
void go(spot *from, spot *to) { emulated_go(from, *to); }
#else
void start(spot *s, char *stack, void (*entry)()) {
  getcontext(s);
  s->uc_stack.ss_sp = stack;
  s->uc_stack.ss_size = STACK;
  makecontext(s, entry, 0);
}
void go(spot *from, spot *to) { swapcontext(from, to); }
#endif

void leave() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&S.current->fake, S.bottom, S.size);
#endif
  go(&S.current->at, &S.home);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(S.current->fake, &S.bottom, &S.size);
#endif
}

void open_barrier() {
  S.waiting = 0;
  S.generation++;
  S.moves++;
}

void open_warp(warp *w) {
  w->waiting = 0;
  w->generation++;
  S.moves++;
}

bool take_thread(fiber *f) {
  if (S.next == S.n) return false;
  const unsigned i = S.reverse ? S.n - 1 - S.next : S.next;
  S.next++;
  f->busy = true;
  f->index = i;
  f->place = dim3(i % S.block.x, i / S.block.x % S.block.y, i / S.block.x / S.block.y);
  f->copies.clear();
  emulated_here.thread = f->place;
  return true;
}

void end_thread(fiber *f) {
  f->busy = false;
  S.alive--;
  S.moves++;
  if (S.alive > 0 && S.waiting == S.alive) open_barrier(); /* those that wait, wait for the living */
  warp *w = S.warps[f->index / 32].get();
  if (--w->alive > 0 && w->waiting == w->alive) open_warp(w);
}

void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &S.bottom, &S.size);
#endif
  fiber *f = S.current;
  for (;;) {
    while (take_thread(f)) {
      (*S.body)();
      end_thread(f);
    }
    leave();
  }
}

/* Until a thread of the fiber has to wait, or there is none left. */
void resume(fiber *f) {
  S.current = f;
  emulated_here.thread = f->place;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&S.fake, f->stack.get(), STACK);
#endif
  go(&S.home, &f->at);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(S.fake, nullptr, nullptr);
#endif
}

void run_block(unsigned n) {
  while (S.warps.size() < (n + 31) / 32) S.warps.emplace_back(new warp);
  for (unsigned i = 0; i < n; i += 32) {
    warp *w = S.warps[i / 32].get();
    w->lanes = w->alive = n - i < 32 ? n - i : 32;
    w->waiting = w->generation = 0;
  }
  S.n = S.alive = n;
  S.next = S.waiting = S.generation = 0;
  unsigned used = 0;
  while (S.next < n) {
    if (used == S.fibers.size()) {
      S.fibers.emplace_back(new fiber);
      S.fibers.back()->stack.reset(new char[STACK]);
      start(&S.fibers.back()->at, S.fibers.back()->stack.get(), fiber_main);
    }
    resume(S.fibers[used++].get());
  }
  while (S.alive > 0) {
    const size_t before = S.moves;
    for (unsigned k = 0; k < used; k++)
      if (S.fibers[k]->busy) resume(S.fibers[k].get());
    if (S.moves == before) emulated_wrong("threads of a block wait for one another, some in a barrier and some in their warp");
  }
}
} // namespace

void emulated_wrong(const char *what) {
  fprintf(stderr, "the twin of the CUDA device: %s\n", what);
  abort();
}

void emulated_run(dim3 grid, dim3 block, size_t shared, const std::function<void()> &thread) {
  const char *order = getenv("CUDA_TWIN_ORDER");
  const unsigned blocks = grid.x * grid.y * grid.z;
  emulated_open();
  S.reverse = order != NULL && strcmp(order, "reverse") == 0;
  S.body = &thread;
  S.block = block;
  free(S.shared);
  S.shared = shared > 0 ? (char *)aligned_alloc(1024, (shared + 1023) / 1024 * 1024) : nullptr;
  if (shared > 0) memset(S.shared, 0xAB, shared);
  emulated_here.blocks = grid;
  emulated_here.threads = block;
  for (unsigned k = 0; k < blocks; k++) {
    const unsigned b = S.reverse ? blocks - 1 - k : k;
    emulated_here.block = dim3(b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y);
    run_block(block.x * block.y * block.z);
  }
  emulated_close();
}

/* ---- what threads do together ---- */
void emulated_barrier(int line) {
  const unsigned g = S.generation;
  if (S.waiting > 0 && S.line != line) emulated_wrong("threads of a block meet in different barriers");
  S.line = line;
  if (++S.waiting == S.alive) {
    open_barrier();
    return;
  }
  while (S.generation == g) leave();
}

char *emulated_shared() { return S.shared; }

const char (*emulated_exchange(const void *mine, size_t bytes))[EMULATED_SLOT] {
  const unsigned i = S.current->index;
  warp *w = S.warps[i / 32].get();
  const unsigned g = w->generation;
  char(*slots)[EMULATED_SLOT] = w->slot[g & 1];
  if (bytes > EMULATED_SLOT) abort();
  if (w->alive < w->lanes) emulated_wrong("a warp meets, and some of its lanes have ended");
  if (bytes > 0) memcpy(slots[i % 32], mine, bytes);
  if (++w->waiting == w->alive) open_warp(w);
  else
    while (w->generation == g) leave();
  return slots;
}

static void copy_now(const pending_copy &c) {
  memcpy(c.to, c.from, (size_t)c.bytes);
  memset((char *)c.to + c.bytes, 0, (size_t)c.zeros);
}
void emulated_copy(void *to, const void *from, int bytes, int zeros) {
  const pending_copy c = {to, from, bytes, zeros, S.current->group};
  if (S.reverse) copy_now(c);
  else S.current->copies.push_back(c);
}
void emulated_copy_commit() { S.current->group++; }
void emulated_copy_wait(int groups) {
  auto &q = S.current->copies;
  size_t n = 0; /* those of the groups before the last `groups` and the open one, which is not under way yet */
  for (; n < q.size() && q[n].group + (unsigned)groups < S.current->group; n++) copy_now(q[n]);
  q.erase(q.begin(), q.begin() + (std::ptrdiff_t)n);
}
