/* A database of the run store: how it is opened, its tables, and SQLite's errors as ours. Called by
 * store.c and store_read.c. */
#include "track/store_impl.h"

#ifdef ACCEL_HAVE_SQLITE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

enum { BUSY_MS = 30000, APPLICATION_ID = 0x6163636c /* "accl" */ };

static const char schema[] =
    "CREATE TABLE runs(id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, project TEXT NOT NULL, name TEXT NOT NULL,"
    " status TEXT NOT NULL, started REAL NOT NULL, heartbeat REAL NOT NULL, ended REAL, host TEXT NOT NULL,"
    " pid INTEGER NOT NULL, exit_code INTEGER, message TEXT, environment TEXT NOT NULL);"
    "CREATE TABLE config(run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, key TEXT NOT NULL, value TEXT NOT NULL,"
    " PRIMARY KEY(run, key)) WITHOUT ROWID;"
    "CREATE TABLE series(id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, tag TEXT NOT NULL,"
    " n INTEGER NOT NULL, finite INTEGER NOT NULL, first_step INTEGER, last_step INTEGER, last REAL, min REAL, max REAL,"
    " first_wall REAL, last_wall REAL, UNIQUE(run, tag));"
    "CREATE TABLE points(series INTEGER NOT NULL REFERENCES series(id) ON DELETE CASCADE, step INTEGER NOT NULL,"
    " seq INTEGER NOT NULL, wall REAL NOT NULL, value REAL, PRIMARY KEY(series, step, seq)) WITHOUT ROWID;"
    "CREATE TABLE buckets(series INTEGER NOT NULL REFERENCES series(id) ON DELETE CASCADE, level INTEGER NOT NULL,"
    " idx INTEGER NOT NULL, n INTEGER NOT NULL, finite INTEGER NOT NULL, step0 INTEGER NOT NULL, step1 INTEGER NOT NULL,"
    " wall0 REAL NOT NULL, wall1 REAL NOT NULL, min REAL, max REAL, sum REAL NOT NULL,"
    " PRIMARY KEY(series, level, idx)) WITHOUT ROWID;"
    "CREATE TABLE records(id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,"
    " kind TEXT NOT NULL, tag TEXT NOT NULL, step INTEGER, wall REAL NOT NULL, meta TEXT, data BLOB);"
    "CREATE INDEX records_by_kind ON records(run, kind, tag, step);";

ac_status aci_db_fail(aci_db *d, const char *doing, ac_err *e) {
  const int code = d->db != NULL ? d->lib.extended_errcode(d->db) : SQLITE_NOMEM;
  const char *why = d->db != NULL ? d->lib.errmsg(d->db) : "no memory";
  switch (code & 0xff) {
    case SQLITE_NOMEM: return AC_FAIL(e, OOM, "%s: cannot %s: no memory", d->path, doing);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return AC_FAIL(e, IO, "%s: cannot %s: another process holds it", d->path, doing);
    case SQLITE_FULL: return AC_FAIL(e, IO, "%s: cannot %s: the disk is full", d->path, doing);
    case SQLITE_NOTADB: return AC_FAIL(e, PARSE, "%s is not a run store (no SQLite file)", d->path);
    case SQLITE_CORRUPT: return AC_FAIL(e, PARSE, "%s is damaged: %s", d->path, why);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM: return AC_FAIL(e, IO, "%s: cannot %s: %s", d->path, doing, why);
    default: return AC_FAIL(e, INVALID, "%s: cannot %s: %s", d->path, doing, why);
  }
}

ac_status aci_db_exec(aci_db *d, const char *sql, ac_err *e) {
  return d->lib.exec(d->db, sql, NULL, NULL, NULL) == SQLITE_OK ? AC_OK
                                                                : aci_db_fail(d, "write", e);
}

ac_status aci_db_prepare(aci_db *d, const char *sql, sqlite3_stmt **out, ac_err *e) {
  return d->lib.prepare_v2(d->db, sql, -1, out, NULL) == SQLITE_OK ? AC_OK
                                                                   : aci_db_fail(d, "read", e);
}

ac_status aci_db_run(aci_db *d, sqlite3_stmt *s, ac_err *e) {
  int rc = d->lib.step(s);
  while (rc == SQLITE_ROW) rc = d->lib.step(s);
  const ac_status st = rc == SQLITE_DONE ? AC_OK : aci_db_fail(d, "write", e);
  d->lib.reset(s);
  return st;
}

static int64_t pragma(aci_db *d, const char *sql) {
  sqlite3_stmt *s = NULL;
  int64_t value = -1;
  if (d->lib.prepare_v2(d->db, sql, -1, &s, NULL) == SQLITE_OK && d->lib.step(s) == SQLITE_ROW)
    value = d->lib.column_int64(s, 0);
  d->lib.finalize(s);
  return value;
}

/* The write-ahead log is memory that processes share, which network file systems have not. */
static bool on_network(const char *path) {
  static const unsigned long kinds[] = {
      0x6969 /* NFS */,      0xff534d42 /* CIFS */,   0xfe534d42 /* SMB 2 */,
      0x517b /* SMB */,      0x0bd00bd0 /* Lustre */, 0x47504653 /* GPFS */,
      0x00c36400 /* Ceph */, 0x65735546 /* FUSE */,   0x01021997 /* 9p */};
  struct statfs fs;
  if (statfs(path, &fs) != 0) return false;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    if (((unsigned long)fs.f_type & 0xffffffffUL) == kinds[i]) return true;
  return false;
}

/* Changing the journal mode does not wait for others, whatever the time limit. */
static ac_status set_journal(aci_db *d, ac_err *e) {
  const char *sql =
      on_network(d->path) ? "PRAGMA journal_mode=TRUNCATE" : "PRAGMA journal_mode=WAL";
  for (int i = 0;; i++) {
    if (d->lib.exec(d->db, sql, NULL, NULL, NULL) == SQLITE_OK) return AC_OK;
    const int code = d->lib.extended_errcode(d->db) & 0xff;
    if ((code != SQLITE_BUSY && code != SQLITE_LOCKED) || i == BUSY_MS / 10)
      return aci_db_fail(d, "open", e);
    nanosleep(&(struct timespec){0, 10000000}, NULL);
  }
}

static ac_status make_tables(aci_db *d, ac_err *e) {
  char text[96];
  AC_TRY(set_journal(d, e));
  AC_TRY(aci_db_exec(d, "BEGIN IMMEDIATE", e));
  ac_status st = AC_OK;
  if (pragma(d, "PRAGMA user_version") == 0) { /* else another process was first */
    if (pragma(d, "SELECT count(*) FROM sqlite_master") > 0)
      st = AC_FAIL(e, STATE, "%s is a SQLite file, but not a run store", d->path);
    snprintf(text, sizeof text, "PRAGMA application_id=%d; PRAGMA user_version=%d", APPLICATION_ID,
             AC_STORE_VERSION);
    if (st == AC_OK) st = aci_db_exec(d, schema, e);
    if (st == AC_OK) st = aci_db_exec(d, text, e);
  }
  if (st == AC_OK) st = aci_db_exec(d, "COMMIT", e);
  if (st != AC_OK) d->lib.exec(d->db, "ROLLBACK", NULL, NULL, NULL);
  return st;
}

static ac_status check_version(aci_db *d, ac_err *e) {
  const int64_t version = pragma(d, "PRAGMA user_version");
  if (version < 0) return aci_db_fail(d, "read", e);
  if (version > AC_STORE_VERSION)
    return AC_FAIL(
        e, UNSUPPORTED,
        "%s was written by a newer accel (version %lld of the store; this one reads up to %d)",
        d->path, (long long)version, (int)AC_STORE_VERSION);
  if (version == 0 || pragma(d, "PRAGMA application_id") != APPLICATION_ID)
    return AC_FAIL(e, STATE, "%s is a SQLite file, but not a run store", d->path);
  return AC_OK;
}

static ac_status open_file(aci_db *d, const char *path, bool write, bool create, ac_err *e) {
  if (!create && access(path, F_OK) != 0)
    return AC_FAIL(e, NOT_FOUND, "there is no run store %s", path);
  /* a reader of a write-ahead log needs to write to its index */
  const int flags = SQLITE_OPEN_NOMUTEX |
                    (create ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READWRITE);
  if (d->lib.open_v2(path, &d->db, flags, NULL) != SQLITE_OK) return aci_db_fail(d, "open", e);
  d->lib.busy_timeout(d->db, BUSY_MS);
  /* with a write-ahead log NORMAL waits for the disk at checkpoints alone: a killed process loses
   * nothing */
  AC_TRY(aci_db_exec(
      d,
      "PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON; PRAGMA cache_size=-8192; PRAGMA temp_store=MEMORY",
      e));
  if (create && pragma(d, "PRAGMA user_version") <= 0) AC_TRY(make_tables(d, e));
  AC_TRY(check_version(d, e));
  return write ? AC_OK : aci_db_exec(d, "PRAGMA query_only=ON", e);
}

ac_status aci_db_open(aci_db *d, const char *path, bool write, bool create, ac_err *e) {
  *d = (aci_db){0};
  AC_TRY(aci_sqlite_load(&d->lib, e));
  d->path = strdup(path);
  if (d->path == NULL) return AC_FAIL(e, OOM, "no memory for a path");
  const ac_status st = open_file(d, path, write, create, e);
  if (st != AC_OK) aci_db_close(d);
  return st;
}

void aci_db_close(aci_db *d) {
  if (d->db != NULL) d->lib.close(d->db);
  free(d->path);
  *d = (aci_db){0};
}
#endif
