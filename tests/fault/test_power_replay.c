/* The power goes after every system call of saves, of a replacement and of removals, without a mount: this program's own calls stand before
 * the C library's and keep a model of the disk, in which only what was brought to disk is sure to last. Of anything else a file may have
 * its new bytes, its old ones, some of the new or zeros; a folder's entries may have changed in any order, though each rename is one
 * step. After each call such disks are made, and looked at: what was acknowledged is whole, and nothing is damaged.
 *
 * tier: sampled, memory (one of several moments in a run of every change) */
#include "host/ckpt/ckpt_case.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

enum { NODES = 4000, ENTRIES = 16, PENDING = 64, FDS = 256, ROWS = 40, NAME = 64, DRAWS = 3, EXCHANGE = 2 };

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
static int fds[FDS];    /* node + 1 */
static char root[512];
static bool on;
static _Thread_local bool inside; /* the checks' own calls */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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
static char disk[600];
static ac_device *cpu;
static int acked[8], n_acked; /* steps */
static int moments, disks;

static bool coin(int n) { return ac_test_random(&seed) % (uint64_t)n == 0; }

static void make_file(const char *path, const node *f) {
  const int how = (int)(ac_test_random(&seed) % 5);
  const bool same = f->n == f->durable_n && (f->n == 0 || memcmp(f->data, f->durable, f->n) == 0);
  if (same || how == 0) {
    ac_test_write(path, f->durable != NULL ? f->durable : "", f->durable_n);
  } else if (how == 1) {
    ac_test_write(path, f->data != NULL ? f->data : "", f->n);
  } else if (how == 2) { /* its length, not its bytes */
    char *zeros = calloc(1, f->n + 1);
    ac_test_write(path, zeros, f->n);
    free(zeros);
  } else { /* some of it */
    ac_test_write(path, f->data != NULL ? f->data : "", f->n > 0 ? (size_t)(ac_test_random(&seed) % f->n) : 0);
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

/* The checks run in the save's thread, from which a test cannot be left. */
#define LOST(...) (fprintf(stderr, "ERROR: " __VA_ARGS__), fputc('\n', stderr), fflush(NULL), _exit(1))

static void look(const char *call) {
  char parent[700], path[900];
  ac_ckpt_list l = {0};
  ac_err e;
  bool found[8] = {false};
  snprintf(parent, sizeof parent, "%s/runs", disk);
  if (ac_ckpt_scan(parent, &l, &e) != AC_OK && n_acked > 0) LOST("after %s: %s", call, e.msg);
  for (int i = 0; i < l.n; i++) {
    const ac_ckpt_entry *x = &l.entry[i];
    if (x->status == AC_CKPT_UNFINISHED) continue;
    if (x->status != AC_CKPT_OK) LOST("after %s: %s is %s: %s", call, x->name, ac_ckpt_status_name(x->status), x->reason);
    ac_ckpt *c;
    snprintf(path, sizeof path, "%s", x->path);
    assert_ok(ac_ckpt_open(path, &c, &e), e);
    const bool fresh = strcmp(ac_ckpt_file_at(c, 0)->name, "new") == 0;
    uint64_t done = 0;
    if (ac_ckpt_verify(c, NULL, &done, &e) != AC_OK) LOST("after %s: %s", call, e.msg);
    ac_ckpt_close(c);
    if (!fresh && case_load(cpu, path, (int)x->number, ROWS, &e) != AC_OK) LOST("after %s: %s", call, e.msg);
    for (int k = 0; k < n_acked; k++)
      if (acked[k] == x->number) found[k] = true;
  }
  for (int k = 0; k < n_acked; k++)
    if (!found[k]) LOST("after %s: step %d was acknowledged and is not there", call, acked[k]);
  ac_ckpt_list_free(&l);
}

static void cut(const char *call) {
  ac_err e;
  if (!ac_test_sampled(4)) return;
  inside = true;
  moments++;
  for (int i = 0; i < DRAWS; i++, disks++) {
    assert_ok(aci_ckpt_remove_tree(disk, &e), e);
    make_dir(disk, &nodes[0]);
    look(call);
  }
  inside = false;
}

/* ---- the calls ---- */

#define REAL(name, type)        \
  static __typeof__(type) real; \
  if (real == NULL) *(void **)(&real) = dlsym(RTLD_NEXT, name)
#define WATCHED (on && !inside)

int open(const char *path, int flags, ...) {
  REAL("open", int (*)(const char *, int, ...));
  va_list ap;
  va_start(ap, flags);
  const int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
  va_end(ap);
  const int fd = real(path, flags, mode);
  if (!WATCHED || fd < 0) return fd;
  pthread_mutex_lock(&lock);
  char last[NAME];
  node *d = folder_of(path, last);
  int i = node_of(path);
  bool made = false;
  if (i < 0 && d != NULL && flags & O_CREAT) {
    change_dir(d, last, i = new_node(false), NULL, 0);
    made = true;
  }
  if (fd < FDS) fds[fd] = i + 1;
  pthread_mutex_unlock(&lock);
  if (made) cut("open");
  return fd;
}
int close(int fd) {
  REAL("close", int (*)(int));
  if (WATCHED && fd >= 0 && fd < FDS) fds[fd] = 0;
  return real(fd);
}
static node *watched(int fd) { return WATCHED && fd >= 0 && fd < FDS && fds[fd] > 0 ? &nodes[fds[fd] - 1] : NULL; }

ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
  REAL("pwrite", ssize_t(*)(int, const void *, size_t, off_t));
  const ssize_t w = real(fd, p, n, at);
  node *f = watched(fd);
  if (f == NULL || w <= 0) return w;
  if ((size_t)(at + w) > f->n) resize(f, (size_t)(at + w));
  memcpy(f->data + at, p, (size_t)w);
  cut("pwrite");
  return w;
}
ssize_t write(int fd, const void *p, size_t n) { /* files of the protocol are written once, from their beginning */
  REAL("write", ssize_t(*)(int, const void *, size_t));
  const ssize_t w = real(fd, p, n);
  node *f = watched(fd);
  if (f == NULL || w <= 0) return w;
  const size_t at = (size_t)(lseek(fd, 0, SEEK_CUR) - w);
  if (at + (size_t)w > f->n) resize(f, at + (size_t)w);
  memcpy(f->data + at, p, (size_t)w);
  cut("write");
  return w;
}
int fallocate(int fd, int mode, off_t at, off_t n) {
  REAL("fallocate", int (*)(int, int, off_t, off_t));
  const int rc = real(fd, mode, at, n);
  node *f = watched(fd);
  if (f != NULL && rc == 0 && !(mode & FALLOC_FL_KEEP_SIZE) && (size_t)(at + n) > f->n) resize(f, (size_t)(at + n));
  return rc;
}
int fsync(int fd) {
  REAL("fsync", int (*)(int));
  const int rc = real(fd);
  node *f = watched(fd);
  if (f == NULL || rc != 0) return rc;
  if (f->dir || f == &nodes[0]) {
    memcpy(f->kept, f->now, sizeof f->now);
    f->n_kept = f->n_now;
    f->n_pending = 0;
  } else {
    f->durable = realloc(f->durable, f->n + 1);
    if (f->n > 0) memcpy(f->durable, f->data, f->n);
    f->durable_n = f->n;
  }
  cut("fsync");
  return rc;
}

static void renamed(const char *from, const char *to, bool exchange) {
  char a[NAME], b[NAME];
  node *d = folder_of(from, a), *other = folder_of(to, b);
  if (d == NULL || d != other) return;
  const int x = get(d->now, d->n_now, a), y = get(d->now, d->n_now, b);
  change_dir(d, a, exchange ? y : -1, b, x);
  cut("rename");
}
int rename(const char *from, const char *to) {
  REAL("rename", int (*)(const char *, const char *));
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
  const long rc = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (WATCHED && number == SYS_renameat2 && rc == 0) renamed((const char *)a[1], (const char *)a[3], a[4] == EXCHANGE);
  return rc;
}
int mkdir(const char *path, mode_t mode) {
  REAL("mkdir", int (*)(const char *, mode_t));
  const int rc = real(path, mode);
  char last[NAME];
  node *d = WATCHED && rc == 0 ? folder_of(path, last) : NULL;
  if (d == NULL) return rc;
  change_dir(d, last, new_node(true), NULL, 0);
  cut("mkdir");
  return rc;
}
static void removed(const char *path) {
  char last[NAME];
  node *d = folder_of(path, last);
  if (d == NULL) return;
  change_dir(d, last, -1, NULL, 0);
  cut("unlink");
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

/* ---- the test ---- */

static void save(const char *parent, int step) {
  const case_size z = {ROWS, 0, 1};
  ac_err e;
  assert_ok(case_save(cpu, parent, step, &z, NULL, NULL, NULL, NULL, &e), e);
  acked[n_acked++] = step;
  cut("the acknowledgement");
}

static void replace(const char *parent, int step) {
  char path[512];
  ac_ckpt_options o = AC_CKPT_OPTIONS_INIT;
  ac_ckpt_save *s;
  ac_err e;
  o.replace = true;
  case_path(path, sizeof path, parent, step);
  assert_ok(ac_ckpt_create(path, &o, &s, &e), e);
  assert_ok(ac_ckpt_add_bytes(s, "new", "new", 3, &e), e);
  assert_ok(ac_ckpt_start(s, NULL, 0, NULL, NULL, &e), e);
  assert_ok(ac_ckpt_wait(s, -1, &e), e);
  ac_ckpt_save_free(s);
  cut("the acknowledgement");
}

static void cuts(void **state) {
  ac_err e;
  char parent[600];
  ac_ckpt_list gone;
  seed = case_seed();
  setenv("ACCEL_IO_URING", "0", 1); /* its writes cannot be seen */
  assert_ok(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 28, NULL, &cpu, &e), e);
  char *real_root = case_folder("replay"), *other = case_folder("replay-disk");
  char *full = realpath(real_root, NULL); /* as /proc names it */
  snprintf(root, sizeof root, "%s", full);
  snprintf(disk, sizeof disk, "%s", other);
  snprintf(parent, sizeof parent, "%s/runs", root);
  nodes[0].dir = true;
  on = true;
  for (int step = 1; step <= 3; step++) save(parent, step);
  replace(parent, 3);
  no_exchange = true;
  replace(parent, 3);
  save(parent, 4);
  no_exchange = false;
  /* what is removed is no longer held to be there */
  memmove(acked, acked + 2, sizeof acked - 2 * sizeof acked[0]);
  n_acked -= 2;
  assert_ok(ac_ckpt_prune(parent, 2, &gone, &e), e);
  assert_int_equal(gone.n, 2);
  ac_ckpt_list_free(&gone);
  save(parent, 5);
  on = false;
  printf("%d moments, %d disks looked at\n", moments, disks);
  assert_true(moments > 20);
  ac_device_release(cpu);
  assert_ok(aci_ckpt_remove_tree(real_root, &e), e);
  assert_ok(aci_ckpt_remove_tree(other, &e), e);
  for (int i = 0; i < n_nodes; i++) {
    free(nodes[i].data);
    free(nodes[i].durable);
  }
  free(full);
  free(real_root);
  free(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cuts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
