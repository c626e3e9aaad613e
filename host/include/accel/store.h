/* accel/store.h - the run store: records of runs, in one SQLite file per project folder, which
 * several processes write at once.
 *
 * A run is written by one ac_track (accel/track.h): ac_track_scalar for numbers, ac_run_record for
 * everything else. A thread of its own commits records within a second. They survive kill -9. A
 * power cut may lose the last commits, never the file. Without libsqlite3 every function here fails
 * with UNSUPPORTED and names the missing package.
 *
 * Tables (PRAGMA user_version 1). Any SQLite client may read them while runs write:
 *
 *   runs     id, uid, project, name, status ('running', 'finished', 'failed', 'killed'), started,
 *            heartbeat, ended (seconds since 1970), host, pid, exit_code, message, environment
 *            (JSON: command, directory, git, versions, variables)
 *   config   run, key, value (JSON)
 *   series   id, run, tag, n, finite, first_step, last_step (least and most), last (value), min,
 *            max, first_wall, last_wall
 *   points   series, step, seq (0, 1, ... in the order of logging), wall, value (NULL: not a
 *            number)
 *   buckets  series, level, idx, n, finite, step0, step1, wall0, wall1, min, max, sum: of 8^level
 *            points each, level 1 to 5, from a series' first full bucket on. Charts of many points
 *            are drawn from it
 *   records  id, run, kind ('text', 'image', 'histogram', 'table', 'artifact', 'alert',
 *            'annotation': tag is group, tags, notes or sweep), tag, step, wall, meta (JSON),
 *            data */
#ifndef ACCEL_STORE_H
#define ACCEL_STORE_H
#include "accel/track.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { AC_STORE_VERSION = 1, AC_STORE_LEVELS = 5, AC_STORE_FACTOR = 8 };

/* Texts are copied. NULL is the empty text. */
typedef struct ac_run_info {
  const char *uid; /* of all runs of all projects: [A-Za-z0-9_-], at most 64 */
  const char *project, *name;
  const char *environment; /* JSON */
  /* continues an existing run of this uid. Otherwise the uid must be new */
  bool resume;
  /* records usage of machine and process every ten seconds, as series system/... (cpu_percent,
   * memory_percent, process_cpu_percent, process_memory_mib, disk_free_gib and, for GPUs by NVML,
   * gpu<i>_percent, gpu<i>_memory_mib, gpu<i>_celsius, gpu<i>_watts), steps: seconds since the run
   * began */
  bool system;
  const char *nvml; /* NVML's library, for GPUs: NULL or "auto", "off", or a file */
} ac_run_info;

/* The version of libsqlite3. The message of UNSUPPORTED explains why there is none. */
AC_API ac_status ac_store_library(const char **version, ac_err *e);

/* A run in the store at path, which is made if needed. STATE: the uid is taken. */
AC_API ac_status ac_track_open_run(const char *path, const ac_run_info *info, ac_track **out,
                                   ac_err *e);
/* Records anything but numbers. kind: a kind of records. "config": tag is the key, data is JSON.
 * "end": tag is the status, data the message, step the exit code. meta: JSON or NULL. INVALID:
 * above AC_TRACK_MAX_RECORD. */
AC_API ac_status ac_run_record(ac_track *t, const char *kind, const char *tag, int64_t step,
                               const char *meta, const void *data, size_t n, double wall,
                               ac_err *e);

/* ---- reading ---- */
typedef struct ac_store ac_store; /* of one thread */
typedef struct ac_cursor ac_cursor;

/* NOT_FOUND: the file does not exist (it is not created). write: statements may change the
 * store. */
AC_API ac_status ac_store_open(const char *path, bool write, ac_store **out, ac_err *e);
AC_API void ac_store_close(ac_store *s); /* its cursors are freed before */

typedef enum ac_value_kind {
  AC_VALUE_NULL,
  AC_VALUE_INT,
  AC_VALUE_FLOAT,
  AC_VALUE_TEXT,
  AC_VALUE_BLOB
} ac_value_kind;
typedef struct ac_store_value {
  ac_value_kind kind;
  int64_t i;
  double f;
  const char *p; /* valid until the cursor moves */
  size_t n;
} ac_store_value;

/* One statement of SQL with values for its ?s. */
AC_API ac_status ac_cursor_open(ac_store *s, const char *sql, const ac_store_value *values,
                                int n_values, ac_cursor **out, ac_err *e);
/* The next row. *more is false after the last. */
AC_API ac_status ac_cursor_next(ac_cursor *c, bool *more, ac_err *e);
AC_API int ac_cursor_columns(const ac_cursor *c);
AC_API const char *ac_cursor_name(const ac_cursor *c, int i);
AC_API ac_store_value ac_cursor_value(const ac_cursor *c, int i);
AC_API int64_t ac_cursor_changes(const ac_cursor *c); /* rows that the statement changed */
AC_API void ac_cursor_free(ac_cursor *c);

typedef enum ac_curve_axis { AC_CURVE_STEP, AC_CURVE_WALL } ac_curve_axis;
typedef struct ac_curve_point {
  double x, mean, min, max; /* NaN: none of the values was finite */
} ac_curve_point;
/* A series between two places of an axis in at most max_points points, each of one value or of a
 * bucket of neighbours, in the order of the axis. The nearest outside point on either side is
 * included. *points: malloc'ed. */
AC_API ac_status ac_store_curve(ac_store *s, int64_t series, ac_curve_axis axis, double from,
                                double to, int64_t max_points, ac_curve_point **points, int64_t *n,
                                ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
