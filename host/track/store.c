/* Sink: the run store. A run's records become rows of its database, many a transaction. A
 * transaction that fails (the disk is full, another process holds the store) is rolled back and its
 * records are offered again. Called through ac_track_open_run.
 *
 * A record that is not a number travels as kind, 0, tag, 0, meta, 0, data. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "track/store_impl.h"
#include "track/system.h"
#include "track/track_impl.h"

enum {
  BATCH_RECORDS = 20000,
  BATCH_BYTES = 8 << 20,
  BATCH_MS = 50,
  PAUSE_NS = 1000000,
  LOOK_EVERY = 256,
  HEARTBEAT_S = 2,
  SYSTEM_S = 10,
  MAX_UID = 64
};

ac_status ac_run_record(ac_track *t, const char *kind, const char *tag, int64_t step,
                        const char *meta, const void *data, size_t n, double wall, ac_err *e) {
  const char *const texts[] = {kind, tag, meta == NULL ? "" : meta};
  size_t size = n, at = 0;
  if (n > AC_TRACK_MAX_RECORD)
    return AC_FAIL(e, INVALID, "'%s' has %zu bytes; %d is the most", tag, n,
                   (int)AC_TRACK_MAX_RECORD);
  for (int i = 0; i < 3; i++) size += strlen(texts[i]) + 1;
  char *p = malloc(size);
  if (p == NULL) return AC_FAIL(e, OOM, "no memory for '%s'", tag);
  for (int i = 0; i < 3; i++) {
    const size_t k = strlen(texts[i]) + 1;
    memcpy(p + at, texts[i], k);
    at += k;
  }
  if (n > 0) memcpy(p + at, data, n);
  const ac_status st = ac_track_bytes(t, step, p, size, wall, e);
  free(p);
  return st;
}

#ifdef ACCEL_HAVE_SQLITE

typedef struct store {
  aci_db db;
  aci_series_set series;
  sqlite3_stmt *record, *config, *end, *alive;
  char *folder; /* the store's folder */
  char *nvml;
  int64_t run;
  double started, heartbeat;
  bool ended, samples;
  double sampled;
  aci_system system;
} store;

static double now_seconds(void) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static ac_status write_record(store *s, const aci_track_record *r, ac_err *e) {
  const char *field[3], *p = aci_track_data(r), *const last = p + r->n;
  for (int i = 0; i < 3; i++) {
    const char *zero = memchr(p, 0, (size_t)(last - p));
    if (zero == NULL) return AC_OK; /* nobody but ac_run_record makes these */
    field[i] = p;
    p = zero + 1;
  }
  aci_db *d = &s->db;
  const int n = (int)(last - p);
  if (strcmp(field[0], "config") == 0) {
    d->lib.bind_int64(s->config, 1, s->run);
    d->lib.bind_text(s->config, 2, field[1], -1, NULL);
    d->lib.bind_text(s->config, 3, p, n, NULL);
    return aci_db_run(d, s->config, e);
  }
  if (strcmp(field[0], "end") == 0) {
    s->ended = true;
    d->lib.bind_text(s->end, 1, field[1], -1, NULL);
    d->lib.bind_double(s->end, 2, r->wall);
    d->lib.bind_int64(s->end, 3, r->step);
    if (n > 0) d->lib.bind_text(s->end, 4, p, n, NULL);
    else d->lib.bind_null(s->end, 4);
    d->lib.bind_int64(s->end, 5, s->run);
    return aci_db_run(d, s->end, e);
  }
  const bool text = strcmp(field[0], "image") != 0;
  sqlite3_stmt *q = s->record;
  d->lib.bind_int64(q, 1, s->run);
  d->lib.bind_text(q, 2, field[0], -1, NULL);
  d->lib.bind_text(q, 3, field[1], -1, NULL);
  d->lib.bind_int64(q, 4, r->step);
  d->lib.bind_double(q, 5, r->wall);
  if (field[2][0] != 0) d->lib.bind_text(q, 6, field[2], -1, NULL);
  else d->lib.bind_null(q, 6);
  if (text) d->lib.bind_text(q, 7, p, n, NULL);
  else d->lib.bind_blob(q, 7, p, n, NULL);
  return aci_db_run(d, q, e);
}

static ac_status show_life(store *s, ac_err *e) {
  s->heartbeat = now_seconds();
  s->db.lib.bind_double(s->alive, 1, s->heartbeat);
  s->db.lib.bind_int64(s->alive, 2, s->run);
  return aci_db_run(&s->db, s->alive, e);
}

/* The end of a transaction in which st happened. */
static ac_status finish_batch(store *s, ac_status st, ac_err *e) {
  if (st == AC_OK) st = aci_series_flush(&s->series, &s->db, e);
  if (st == AC_OK) st = show_life(s, e);
  if (st == AC_OK) st = aci_db_exec(&s->db, "COMMIT", e);
  if (st == AC_OK) return AC_OK;
  s->db.lib.exec(s->db.db, "ROLLBACK", NULL, NULL, NULL);
  aci_series_forget(&s->series);
  return st;
}

/* One transaction of the first records at p. *bytes: their length. */
static ac_status write_batch(store *s, const char *p, size_t n, size_t *bytes, ac_err *e) {
  size_t at = 0;
  AC_TRY(aci_db_exec(&s->db, "BEGIN IMMEDIATE", e));
  ac_status st = AC_OK;
  const double until = now_seconds() + 1e-3 * BATCH_MS; /* others wait meanwhile */
  for (int i = 0; st == AC_OK && at < n && i < BATCH_RECORDS && at < BATCH_BYTES; i++) {
    if (i % LOOK_EVERY == LOOK_EVERY - 1 && now_seconds() > until) break;
    const aci_track_record *r = (const void *)(p + at);
    st = r->kind == ACI_TRACK_SCALAR ? aci_series_point(&s->series, &s->db, aci_track_data(r), r->n,
                                                        r->step, r->wall, r->value, e)
                                     : write_record(s, r, e);
    at += aci_track_size(r->n);
  }
  *bytes = at;
  return finish_batch(s, st, e);
}

static ac_status write_store(void *self, const char *p, size_t n, size_t *taken, ac_err *e) {
  for (*taken = 0; *taken < n;) {
    size_t bytes = 0;
    /* those who wait look again after some milliseconds: without a pause they would hardly find the
     * store free */
    if (*taken > 0) nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
    AC_TRY(write_batch(self, p + *taken, n - *taken, &bytes, e));
    *taken += bytes;
  }
  return AC_OK;
}

/* Usage of the machine, as points of series whose steps are seconds since the run began. */
static ac_status sample_system(store *s, double now, ac_err *e) {
  aci_system_value values[ACI_SYSTEM_VALUES];
  s->sampled = now;
  const int n = aci_system_sample(&s->system, now, s->folder, values);
  AC_TRY(aci_db_exec(&s->db, "BEGIN IMMEDIATE", e));
  ac_status st = AC_OK;
  for (int i = 0; st == AC_OK && i < n; i++)
    st = aci_series_point(&s->series, &s->db, values[i].tag, (uint32_t)strlen(values[i].tag),
                          (int64_t)(now - s->started), now, values[i].value, e);
  return finish_batch(s, st, e);
}

/* A failure here loses nothing: the next attempt to write reports the reason. */
static void tick_store(void *self) {
  store *s = self;
  const double now = now_seconds();
  ac_err e;
  if (s->ended) return;
  if (s->samples && now - s->sampled >= SYSTEM_S) sample_system(s, now, &e);
  if (now - s->heartbeat >= HEARTBEAT_S) show_life(s, &e);
}

/* A run that nobody ended. */
static void exit_store(void *self, int status) {
  store *s = self;
  sqlite3_stmt *q = s->end;
  ac_err e;
  if (s->ended) return;
  s->db.lib.bind_text(q, 1, status > 0 ? "failed" : "finished", -1, NULL);
  s->db.lib.bind_double(q, 2, now_seconds());
  s->db.lib.bind_int64(q, 3, status);
  s->db.lib.bind_null(q, 4);
  s->db.lib.bind_int64(q, 5, s->run);
  aci_db_run(&s->db, q, &e);
}

static void close_store(void *self) {
  store *s = self;
  sqlite3_stmt *const all[] = {s->record, s->config, s->end, s->alive};
  if (s->db.db != NULL) {
    aci_series_close(&s->series, &s->db);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) s->db.lib.finalize(all[i]);
  }
  aci_db_close(&s->db);
  aci_system_close(&s->system);
  free(s->nvml);
  free(s->folder);
  free(s);
}

static ac_status check_uid(const char *uid, ac_err *e) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  const size_t n = uid == NULL ? 0 : strlen(uid);
  if (n == 0 || n > MAX_UID || strspn(uid, allowed) != n)
    return AC_FAIL(e, INVALID,
                   "the uid of a run is 1 to %d of the characters A-Z a-z 0-9 _ -, got '%.80s'",
                   (int)MAX_UID, uid == NULL ? "" : uid);
  return AC_OK;
}

/* The run of this uid, 0: none, and its start. */
static int64_t run_of(store *s, const char *uid) {
  sqlite3_stmt *q = NULL;
  ac_err e;
  int64_t id = 0;
  if (aci_db_prepare(&s->db, "SELECT id,started FROM runs WHERE uid=?", &q, &e) != AC_OK) return 0;
  s->db.lib.bind_text(q, 1, uid, -1, NULL);
  if (s->db.lib.step(q) == SQLITE_ROW) {
    id = s->db.lib.column_int64(q, 0);
    s->started = s->db.lib.column_double(q, 1);
  }
  s->db.lib.finalize(q);
  return id;
}

/* The row of the run, within a transaction. */
static ac_status begin_run(store *s, const ac_run_info *info, ac_err *e) {
  static const char go_on[] =
      "UPDATE runs SET status='running',heartbeat=?1,ended=NULL,exit_code=NULL,message=NULL,host=?2,pid=?3,"
      "environment=?4 WHERE uid=?5";
  static const char begin[] =
      "INSERT INTO runs(status,started,heartbeat,host,pid,environment,uid,project,name)"
      " VALUES('running',?1,?1,?2,?3,?4,?5,?6,?7)";
  aci_db *d = &s->db;
  char host[256] = "localhost";
  sqlite3_stmt *q = NULL;
  s->run = run_of(s, info->uid);
  if (s->run != 0 && !info->resume)
    return AC_FAIL(e, STATE, "%s has a run '%s' already", d->path, info->uid);
  gethostname(host, sizeof host - 1);
  AC_TRY(aci_db_prepare(d, s->run != 0 ? go_on : begin, &q, e));
  const char *const texts[] = {info->environment, info->uid, info->project, info->name};
  s->heartbeat = now_seconds();
  if (s->run == 0) s->started = s->heartbeat;
  d->lib.bind_double(q, 1, s->heartbeat);
  d->lib.bind_text(q, 2, host, -1, NULL);
  d->lib.bind_int64(q, 3, getpid());
  for (int i = 0; i < (s->run != 0 ? 2 : 4); i++)
    d->lib.bind_text(q, 4 + i, texts[i] == NULL ? "" : texts[i], -1, NULL);
  const ac_status st = aci_db_run(d, q, e);
  d->lib.finalize(q);
  if (st == AC_OK && s->run == 0) s->run = d->lib.last_insert_rowid(d->db);
  return st;
}

static ac_status open_run(store *s, const char *path, const ac_run_info *info, ac_err *e) {
  AC_TRY(check_uid(info->uid, e));
  const char *slash = strrchr(path, '/');
  s->folder =
      slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
  if (s->folder == NULL) return AC_FAIL(e, OOM, "no memory for a path");
  s->samples = info->system;
  if (info->nvml != NULL && (s->nvml = strdup(info->nvml)) == NULL)
    return AC_FAIL(e, OOM, "no memory for a path");
  s->system.gpus.named = s->nvml;
  AC_TRY(aci_db_open(&s->db, path, true, true, e));
  AC_TRY(aci_db_exec(&s->db, "BEGIN IMMEDIATE", e));
  ac_status st = begin_run(s, info, e);
  if (st == AC_OK) st = aci_db_exec(&s->db, "COMMIT", e);
  if (st != AC_OK) {
    s->db.lib.exec(s->db.db, "ROLLBACK", NULL, NULL, NULL);
    return st;
  }
  AC_TRY(aci_series_open(&s->series, &s->db, s->run, e));
  AC_TRY(aci_db_prepare(
      &s->db, "INSERT INTO records(run,kind,tag,step,wall,meta,data) VALUES(?,?,?,?,?,?,?)",
      &s->record, e));
  AC_TRY(aci_db_prepare(&s->db, "INSERT OR REPLACE INTO config(run,key,value) VALUES(?,?,?)",
                        &s->config, e));
  AC_TRY(aci_db_prepare(&s->db, "UPDATE runs SET status=?,ended=?,exit_code=?,message=? WHERE id=?",
                        &s->end, e));
  return aci_db_prepare(&s->db, "UPDATE runs SET heartbeat=? WHERE id=?", &s->alive, e);
}

ac_status ac_track_open_run(const char *path, const ac_run_info *info, ac_track **out, ac_err *e) {
  static const aci_track_sink sink = {true, write_store, close_store, tick_store, exit_store};
  store *s = calloc(1, sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for a run store");
  const ac_status st = open_run(s, path, info, e);
  if (st != AC_OK) {
    close_store(s);
    return st;
  }
  return aci_track_new(&sink, s, strdup(path), out, e);
}

#else

ac_status ac_track_open_run(const char *path, const ac_run_info *info, ac_track **out, ac_err *e) {
  (void)path, (void)info, (void)out;
  return aci_library_absent("sqlite", e);
}
#endif
