/* libsqlite3 for the run store: loaded on first use, since few runs need it. Only its header is
 * needed to build. Used by store*.c. */
#ifndef ACI_TRACK_SQLITE_H
#define ACI_TRACK_SQLITE_H
#include "accel/base.h"

#ifdef ACCEL_HAVE_SQLITE
#include <sqlite3.h>

#define ACI_SQLITE_FUNCTIONS(X) \
  X(libversion)                 \
  X(libversion_number)          \
  X(open_v2)                    \
  X(close)                      \
  X(exec)                       \
  X(prepare_v2)                 \
  X(step)                       \
  X(reset)                      \
  X(finalize)                   \
  X(errmsg)                     \
  X(extended_errcode)           \
  X(bind_int64)                 \
  X(bind_double)                \
  X(bind_text)                  \
  X(bind_blob)                  \
  X(bind_null)                  \
  X(bind_parameter_count)       \
  X(column_count)               \
  X(column_name)                \
  X(column_type)                \
  X(column_int64)               \
  X(column_double)              \
  X(column_text)                \
  X(column_blob) X(column_bytes) X(last_insert_rowid) X(changes) X(busy_timeout) X(stmt_readonly)

typedef struct aci_sqlite {
#define X(name) __typeof__(sqlite3_##name) *name;
  ACI_SQLITE_FUNCTIONS(X)
#undef X
} aci_sqlite;

/* UNSUPPORTED: the library is not installed here, or older than 3.24 (2018). */
ac_status aci_sqlite_load(aci_sqlite *l, ac_err *e);
#endif

#endif
