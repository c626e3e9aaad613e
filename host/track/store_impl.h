/* Declarations shared by the files of the run store.
 *
 *   store_open.c    a database: pragmas, schema, errors of SQLite as ours
 *   store.c         the sink: a run's records into it
 *   store_series.c  series, their points and buckets
 *   store_read.c    statements with results, curves for charts */
#ifndef ACI_TRACK_STORE_IMPL_H
#define ACI_TRACK_STORE_IMPL_H
#include "accel/store.h"
#include "base/library.h"
#include "track/sqlite.h"
#ifdef ACCEL_HAVE_SQLITE

typedef struct aci_db {
  aci_sqlite lib;
  sqlite3 *db;
  char *path;
} aci_db;

/* Opens or makes it. A store of a later version: VERSION. */
ac_status aci_db_open(aci_db *d, const char *path, bool write, bool create, ac_err *e);
void aci_db_close(aci_db *d);
/* The error of the last call: IO if another process holds the store or the disk is full, otherwise
 * INVALID. */
ac_status aci_db_fail(aci_db *d, const char *doing, ac_err *e);
ac_status aci_db_exec(aci_db *d, const char *sql, ac_err *e);
ac_status aci_db_prepare(aci_db *d, const char *sql, sqlite3_stmt **out, ac_err *e);
/* Runs a prepared statement without results, and resets it. */
ac_status aci_db_run(aci_db *d, sqlite3_stmt *s, ac_err *e);

/* ---- store_series.c: the writer's state of the series of its run ---- */
typedef struct aci_bucket {
  int64_t n, finite, step0, step1;
  double wall0, wall1, min, max, sum; /* min, max, sum: of the finite values */
} aci_bucket;

typedef struct aci_series {
  char *tag;
  uint32_t n_tag;
  int64_t id;
  bool dirty;
  double last;
  aci_bucket all;                    /* of every point */
  aci_bucket level[AC_STORE_LEVELS]; /* the bucket that is being filled, of 8^(i + 1) points */
} aci_series;

typedef struct aci_series_set {
  aci_series *list;
  uint32_t n, cap;
  uint32_t *slot; /* open addressing. Index + 1 */
  uint32_t n_slots;
  int64_t run;
  sqlite3_stmt *find, *add, *update, *point, *bucket, *read_bucket, *sum_up;
} aci_series_set;

ac_status aci_series_open(aci_series_set *s, aci_db *d, int64_t run, ac_err *e);
/* Adds a point. After a failed transaction aci_series_forget drops the later state, which is then
 * read again. */
ac_status aci_series_point(aci_series_set *s, aci_db *d, const char *tag, uint32_t n_tag,
                           int64_t step, double wall, double value, ac_err *e);
/* Buckets that are being filled, and sums of series, before a commit. */
ac_status aci_series_flush(aci_series_set *s, aci_db *d, ac_err *e);
void aci_series_forget(aci_series_set *s);
void aci_series_close(aci_series_set *s, aci_db *d);

#endif
#endif
