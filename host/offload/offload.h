/* Tiers of memory: tensors whose home is host memory or a file and that are in a device's memory
 * only while they are used. Storages get their bytes through a provider (accel/tensor.h), so that
 * ops, autograd and sharding do not learn of it. Called by bindings/offload/lac_offload.c. Policies are in
 * stdlib/accel/offload.
 *
 *   store.c    aci_store: host memory with a limit of its own, or a file, and the homes of storages
 *              in it
 *   transfer.c bytes between memory and a file: O_DIRECT, io_uring, short reads
 *   map.c      bytes of a read-only file, used in the page cache
 *   queue.c    aci_io_queue: the one I/O thread, and transfers that wait for it
 *   resident.c one storage's bytes in the device's memory: its own block, its home, or a map
 *   window.c   aci_window: which offloaded storages are resident, and which come next
 *   tiered.c   the storages
 *
 * One lock, the queue's, guards windows, homes and transfers. Long operations (copies, system
 * calls) happen in the I/O thread, outside of it. */
#ifndef ACI_OFFLOAD_OFFLOAD_H
#define ACI_OFFLOAD_OFFLOAD_H
#include <pthread.h>
#include <stdatomic.h>

#include "accel/tensor.h"
#include "file/uring.h"

enum { ACI_OFFLOAD_PAGE = 4096 };
/* Less than this goes through the page cache: alignment costs more than it saves. */
#define ACI_OFFLOAD_LARGE ((size_t)64 << 10)

/* ---- store.c ---- */
typedef enum aci_tier { ACI_TIER_HOST, ACI_TIER_FILE, ACI_TIERS } aci_tier;
const char *aci_tier_name(aci_tier t); /* "host", "file" */

typedef struct aci_hole { /* of a file */
  uint64_t at, bytes;
} aci_hole;

typedef struct aci_store {
  _Atomic int32_t ref;
  aci_tier tier;
  bool fixed;        /* a file that is only read: a checkpoint */
  bool phantom;      /* of the meta device: bytes are counted, and are nowhere */
  ac_device *memory; /* host: the CPU, with a pool of its own */
  int fd;            /* file */
  char *path;
  bool direct;    /* the descriptor is past the page cache now */
  bool no_direct; /* the file system does not take that */
  /* map.c, of a read-only file, under the queue's lock: whether the page cache may have it, NULL
   * before the first request (retained: the queue that counts its bytes), whether it cannot be
   * mapped, and the present users of its maps */
  struct aci_io_queue *asked;
  _Atomic bool cached;
  bool no_map;
  int holds;
  uint64_t limit, end, used; /* file: most bytes (0: no limit), after the last home, of all homes */
  aci_hole *hole;
  int n_holes, cap_holes;
  pthread_mutex_t lock; /* of holes, end and used */
  /* work of the I/O thread, under the queue's lock */
  uint64_t bytes[2], calls[2], busy_ns; /* read, written */
  uint64_t mapped;                      /* bytes of maps that were used without being moved */
} aci_store;

/* Memory of the CPU outside the device pools, at most `limit` bytes (0: no limit). */
ac_status aci_store_host(size_t limit, aci_store **out, ac_err *e);
/* A new file. It replaces an existing one. keep: it stays when the store is freed. Otherwise it has
 * no name from the start. IO if it cannot be made. */
ac_status aci_store_create(const char *path, uint64_t limit, bool keep, aci_store **out, ac_err *e);
/* A file that is there, only to be read. */
ac_status aci_store_open(const char *path, aci_store **out, ac_err *e);
/* A tier of the meta device. */
ac_status aci_store_phantom(aci_tier tier, size_t limit, aci_store **out, ac_err *e);
void aci_store_retain(aci_store *s);
void aci_store_release(aci_store *s);  /* NULL is fine */
uint64_t aci_store_used(aci_store *s); /* bytes of all homes */

/* The place of a storage's bytes when they are nowhere else. */
typedef struct aci_home {
  aci_store *store; /* retained */
  ac_block *block;  /* host */
  /* file. A multiple of the page unless the store is fixed, with room up to the next one */
  uint64_t at;
  size_t bytes;
} aci_home;
/* Contents are undefined (host) or zero (file). Room is reserved: OOM and IO come here, not when
 * bytes are written. */
ac_status aci_home_new(aci_store *s, size_t bytes, aci_home *out, ac_err *e);
/* of a fixed one: `bytes` from at */
ac_status aci_home_at(aci_store *s, uint64_t at, size_t bytes, aci_home *out, ac_err *e);
void aci_home_free(aci_home *h);

/* ---- transfer.c ---- */
typedef struct aci_mover { /* of the I/O thread */
  aci_uring *ring;
  bool no_uring, no_direct;
} aci_mover;
void aci_mover_init(aci_mover *m); /* parameters DIRECT_IO and IO_URING */
void aci_mover_fini(aci_mover *m);
/* n bytes at p to or from a file at `at`. slack: the whole pages around [p, p + n) may be touched
 * in memory and, when writing, in the file. On failure the memory of a read is undefined. */
ac_status aci_mover_run(aci_mover *m, aci_store *s, bool write, void *p, size_t n, uint64_t at,
                        bool slack, ac_err *e);

/* ---- map.c ---- */
struct aci_io_queue;
/* With the queue's lock held: whether the bytes of s go through the page cache, which has room for
 * all such files of the queue together. */
bool aci_map_is_cached(struct aci_io_queue *q, aci_store *s);
/* The pages around a home as the page cache has them, copied when they are written. false: that
 * cannot be had. */
bool aci_map_make(const aci_home *h, void **map, size_t *n);
void *aci_map_place(void *map, const aci_home *h); /* of its bytes in the map */
void aci_map_free(void *map, size_t n);
/* Whether all pages of a map are in memory. */
bool aci_map_is_filled(void *map, size_t n);
/* In the I/O thread: makes the pages of a map resident. Its home ends at byte `end` of the file.
 * IO: the pages cannot be loaded this way, and a read will give the reason. UNSUPPORTED: the same
 * for all other pages. */
ac_status aci_map_fill(aci_store *s, void *map, size_t n, uint64_t end, ac_err *e);
/* With the queue's lock held. From hold to drop nobody can cut or write the file. False: that is
 * not possible now, or the file has been cut. */
bool aci_map_hold(aci_store *s, uint64_t end);
void aci_map_drop(aci_store *s);

/* ---- queue.c ---- */
typedef struct aci_transfer {
  struct aci_transfer *next;
  aci_home *home;
  void *p; /* the caller's until done */
  /* whole mapped pages around p, which only must become resident. NULL: bytes are moved */
  void *map;
  size_t map_bytes;
  size_t at, bytes; /* range of the home */
  bool write, slack;
  enum { ACI_NOT_SENT, ACI_SENT, ACI_MOVING, ACI_DONE } state;
  ac_status st;
  ac_err err;
  /* with memory of a device at the other end (copies.c): a write begins when its bytes have come.
   * NULL: they are at p */
  struct aci_lane *lane;
} aci_transfer;

/* Recorder of transfers and waits: profile. */
typedef enum aci_io_event { ACI_IO_READ, ACI_IO_WRITE, ACI_IO_WAIT } aci_io_event;
typedef struct aci_io_watch {
  /* From begin to end, ns of the monotonic clock. Reads and writes come from the I/O thread, waits
   * from the waiting thread. With the queue's lock held: no call into the queue. */
  void (*on_event)(void *user, aci_io_event what, aci_tier tier, uint64_t bytes, int64_t begin,
                   int64_t end);
  void *user;
} aci_io_watch;

typedef struct aci_io_queue {
  _Atomic int32_t ref;
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
  pthread_t thread;
  bool stop;
  aci_transfer *first, **last;
  aci_mover mover;
  struct aci_window *windows; /* all of them, for aci_io_queue_reclaim */
  const aci_io_watch *watch;  /* NULL: nobody records */
  bool no_map;                /* parameter MAP_WEIGHTS */
  uint64_t cached_bytes;      /* of all stores that go through the page cache */
} aci_io_queue;
ac_status aci_io_queue_new(aci_io_queue **out, ac_err *e);
void aci_io_queue_retain(aci_io_queue *q);
void aci_io_queue_release(aci_io_queue *q); /* never from the I/O thread */
/* borrowed until another one, or NULL, is set */
void aci_io_queue_watch(aci_io_queue *q, const aci_io_watch *watch);
/* With the lock held. urgent: before all others that have not begun. */
void aci_io_queue_send(aci_io_queue *q, aci_transfer *t, bool urgent);
void aci_io_queue_hurry(aci_io_queue *q, aci_transfer *t); /* if it has not begun, it is next */
/* until it is ACI_DONE or was never sent. Releases the lock meanwhile */
void aci_io_queue_wait(aci_io_queue *q, aci_transfer *t);
/* true: it had not begun, and is ACI_NOT_SENT again */
bool aci_io_queue_cancel(aci_io_queue *q, aci_transfer *t);

/* ---- window.c ---- */
typedef struct aci_window_stats {
  /* uses that found bytes, that had to ask for them, asked for ahead, given up */
  uint64_t hits, misses, prefetched, evicted;
  uint64_t wait_ns; /* that uses waited */
  size_t resident_bytes, peak_bytes, budget_bytes;
} aci_window_stats;

/* Page-locked memory that a copy on the window's stream still reads or writes. */
typedef struct aci_spent {
  ac_block *block;
  ac_event *after;
} aci_spent;
enum { ACI_SPENT = 16 };

typedef struct aci_tiered aci_tiered;
typedef struct aci_window {
  _Atomic int32_t ref;
  aci_io_queue *queue; /* retained */
  ac_device *device;   /* retained */
  /* of copies from and to page-locked memory. NULL: the device has none, or it is not made so
   * far */
  ac_stream *stream;
  aci_spent spent[ACI_SPENT];
  int n_spent;
  struct aci_window *next; /* of the queue's */
  size_t budget, ahead;
  bool adapts;      /* no budget was given: it follows the pool's free room */
  aci_tiered **all; /* by number. NULL: gone */
  int n_all, cap_all;
  int *trace, n_trace, cap_trace; /* uses of the last pass, by number */
  int *start, *place;       /* uses of each number in trace: place[start[i] .. start[i + 1]] */
  int n_known;              /* numbers that start knows */
  int *now, n_now, cap_now; /* of this one */
  uint64_t passes;          /* traces that ended */
  int pos;                  /* in trace: the next use, if the order repeats. -1: unknown */
  ac_err failed;            /* a write that nobody waited for. code AC_OK: none */
  aci_window_stats stats;
} aci_window;
/* Residency of storages on one device. budget: bytes that may be resident in addition to those in
 * use (0: as many as fit). ahead: bytes to fetch before use (0: chosen automatically). */
ac_status aci_window_new(aci_io_queue *q, ac_device *d, size_t budget, size_t ahead,
                         aci_window **out, ac_err *e);
void aci_window_retain(aci_window *w);
void aci_window_release(aci_window *w);
/* A pass over the model begins: the order of uses since the last call is expected to repeat, and
 * its first storages are fetched. in_order: before the first pass, the order in which storages were
 * made is expected. */
void aci_window_pass(aci_window *w, bool in_order);
/* Evicts every storage that is not in use. Written ones go home first. flush: only writes them. */
ac_status aci_window_empty(aci_window *w, bool flush, ac_err *e);
void aci_window_stats_get(aci_window *w, aci_window_stats *out);
/* The device ran out of memory: all windows evict storages that are not in use. True: something was
 * freed. */
bool aci_io_queue_reclaim(aci_io_queue *q, ac_device *d);

/* With the lock held. */
ac_status aci_window_add(aci_window *w, aci_tiered *t, ac_err *e);
void aci_window_remove(aci_window *w, aci_tiered *t);
/* resident and pinned afterwards */
ac_status aci_window_use(aci_window *w, aci_tiered *t, ac_err *e);
/* not resident afterwards, written home. STATE while it is in use */
ac_status aci_window_out(aci_window *w, aci_tiered *t, ac_err *e);

/* ---- copies.c ---- */
/* A copy between page-locked memory and the device, in parallel with its compute stream. */
typedef struct aci_lane {
  ac_device *device;
  ac_stream *stream;
  void *there;      /* on the device */
  ac_event *before; /* of the compute stream: its memory is free, or its bytes are written */
  ac_event *after;  /* of the copy */
  /* given to the stream, and nobody has waited for it so far: the memory at both ends has to
   * stay */
  bool under_way;
} aci_lane;
/* On the I/O thread, without the lock: sends the bytes that were read to the device. */
ac_status aci_lane_up(aci_lane *x, const void *from, size_t bytes, ac_err *e);
/* With the lock: whether the device's bytes have come. */
ac_status aci_lane_down(aci_lane *x, bool *done, ac_err *e);

/* ---- tiered.c ---- */
struct aci_tiered {
  aci_window *window; /* retained */
  aci_home home;
  int number;
  ac_block *block; /* in the device's memory. NULL: not there */
  /* that is the home itself, or map, which count as memory of the device while they are resident */
  bool in_place;
  /* of the file, whole pages around the bytes. NULL: there is none. It stays when t is out */
  void *map;
  size_t map_bytes;
  bool filled;     /* its pages were in memory when they were last used or looked at */
  uint64_t looked; /* the window's pass in which they were looked at */
  bool no_map;     /* not this time */
  ac_block *stage; /* host memory on the way to a device that is not the CPU */
  aci_lane lane;
  void *ptr, *io; /* the resident bytes, and the place for the I/O thread's reads and writes */
  int pins;
  bool dirty;
  enum { ACI_OUT, ACI_COMING, ACI_IN, ACI_LEAVING } state;
  aci_transfer transfer;
};
/* A storage of w's device with a home in s, or with `bytes` of a fixed file from `at`. */
ac_status aci_tiered_new(aci_window *w, aci_store *s, size_t bytes, ac_storage **out, ac_err *e);
ac_status aci_tiered_open(aci_window *w, aci_store *s, uint64_t at, size_t bytes, ac_storage **out,
                          ac_err *e);
aci_tiered *aci_tiered_of(const ac_storage *s); /* NULL: no storage of this kind */
/* Begins to move bytes [at, at + n) between its home and p, memory of the host, which stay the
 * caller's until aci_io_queue_wait. It is not resident meanwhile. t->home lives as long. */
ac_status aci_tiered_move(aci_tiered *t, bool write, size_t at, size_t n, void *p, aci_transfer *x,
                          ac_err *e);

#endif
