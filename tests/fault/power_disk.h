/* A model of a disk that loses its power, and the calls of the C library that it follows. A test includes this once: its program's own
 * open, write, fsync, rename and so on stand before the C library's, and each that changes something below `root` is handed to on_event,
 * which the test defines. apply() carries an event out in the model. make_dir() makes a disk as it may look after a cut: only what was
 * brought to disk is sure to last. Of anything else a file may have its new bytes, its old ones, some of the new or zeros. A folder's
 * entries may have changed in any order, though each rename is one step. */
#ifndef ACCEL_TESTS_POWER_DISK_H
#define ACCEL_TESTS_POWER_DISK_H
#include "host/ckpt/ckpt_case.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

enum { NODES = 2000, ENTRIES = 40, PENDING = 200, FDS = 256, OPENED = 20000, NAME = 128, EXCHANGE = 2 };

typedef enum event_kind { E_OPEN, E_WRITE, E_SIZE, E_FSYNC, E_RENAME, E_MKDIR, E_REMOVE } event_kind;
typedef struct event {
  event_kind kind;
  const char *call;
  int file;             /* number of its open call */
  const char *path, *to; /* to: of a rename */
  bool create, exchange;
  const char *bytes;
  size_t n, at;
} event;
static void on_event(const event *x);

/* ---- the model ---- */

typedef struct entry {
  char name[NAME];
  int node; /* -1: none of that name */
} entry;
typedef struct change {
  entry e[2]; /* both or none of them happen; the second may be empty */
} change;
typedef struct node {
  bool dir;
  char *data, *durable; /* of a file: now, and as last brought to disk */
  size_t n, durable_n;
  entry now[ENTRIES], kept[ENTRIES]; /* of a folder */
  int n_now, n_kept, n_pending;
  change pending[PENDING];
} node;

static node nodes[NODES];
static int n_nodes = 1; /* 0 is the root */
static char root[512];

static void set(entry *v, int *n, const char *name, int to) {
  for (int i = 0; i < *n; i++)
    if (strcmp(v[i].name, name) == 0) {
      if (to >= 0) v[i].node = to;
      else v[i] = v[--*n];
      return;
    }
  if (to < 0) return;
  if (*n == ENTRIES || strlen(name) >= NAME) abort();
  snprintf(v[*n].name, NAME, "%s", name);
  v[(*n)++].node = to;
}

static int get(const entry *v, int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (strcmp(v[i].name, name) == 0) return v[i].node;
  return -1;
}

/* The folder of a path below the root, and its last component; NULL: it is elsewhere. */
static node *folder_of(const char *path, char last[NAME]) {
  const size_t k = strlen(root);
  if (strncmp(path, root, k) != 0 || path[k] != '/') return NULL;
  node *d = &nodes[0];
  const char *s = path + k + 1;
  for (const char *slash; (slash = strchr(s, '/')) != NULL; s = slash + 1) {
    char part[NAME];
    snprintf(part, sizeof part, "%.*s", (int)(slash - s), s);
    const int i = get(d->now, d->n_now, part);
    if (i < 0) return NULL;
    d = &nodes[i];
  }
  snprintf(last, NAME, "%s", s);
  return d;
}
static int node_of(const char *path) {
  char last[NAME];
  if (strcmp(path, root) == 0) return 0;
  const node *d = folder_of(path, last);
  return d == NULL ? -1 : get(d->now, d->n_now, last);
}

static int new_node(bool dir) {
  if (n_nodes == NODES) abort();
  nodes[n_nodes].dir = dir;
  return n_nodes++;
}

/* One change of a folder, of one name or of two at once. */
static void change_dir(node *d, const char *a, int to_a, const char *b, int to_b) {
  if (d->n_pending == PENDING) abort();
  change *c = &d->pending[d->n_pending++];
  *c = (change){0};
  snprintf(c->e[0].name, NAME, "%s", a);
  c->e[0].node = to_a;
  set(d->now, &d->n_now, a, to_a);
  if (b == NULL) return;
  snprintf(c->e[1].name, NAME, "%s", b);
  c->e[1].node = to_b;
  set(d->now, &d->n_now, b, to_b);
}

static void resize(node *f, size_t n) {
  f->data = realloc(f->data, n + 1);
  if (n > f->n) memset(f->data + f->n, 0, n - f->n);
  f->n = n;
}

/* ---- disks after a cut ---- */

static uint64_t seed;

static bool coin(int n) { return ac_test_random(&seed) % (uint64_t)n == 0; }

static void make_file(const char *path, const node *f) {
  const int how = (int)(ac_test_random(&seed) % 5);
  size_t sure = 0; /* bytes that were on disk and did not change */
  while (sure < f->n && sure < f->durable_n && f->data[sure] == f->durable[sure]) sure++;
  const bool same = f->n == f->durable_n && (f->n == 0 || memcmp(f->data, f->durable, f->n) == 0);
  if (same || how == 0) {
    ac_test_write(path, f->durable != NULL ? f->durable : "", f->durable_n);
  } else if (how == 1) {
    ac_test_write(path, f->data != NULL ? f->data : "", f->n);
  } else if (how == 2) { /* its length, not its bytes */
    char *zeros = calloc(1, f->n + 1);
    if (sure > 0) memcpy(zeros, f->data, sure);
    ac_test_write(path, zeros, f->n);
    free(zeros);
  } else { /* some of it */
    ac_test_write(path, f->data != NULL ? f->data : "", f->n > sure ? sure + (size_t)(ac_test_random(&seed) % (f->n - sure)) : f->n);
  }
}

static void make_dir(const char *path, const node *d) {
  entry v[2 * ENTRIES + PENDING];
  int n = d->n_kept;
  memcpy(v, d->kept, sizeof d->kept);
  const int most = (int)(ac_test_random(&seed) % (uint64_t)(d->n_pending + 1));
  const bool in_order = coin(2);
  for (int i = 0; i < d->n_pending; i++) {
    if (in_order ? i >= most : coin(2)) continue;
    for (int k = 0; k < 2; k++)
      if (d->pending[i].e[k].name[0] != 0) {
        if (n == ENTRIES && get(v, n, d->pending[i].e[k].name) < 0) continue;
        set(v, &n, d->pending[i].e[k].name, d->pending[i].e[k].node);
      }
  }
  mkdir(path, 0777);
  for (int i = 0; i < n; i++) {
    char *child = aci_ckpt_join(path, v[i].name);
    if (nodes[v[i].node].dir) make_dir(child, &nodes[v[i].node]);
    else make_file(child, &nodes[v[i].node]);
    free(child);
  }
}

/* ---- events ---- */

static int opened[OPENED]; /* by number of the open call, the node + 1 */
static int n_opened;
static int fds[FDS]; /* number + 1 */
static bool on;
static _Thread_local bool inside; /* the checks' own calls */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Carries an event out. False: it changed nothing. */
static bool apply(const event *x) {
  char last[NAME], to[NAME];
  node *d = x->path != NULL ? folder_of(x->path, last) : NULL;
  if (x->kind == E_OPEN) {
    int i = node_of(x->path);
    const bool made = i < 0 && d != NULL && x->create;
    if (made) change_dir(d, last, i = new_node(false), NULL, 0);
    opened[x->file] = i + 1;
    return made;
  }
  if (x->kind == E_MKDIR || x->kind == E_REMOVE) {
    if (d == NULL) return false;
    change_dir(d, last, x->kind == E_MKDIR ? new_node(true) : -1, NULL, 0);
    return true;
  }
  if (x->kind == E_RENAME) {
    if (d == NULL || folder_of(x->to, to) != d) return false;
    const int a = get(d->now, d->n_now, last), b = get(d->now, d->n_now, to);
    change_dir(d, last, x->exchange ? b : -1, to, a);
    return true;
  }
  if (opened[x->file] == 0) return false;
  node *f = &nodes[opened[x->file] - 1];
  if (x->kind == E_SIZE || x->kind == E_WRITE) {
    const size_t end = x->at + x->n;
    if (end > f->n || (x->kind == E_SIZE && x->bytes != NULL)) resize(f, end);
    if (x->kind == E_WRITE) memcpy(f->data + x->at, x->bytes, x->n);
    return x->kind == E_WRITE;
  }
  if (f->dir || f == &nodes[0]) {
    memcpy(f->kept, f->now, sizeof f->now);
    f->n_kept = f->n_now;
    f->n_pending = 0;
  } else {
    f->durable = realloc(f->durable, f->n + 1);
    if (f->n > 0) memcpy(f->durable, f->data, f->n);
    f->durable_n = f->n;
  }
  return true;
}

static void forget_disk(void) {
  for (int i = 0; i < n_nodes; i++) {
    free(nodes[i].data);
    free(nodes[i].durable);
    nodes[i] = (node){0};
  }
  memset(opened, 0, sizeof opened);
  n_nodes = 1;
  nodes[0].dir = true;
}

/* ---- the calls ---- */

#define REAL(name, type)        \
  static __typeof__(type) real; \
  if (real == NULL) *(void **)(&real) = dlsym(RTLD_NEXT, name)
#define WATCHED (on && !inside)

static bool below_root(const char *path) {
  const size_t n = strlen(root);
  return strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == 0);
}

/* A disk that is full: the call that would take room, or change a folder, number full_from (1 is the first; 0: none), and with full_stays
 * all behind it. */
static int full_from, n_calls;
static bool full_stays;
static bool refused(void) {
  if (!WATCHED || full_from == 0) return false;
  n_calls++;
  if (n_calls < full_from || (n_calls > full_from && !full_stays)) return false;
  errno = ENOSPC;
  return true;
}

int open(const char *path, int flags, ...) {
  REAL("open", int (*)(const char *, int, ...));
  va_list ap;
  va_start(ap, flags);
  const int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
  va_end(ap);
  if (flags & O_CREAT && below_root(path) && refused()) return -1;
  const int fd = real(path, flags, mode);
  if (fd >= 0 && fd < FDS) fds[fd] = 0;
  if (!WATCHED || fd < 0 || fd >= FDS || !below_root(path)) return fd;
  pthread_mutex_lock(&lock);
  if (n_opened == OPENED) abort();
  const int file = n_opened++;
  fds[fd] = file + 1;
  pthread_mutex_unlock(&lock);
  on_event(&(event){.kind = E_OPEN, .call = "open", .file = file, .path = path, .create = (flags & O_CREAT) != 0});
  return fd;
}
int close(int fd) {
  REAL("close", int (*)(int));
  if (fd >= 0 && fd < FDS) fds[fd] = 0;
  return real(fd);
}
static int watched(int fd) { return WATCHED && fd >= 0 && fd < FDS ? fds[fd] - 1 : -1; }

ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
  REAL("pwrite", ssize_t(*)(int, const void *, size_t, off_t));
  const int file = watched(fd);
  if (file >= 0 && refused()) return -1;
  const ssize_t w = real(fd, p, n, at);
  if (file >= 0 && w > 0)
    on_event(&(event){.kind = E_WRITE, .call = "pwrite", .file = file, .bytes = p, .n = (size_t)w, .at = (size_t)at});
  return w;
}
ssize_t write(int fd, const void *p, size_t n) { /* files are written once, from their beginning */
  REAL("write", ssize_t(*)(int, const void *, size_t));
  const int file = watched(fd);
  if (file >= 0 && refused()) return -1;
  const ssize_t w = real(fd, p, n);
  if (file >= 0 && w > 0)
    on_event(&(event){.kind = E_WRITE, .call = "write", .file = file, .bytes = p, .n = (size_t)w, .at = (size_t)(lseek(fd, 0, SEEK_CUR) - w)});
  return w;
}
int fallocate(int fd, int mode, off_t at, off_t n) {
  REAL("fallocate", int (*)(int, int, off_t, off_t));
  const int file = watched(fd);
  if (file >= 0 && refused()) return -1;
  const int rc = real(fd, mode, at, n);
  if (file >= 0 && rc == 0 && !(mode & FALLOC_FL_KEEP_SIZE))
    on_event(&(event){.kind = E_SIZE, .call = "fallocate", .file = file, .n = (size_t)n, .at = (size_t)at});
  return rc;
}
int ftruncate(int fd, off_t n) {
  REAL("ftruncate", int (*)(int, off_t));
  const int rc = real(fd, n), file = watched(fd);
  if (file >= 0 && rc == 0) on_event(&(event){.kind = E_SIZE, .call = "ftruncate", .file = file, .n = (size_t)n, .bytes = ""});
  return rc;
}
int fsync(int fd) {
  REAL("fsync", int (*)(int));
  const int file = watched(fd);
  if (file >= 0 && refused()) return -1;
  const int rc = real(fd);
  if (file >= 0 && rc == 0) on_event(&(event){.kind = E_FSYNC, .call = "fsync", .file = file});
  return rc;
}

static void renamed(const char *from, const char *to, bool exchange) {
  if (below_root(from)) on_event(&(event){.kind = E_RENAME, .call = "rename", .path = from, .to = to, .exchange = exchange});
}
int rename(const char *from, const char *to) {
  REAL("rename", int (*)(const char *, const char *));
  if (below_root(from) && refused()) return -1;
  const int rc = real(from, to);
  if (WATCHED && rc == 0) renamed(from, to, false);
  return rc;
}
static bool no_exchange;
long syscall(long number, ...) {
  REAL("syscall", long (*)(long, ...));
  long a[6];
  va_list ap;
  va_start(ap, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(ap, long);
  va_end(ap);
  if (number == SYS_renameat2 && no_exchange) {
    errno = EINVAL;
    return -1;
  }
  if (number == SYS_renameat2 && below_root((const char *)a[1]) && refused()) return -1;
  const long rc = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (WATCHED && number == SYS_renameat2 && rc == 0) renamed((const char *)a[1], (const char *)a[3], a[4] == EXCHANGE);
  return rc;
}
int mkdir(const char *path, mode_t mode) {
  REAL("mkdir", int (*)(const char *, mode_t));
  if (below_root(path) && refused()) return -1;
  const int rc = real(path, mode);
  if (WATCHED && rc == 0 && below_root(path)) on_event(&(event){.kind = E_MKDIR, .call = "mkdir", .path = path});
  return rc;
}
static void removed(const char *path) {
  if (below_root(path)) on_event(&(event){.kind = E_REMOVE, .call = "unlink", .path = path});
}
int unlink(const char *path) {
  REAL("unlink", int (*)(const char *));
  const int rc = real(path);
  if (WATCHED && rc == 0) removed(path);
  return rc;
}
int rmdir(const char *path) {
  REAL("rmdir", int (*)(const char *));
  const int rc = real(path);
  if (WATCHED && rc == 0) removed(path);
  return rc;
}
int unlinkat(int at, const char *path, int flags) {
  REAL("unlinkat", int (*)(int, const char *, int));
  char link[64], full[1200];
  ssize_t n = -1;
  if (WATCHED) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    n = readlink(link, full, sizeof full - 300);
  }
  const int rc = real(at, path, flags);
  if (n > 0 && rc == 0) {
    snprintf(full + n, 300, "/%s", path);
    removed(full);
  }
  return rc;
}

#endif
