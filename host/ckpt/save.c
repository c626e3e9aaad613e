/* One save of one part, from its creation to its end. The owner's thread adds files and starts it.
 * From then on a thread of the save's own writes and commits, whether or not anybody waits. Called
 * by the bindings. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base_impl.h"
#include "ckpt/ckpt_impl.h"
#include "file/io.h"
#include "tensor/tensor_impl.h"

static ac_status no_memory(ac_err *e) { return AC_FAIL(e, OOM, "no memory for a checkpoint"); }

/* ---- creating ---- */

/* Makes the folders of path one by one, each of which is on disk when this returns. */
static ac_status make_parents(const char *path, ac_err *e) {
  ac_status st = AC_OK;
  char *p = strdup(path);
  if (p == NULL) return no_memory(e);
  for (size_t i = 1; p[i] != 0 && st == AC_OK; i++) {
    if (p[i] != '/') continue;
    p[i] = 0;
    int rc;
    ACI_AGAIN(rc, mkdir(p, 0777));
    const int err = errno; /* access sets its own */
    if (rc == 0) st = aci_sync_folder_of(p, e);
    else if (err != EEXIST && access(p, F_OK) != 0)
      st = aci_io_error(e, p, "cannot make the folder", err);
    p[i] = '/';
  }
  free(p);
  return st;
}

static ac_status refuse_existing(const ac_ckpt_save *s, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  struct stat sb;
  if (s->replace || lstat(s->path, &sb) != 0) return AC_OK;
  return AC_FAIL(e, STATE, "%s: already exists; choose another name or set the option replace",
                 aci_path_shown(s->path, shown));
}

/* Of two saves that begin at once, the one that comes later learns here that the name is taken:
 * each looks after it has made its folder and locked it. */
static ac_status refuse_taken(const ac_ckpt_save *s, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  const char *slash = strrchr(s->path, '/'), *base = slash != NULL ? slash + 1 : s->path;
  bool taken = false;
  if (s->replace) return AC_OK;
  DIR *d = opendir(s->parent);
  if (d == NULL) return aci_io_error(e, s->parent, "cannot read the folder", errno);
  for (struct dirent *x; !taken && (x = readdir(d)) != NULL;) {
    const size_t n = aci_ckpt_base_of(x->d_name, ".tmp-");
    if (n == 0 || n != strlen(base) || strncmp(x->d_name, base, n) != 0) continue;
    char *path = aci_ckpt_join(s->parent, x->d_name);
    taken = path != NULL && strcmp(x->d_name + n + strlen(".tmp-"), s->id) != 0 &&
            aci_owner_look(path, 0) == ACI_OWNER_LIVE;
    free(path);
  }
  closedir(d);
  if (taken)
    return AC_FAIL(e, STATE, "%s: another save is writing it; give this one another name",
                   aci_path_shown(s->path, shown));
  return refuse_existing(s, e); /* the other one may have been committed meanwhile */
}

/* A folder of its own next to the target. Another save's sweep may remove it while it is empty:
 * then try once more. */
static ac_status make_folder(ac_ckpt_save *s, ac_err *e) {
  for (int tries = 0;; tries++) {
    aci_ckpt_new_id(s->id);
    free(s->folder);
    const size_t n = strlen(s->path) + 32;
    if ((s->folder = malloc(n)) == NULL) return no_memory(e);
    snprintf(s->folder, n, "%s.tmp-%s", s->path, s->id);
    int rc;
    ACI_AGAIN(rc, mkdir(s->folder, 0777));
    if (rc != 0) {
      if (errno == EEXIST && tries < 100) continue;
      ac_status st = aci_io_error(e, s->folder, "cannot make the folder", errno);
      free(s->folder);
      s->folder = NULL;
      return st;
    }
    const ac_status st = aci_owner_take(s->folder, s->part, &s->owner_fd, e);
    if (st == AC_OK) return AC_OK;
    aci_ckpt_remove_tree(s->folder, NULL);
    if (st != AC_NOT_FOUND || tries >= 3) return st;
  }
}

static ac_status join_folder(ac_ckpt_save *s, const char *folder, ac_err *e) {
  const char *slash = strrchr(folder, '/'), *name = slash != NULL ? slash + 1 : folder;
  const size_t base = aci_ckpt_base_of(name, ".tmp-");
  if (base == 0)
    return AC_FAIL(e, INVALID, "'%.200s' is not the temporary folder of a save", folder);
  memcpy(s->id, name + strlen(name) - (ACI_CKPT_ID - 1), ACI_CKPT_ID);
  if ((s->folder = strdup(folder)) == NULL) return no_memory(e);
  return aci_owner_take(s->folder, s->part, &s->owner_fd, e);
}

static void drop_file(aci_save_file *f) {
  for (int i = 0; i < f->n_held; i++) {
    ac_tensor_release(f->held[i]);
    free(f->names != NULL ? f->names[i] : NULL);
  }
  aci_st_plan_fini(&f->plan);
  free(f->held);
  free(f->names);
  free(f->copied);
  free(f->bytes);
  free(f->name);
  free(f->path);
  *f = (aci_save_file){0};
}

static void free_all(ac_ckpt_save *s) {
  for (int i = 0; i < s->n; i++) drop_file(&s->file[i]);
  if (s->owner_fd >= 0) close(s->owner_fd);
  aci_json_free(s->state);
  aci_json_free(s->continues);
  free(s->file);
  free(s->path);
  free(s->folder);
  free(s->parent);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->changed);
  free(s);
}

static bool has(const ac_ckpt_options *o, size_t end) { return o->struct_size >= end; }
#define HAS(o, field) has(o, offsetof(ac_ckpt_options, field) + sizeof(o)->field)

/* The run and those that it continues, into the save. */
static ac_status take_run(ac_ckpt_save *s, const ac_ckpt_options *o, ac_err *e) {
  const char *const run = HAS(o, run) && o->run != NULL ? o->run : "", *name = run;
  const int n = HAS(o, continues) ? o->n_continues : 0;
  const char *fault = aci_ckpt_run_fault(run, strlen(run));
  s->after = HAS(o, after) ? o->after : 0;
  if (n > 0) {
    aci_strbuf b = {0};
    aci_json_writer w = {.out = &b};
    aci_json_begin(&w, false);
    for (int i = 0; i < n && fault == NULL; i++) {
      name = o->continues[i];
      fault = aci_ckpt_run_fault(name, strlen(name));
      aci_json_string(&w, name, strlen(name));
    }
    aci_json_end(&w);
    ac_status st = fault != NULL ? AC_OK : aci_json_finish(&w, e);
    if (st == AC_OK && fault == NULL)
      st = b.failed ? no_memory(e) : aci_json_parse(b.s, b.len, NULL, &s->continues, e);
    aci_strbuf_fini(&b);
    AC_TRY(st);
  }
  if (fault != NULL)
    return AC_FAIL(e, INVALID, "'%.200s' cannot be the name of a run: %s", name, fault);
  memcpy(s->run, run, strlen(run) + 1);
  return AC_OK;
}

ac_status ac_ckpt_create(const char *path, const ac_ckpt_options *o, ac_ckpt_save **out,
                         ac_err *e) {
  static const ac_ckpt_options defaults = AC_CKPT_OPTIONS_INIT;
  pthread_condattr_t monotonic;
  size_t n = strlen(path);
  *out = NULL;
  if (o == NULL) o = &defaults;
  while (n > 1 && path[n - 1] == '/') n--;
  if (n == 0 || (n == 1 && path[0] == '/'))
    return AC_FAIL(e, INVALID, "'%s' cannot be a checkpoint's path", path);
  if (o->parts < 1 || o->parts > ACI_CKPT_MAX_PARTS || o->part < 0 || o->part >= o->parts)
    return AC_FAIL(e, INVALID, "part %d of %d parts", o->part, o->parts);
  if ((o->folder == NULL) != (o->part == 0))
    return AC_FAIL(e, INVALID,
                   o->part == 0 ? "part 0 makes the folder itself"
                                : "part %d needs the folder of part 0",
                   o->part);
  ac_ckpt_save *s = calloc(1, sizeof *s);
  if (s == NULL) return no_memory(e);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  s->owner_fd = -1;
  s->part = o->part;
  s->parts = o->parts;
  s->replace = o->replace;
  s->path = strndup(path, n);
  s->parent = strndup(path, n);
  ac_status st = AC_OK;
  if (s->path == NULL || s->parent == NULL) AC_GOTO(fail, st, no_memory(e));
  AC_GOTO(fail, st, take_run(s, o, e));
  char *slash = strrchr(s->parent, '/');
  if (slash != NULL) slash[slash == s->parent] = 0;
  else strcpy(s->parent, "."); /* n >= 1 */
  const char *last = strrchr(s->path, '/');
  last = last != NULL ? last + 1 : s->path;
  if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
    AC_GOTO(fail, st, AC_FAIL(e, INVALID, "'%.200s' cannot be a checkpoint's path", path));
  if (s->part == 0) {
    AC_GOTO(fail, st, make_parents(s->path, e));
    AC_GOTO(fail, st, refuse_existing(s, e));
    AC_GOTO(fail, st, make_folder(s, e));
    st = refuse_taken(s, e);
    if (st != AC_OK) aci_ckpt_remove_tree(s->folder, NULL);
    AC_GOTO(fail, st, st);
  } else {
    AC_GOTO(fail, st, join_folder(s, o->folder, e));
  }
  *out = s;
  return AC_OK;
fail:
  free_all(s);
  return st;
}

const char *ac_ckpt_folder(const ac_ckpt_save *s) { return s->folder; }

/* ---- adding ---- */

/* A new entry of that name, still empty. */
static ac_status add(ac_ckpt_save *s, const char *name, aci_save_file **out, ac_err *e) {
  char shown[ACI_ST_SHOWN];
  const char *fault = aci_ckpt_name_fault(name, strlen(name));
  if (s->started) return AC_FAIL(e, STATE, "%s: the save was started", s->path);
  if (fault != NULL)
    return AC_FAIL(e, INVALID, "'%s' cannot be a file of a checkpoint: %s",
                   aci_st_shown(name, strlen(name), shown), fault);
  for (int i = 0; i < s->n; i++)
    if (strcmp(s->file[i].name, name) == 0)
      return AC_FAIL(e, INVALID, "two files are named '%s'",
                     aci_st_shown(name, strlen(name), shown));
  if (s->n == s->cap) {
    const int cap = s->cap > 0 ? 2 * s->cap : 8;
    aci_save_file *v = realloc(s->file, (size_t)cap * sizeof *v);
    if (v == NULL) return no_memory(e);
    s->file = v;
    s->cap = cap;
  }
  aci_save_file *f = &s->file[s->n];
  *f = (aci_save_file){.name = strdup(name), .path = aci_ckpt_join(s->folder, name)};
  if (f->name == NULL || f->path == NULL) {
    drop_file(f);
    return no_memory(e);
  }
  *out = f;
  return AC_OK;
}

static ac_status check_range(const char *file, const ac_ckpt_item *x, ac_err *e) {
  char name[ACI_ST_SHOWN];
  for (int d = 0; d < x->tensor->ndim; d++) {
    const int64_t at = x->offsets != NULL ? x->offsets[d] : 0;
    if (at < 0 || at > INT64_MAX - x->tensor->shape[d])
      return AC_FAIL(e, INVALID, "%s: tensor '%s': offset %lld in dim %d", file,
                     aci_st_shown(x->name, strlen(x->name), name), (long long)at, d);
    if (x->shape != NULL && at + x->tensor->shape[d] > x->shape[d])
      return AC_FAIL(
          e, INVALID,
          "%s: tensor '%s': its range ends at %lld in dim %d, but the whole tensor has %lld", file,
          aci_st_shown(x->name, strlen(x->name), name), (long long)(at + x->tensor->shape[d]), d,
          (long long)x->shape[d]);
  }
  return AC_OK;
}

/* torch's distributed reader looks for the places of ranges here. */
static ac_status sharding_info(int n, const ac_ckpt_item *items, aci_strbuf *out, ac_err *e) {
  aci_json_writer w = {.out = out};
  aci_json_begin(&w, true);
  for (int i = 0; i < n; i++) {
    aci_json_key(&w, items[i].name, strlen(items[i].name));
    aci_json_begin(&w, true);
    aci_json_key(&w, "saved_offsets", 13);
    aci_json_begin(&w, false);
    for (int d = 0; d < items[i].tensor->ndim; d++)
      aci_json_int(&w, items[i].offsets != NULL ? items[i].offsets[d] : 0);
    aci_json_end(&w);
    aci_json_end(&w);
  }
  aci_json_end(&w);
  AC_TRY(aci_json_finish(&w, e));
  return out->failed ? no_memory(e) : AC_OK;
}

enum { OURS = 3 };
static const char *const our_keys[OURS] = {"format", "DCP_VERSION", "DCP_SHARDING_INFO"};

ac_status ac_ckpt_add_tensors(ac_ckpt_save *s, const char *file, int n, const ac_ckpt_item *items,
                              int n_meta, const char *const *keys, const char *const *values,
                              ac_err *e) {
  aci_save_file *f;
  aci_strbuf info = {0};
  bool ranges = false;
  AC_TRY(add(s, file, &f, e));
  ac_status st = AC_OK;
  const char **k = malloc(((size_t)n_meta + OURS) * sizeof *k),
             **v = malloc(((size_t)n_meta + OURS) * sizeof *v);
  f->tensors = true;
  f->held = calloc((size_t)n + 1, sizeof *f->held);
  f->names = calloc((size_t)n + 1, sizeof *f->names);
  f->copied = calloc((size_t)n + 1, sizeof *f->copied);
  if (k == NULL || v == NULL || f->held == NULL || f->names == NULL || f->copied == NULL)
    AC_GOTO(done, st, no_memory(e));
  for (int i = 0; i < n; i++) {
    AC_GOTO(done, st, check_range(file, &items[i], e));
    if ((f->names[i] = strdup(items[i].name)) == NULL) AC_GOTO(done, st, no_memory(e));
    ac_tensor_retain(f->held[i] = items[i].tensor);
    f->copied[i] = items[i].copied;
    f->n_held = i + 1;
    ranges = ranges || items[i].offsets != NULL;
  }
  int m = 0;
  for (int i = 0; i < n_meta; i++) {
    for (int j = ranges ? 0 : OURS; j < OURS; j++)
      if (strcmp(keys[i], our_keys[j]) == 0 && !(j == 0 && strcmp(values[i], "pt") == 0))
        AC_GOTO(done, st,
                AC_FAIL(e, INVALID, "%s: the metadata key '%s' is reserved", file, keys[i]));
    if (ranges && strcmp(keys[i], our_keys[0]) == 0) continue;
    k[m] = keys[i];
    v[m++] = values[i];
  }
  if (ranges) {
    AC_GOTO(done, st, sharding_info(n, items, &info, e));
    memcpy(k + m, our_keys, sizeof our_keys);
    v[m++] = "pt";
    v[m++] = "1.0";
    v[m++] = info.s;
  }
  AC_GOTO(done, st,
          aci_st_plan_make(&f->plan, f->path, n, (const char *const *)f->names, f->held, m, k, v,
                           ACI_DISK_PAGE, e));
  f->size = aci_st_plan_bytes(&f->plan);
  s->n++;
done:
  if (st != AC_OK) drop_file(f);
  aci_strbuf_fini(&info);
  free(k);
  free(v);
  return st;
}

ac_status ac_ckpt_add_bytes(ac_ckpt_save *s, const char *file, const void *p, size_t n, ac_err *e) {
  aci_save_file *f;
  AC_TRY(add(s, file, &f, e));
  if ((f->bytes = malloc(n + 1)) == NULL) {
    drop_file(f);
    return no_memory(e);
  }
  memcpy(f->bytes, p, n);
  f->n = n;
  f->size = n;
  s->n++;
  return AC_OK;
}

/* ---- its thread ---- */

ac_status aci_ckpt_stopped(const ac_ckpt_save *s, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  if (!atomic_load_explicit(&s->stop, memory_order_relaxed)) return AC_OK;
  return AC_FAIL(e, INTERRUPTED, "%s: the save was given up", aci_path_shown(s->path, shown));
}

static void *run(void *arg) {
  ac_ckpt_save *s = arg;
  ac_err e = {.rank = -1};
  ac_status st = aci_ckpt_write_files(s, &e);
  if (st == AC_OK) st = aci_ckpt_commit(s, &e);
  if (st != AC_OK) aci_ckpt_give_up(s, e.msg);
  if (s->arena != NULL) atomic_store_explicit(&s->arena->busy, false, memory_order_release);
  pthread_mutex_lock(&s->lock);
  s->st = st;
  s->err = e;
  s->over = true;
  atomic_store_explicit(&s->done, true, memory_order_release);
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

ac_status ac_ckpt_start(ac_ckpt_save *s, const char *state, size_t n, ac_ckpt_arena *arena,
                        ac_team *team, ac_err *e) {
  if (s->started) return AC_FAIL(e, STATE, "%s: the save was started before", s->path);
  if (state != NULL && s->state == NULL) {
    AC_TRY(aci_json_parse(state, n, NULL, &s->state, e));
    if (aci_json_root(s->state)->type != ACI_JSON_OBJECT)
      return AC_FAIL(e, INVALID, "%s: the state must be a JSON object", s->path);
  }
  s->all = 0;
  for (int i = 0; i < s->n; i++) s->all += s->file[i].size;
  if (arena != NULL) {
    if (atomic_exchange(&arena->busy, true))
      return AC_FAIL(e, STATE, "%s: another asynchronous save is still being written", s->path);
    const ac_status st = aci_ckpt_snapshot(s, arena, team, e);
    if (st != AC_OK) {
      atomic_store(&arena->busy, false);
      return st;
    }
    s->arena = arena;
    for (int f = 0; f < s->n; f++)
      for (int i = 0; i < s->file[f].n_held; i++)
        if (!s->file[f].copied[i]) {
          ac_tensor_release(s->file[f].held[i]); /* the plan keeps dtype and shape in its head */
          s->file[f].held[i] = NULL;
        }
  }
  sigset_t blocked, old;
  aci_worker_signals(&blocked);
  pthread_sigmask(SIG_SETMASK, &blocked, &old);
  s->started = true;
  const int rc = pthread_create(&s->thread, NULL, run, s);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (rc == 0) return AC_OK;
  /* without a thread it is written here */
  ac_log_write(AC_LOG_WARN, "ckpt", "no thread for a checkpoint (%s): it is written at once",
               strerror(rc));
  s->joined = true;
  run(s);
  return AC_OK;
}

/* ---- looking, waiting, ending ---- */

void ac_ckpt_progress(const ac_ckpt_save *s, uint64_t *written, uint64_t *all) {
  *written = atomic_load_explicit(&s->written, memory_order_relaxed);
  *all = s->all;
}

int64_t ac_ckpt_save_sequence(const ac_ckpt_save *s) {
  return atomic_load_explicit(&s->sequence, memory_order_relaxed);
}

bool ac_ckpt_done(const ac_ckpt_save *s) {
  return atomic_load_explicit(&s->done, memory_order_acquire);
}

ac_status ac_ckpt_wait(ac_ckpt_save *s, int64_t ns, ac_err *e) {
  if (!s->started) return AC_FAIL(e, STATE, "%s: the save was not started", s->path);
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  if (ns >= 0) {
    const int64_t sum = until.tv_nsec + ns % 1000000000;
    until.tv_sec += (time_t)(ns / 1000000000 + sum / 1000000000);
    until.tv_nsec = (long)(sum % 1000000000);
  }
  pthread_mutex_lock(&s->lock);
  int rc = 0;
  while (!s->over && rc == 0)
    rc = ns < 0 ? pthread_cond_wait(&s->changed, &s->lock)
                : pthread_cond_timedwait(&s->changed, &s->lock, &until);
  const bool over = s->over;
  pthread_mutex_unlock(&s->lock);
  if (!over) return AC_FAIL(e, TIMEOUT, "%s: the save is under way", s->path);
  if (!s->joined) pthread_join(s->thread, NULL);
  s->joined = true;
  for (int i = 0; i < s->n; i++) drop_file(&s->file[i]);
  s->n = 0;
  if (s->st != AC_OK && e != NULL) *e = s->err;
  return s->st;
}

void ac_ckpt_abort(ac_ckpt_save *s) { atomic_store_explicit(&s->stop, true, memory_order_relaxed); }

void ac_ckpt_save_free(ac_ckpt_save *s) {
  if (s == NULL) return;
  if (s->started) ac_ckpt_wait(s, -1, NULL);
  else aci_ckpt_give_up(s, "it was not started");
  free_all(s);
}
