/* Threads that work for a Lua state, each with a Lua state of its own. Declarations shared by
 * lac_worker.c (the owner's side), lac_worker_thread.c (the thread) and lac_worker_queue.c (the
 * messages between them). Scripts use them as num_workers of accel.data.DataLoader.
 *
 * A worker and its owner share a lac_worker and nothing else: two queues of messages under one
 * lock. A message is a value as the codec writes it, with its tensors in a separate list by
 * reference: heads of their own on the same storages, so that no bytes move and no head is ever
 * seen by two threads. Both contexts use the owner's devices, hence one pool and one limit. */
#ifndef LAC_WORKER_H
#define LAC_WORKER_H
#include <pthread.h>

#include "accel/host.h"
#include "bindings/core/lac.h"
#include "ops/core/ctx_impl.h"

typedef struct lac_message {
  struct lac_message *next;
  char *bytes;
  size_t n_bytes, n_tensors;
  ac_tensor *tensor[]; /* owned */
} lac_message;

typedef struct lac_queue {
  lac_message *first, **end;
  size_t n;
} lac_queue;

enum { LAC_WORKER_PATH = 4096 };

typedef struct lac_worker {
  _Atomic int ref; /* the owner's handle, the thread */
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t to_thread, to_owner;
  /* under the lock */
  lac_queue jobs, results;
  size_t most; /* messages in a queue */
  bool ended;
  char *error;  /* the error that ended it. NULL: it ended normally */
  lua_State *L; /* while a script may run in it */
  /* read by the thread between two of its steps */
  _Atomic bool stopping, frozen;
  /* the thread's own */
  lac_message *setup, *current;
  lua_Alloc alloc;
  void *alloc_ud;
  /* how it is opened */
  ac_host_options options;
  int n_devices;
  ac_device *device[ACI_MAX_DEVICES]; /* retained */
  /* of devices, copied from the owner. The thread's context takes them over */
  int64_t *flags[AC_DEV_KINDS];
  char name[16], *module, *path, *cpath, lua_dir[256];
} lac_worker;

/* ---- lac_worker_queue.c ---- */
/* The value at idx as a message. Raises, including for values that cannot be sent. */
lac_message *lac_message_new(lua_State *L, lac_state *S, int idx);
/* Pushes the value. May raise. The message still belongs to the caller. */
void lac_message_push(lua_State *L, lac_state *S, const lac_message *m);
void lac_message_free(lac_message *m); /* NULL is fine */
void lac_queue_init(lac_queue *q);
void lac_queue_add(lac_queue *q, lac_message *m);
lac_message *lac_queue_take(lac_queue *q); /* NULL: empty */
void lac_queue_clear(lac_queue *q);

/* ---- lac_worker_thread.c ---- */
/* Starts the thread, which takes over one of two references. */
ac_status lac_worker_run(lac_worker *w, ac_err *e);
void lac_worker_unref(lac_worker *w);
/* Makes the Lua code of the thread raise at its next instruction. Call it under the lock, on the
 * owner's thread. */
void lac_worker_interrupt(lac_worker *w);

#endif
