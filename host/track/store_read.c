/* Reading the run store: statements with results, and curves for charts. Called by the bindings
 * (lac_store.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "track/store_impl.h"

#ifdef ACCEL_HAVE_SQLITE

struct ac_store {
  aci_db db;
};
struct ac_cursor {
  ac_store *s;
  sqlite3_stmt *q;
};

ac_status ac_store_library(const char **version, ac_err *e) {
  aci_sqlite l;
  AC_TRY(aci_sqlite_load(&l, e));
  *version = l.libversion();
  return AC_OK;
}

ac_status ac_store_open(const char *path, bool write, ac_store **out, ac_err *e) {
  ac_store *s = calloc(1, sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for a run store");
  const ac_status st = aci_db_open(&s->db, path, write, false, e);
  if (st != AC_OK) {
    free(s);
    return st;
  }
  *out = s;
  return AC_OK;
}

void ac_store_close(ac_store *s) {
  if (s == NULL) return;
  aci_db_close(&s->db);
  free(s);
}

static ac_status bind(ac_cursor *c, const ac_store_value *values, int n, ac_err *e) {
  const aci_sqlite *l = &c->s->db.lib;
  if (l->bind_parameter_count(c->q) != n)
    return AC_FAIL(e, INVALID, "the statement has %d '?', but %d values came",
                   l->bind_parameter_count(c->q), n);
  for (int i = 0; i < n; i++) {
    const ac_store_value *v = &values[i];
    int rc = SQLITE_OK;
    switch (v->kind) {
      case AC_VALUE_NULL: rc = l->bind_null(c->q, i + 1); break;
      case AC_VALUE_INT: rc = l->bind_int64(c->q, i + 1, v->i); break;
      case AC_VALUE_FLOAT: rc = l->bind_double(c->q, i + 1, v->f); break;
      case AC_VALUE_TEXT: rc = l->bind_text(c->q, i + 1, v->p, (int)v->n, SQLITE_TRANSIENT); break;
      case AC_VALUE_BLOB: rc = l->bind_blob(c->q, i + 1, v->p, (int)v->n, SQLITE_TRANSIENT); break;
    }
    if (rc != SQLITE_OK) return aci_db_fail(&c->s->db, "read", e);
  }
  return AC_OK;
}

ac_status ac_cursor_open(ac_store *s, const char *sql, const ac_store_value *values, int n_values,
                         ac_cursor **out, ac_err *e) {
  ac_cursor *c = calloc(1, sizeof *c);
  if (c == NULL) return AC_FAIL(e, OOM, "no memory for a statement");
  c->s = s;
  ac_status st = aci_db_prepare(&s->db, sql, &c->q, e);
  if (st == AC_OK && c->q == NULL) st = AC_FAIL(e, INVALID, "the statement is empty");
  if (st == AC_OK) st = bind(c, values, n_values, e);
  if (st != AC_OK) {
    ac_cursor_free(c);
    return st;
  }
  *out = c;
  return AC_OK;
}

ac_status ac_cursor_next(ac_cursor *c, bool *more, ac_err *e) {
  const int rc = c->s->db.lib.step(c->q);
  *more = rc == SQLITE_ROW;
  return rc == SQLITE_ROW || rc == SQLITE_DONE ? AC_OK : aci_db_fail(&c->s->db, "read", e);
}

int ac_cursor_columns(const ac_cursor *c) { return c->s->db.lib.column_count(c->q); }
const char *ac_cursor_name(const ac_cursor *c, int i) { return c->s->db.lib.column_name(c->q, i); }

int64_t ac_cursor_changes(const ac_cursor *c) {
  const aci_sqlite *l = &c->s->db.lib;
  return l->stmt_readonly(c->q) ? 0 : l->changes(c->s->db.db);
}

ac_store_value ac_cursor_value(const ac_cursor *c, int i) {
  const aci_sqlite *l = &c->s->db.lib;
  switch (l->column_type(c->q, i)) {
    case SQLITE_INTEGER:
      return (ac_store_value){AC_VALUE_INT, l->column_int64(c->q, i), 0, NULL, 0};
    case SQLITE_FLOAT:
      return (ac_store_value){AC_VALUE_FLOAT, 0, l->column_double(c->q, i), NULL, 0};
    case SQLITE_TEXT: {
      const char *p = (const char *)l->column_text(c->q, i);
      return (ac_store_value){AC_VALUE_TEXT, 0, 0, p, (size_t)l->column_bytes(c->q, i)};
    }
    case SQLITE_BLOB: {
      const char *p = l->column_blob(c->q, i);
      return (ac_store_value){AC_VALUE_BLOB, 0, 0, p, (size_t)l->column_bytes(c->q, i)};
    }
    default: return (ac_store_value){AC_VALUE_NULL, 0, 0, NULL, 0};
  }
}

void ac_cursor_free(ac_cursor *c) {
  if (c == NULL) return;
  c->s->db.lib.finalize(c->q);
  free(c);
}

/* ---- curves ---- */

typedef struct item { /* a point or a bucket */
  double x, sum, min, max;
  int64_t finite;
} item;
typedef struct items {
  item *p;
  int64_t n, cap;
} items;

/* Rows x, value, or x, sum, min, max, finite of a statement. */
static ac_status collect(ac_store *s, const char *sql, const ac_store_value *values, int n_values,
                         items *to, ac_err *e) {
  ac_cursor *c = NULL;
  bool more = false;
  ac_status st = ac_cursor_open(s, sql, values, n_values, &c, e);
  const aci_sqlite *l = &s->db.lib;
  const bool buckets = st == AC_OK && ac_cursor_columns(c) > 2;
  while (st == AC_OK && (st = ac_cursor_next(c, &more, e)) == AC_OK && more) {
    if (to->n == to->cap) {
      const int64_t cap = to->cap == 0 ? 256 : 2 * to->cap;
      item *p = realloc(to->p, (size_t)cap * sizeof *p);
      if (p == NULL) {
        st = AC_FAIL(e, OOM, "no memory for a curve");
        break;
      }
      to->p = p;
      to->cap = cap;
    }
    const double x = l->column_double(c->q, 0), sum = l->column_double(c->q, 1);
    if (buckets) {
      to->p[to->n++] = (item){x, sum, l->column_double(c->q, 2), l->column_double(c->q, 3),
                              l->column_int64(c->q, 4)};
    } else { /* values that are not finite count as none. NaN is NULL */
      const bool finite = l->column_type(c->q, 1) != SQLITE_NULL && isfinite(sum);
      to->p[to->n++] = (item){x, sum, sum, sum, finite};
    }
  }
  ac_cursor_free(c);
  return st;
}

static ac_status numbers(ac_store *s, const char *sql, const ac_store_value *values, int n_values,
                         int64_t *to, int n, bool *found, ac_err *e) {
  ac_cursor *c = NULL;
  AC_TRY(ac_cursor_open(s, sql, values, n_values, &c, e));
  const ac_status st = ac_cursor_next(c, found, e);
  if (st == AC_OK && *found && s->db.lib.column_type(c->q, 0) == SQLITE_NULL) *found = false;
  for (int i = 0; st == AC_OK && *found && i < n; i++) to[i] = s->db.lib.column_int64(c->q, i);
  ac_cursor_free(c);
  return st;
}

#define INT(v) ((ac_store_value){AC_VALUE_INT, (v), 0, NULL, 0})
#define FLOAT(v) ((ac_store_value){AC_VALUE_FLOAT, 0, (v), NULL, 0})

#define POINT(x) "SELECT " x ",value FROM points WHERE series=?1 "

/* Which part of a series lies between two places of an axis. */
typedef struct part {
  ac_store *s;
  int64_t series;
  ac_curve_axis axis;
  double from, to;
  int level;      /* of buckets. 0: points */
  bool has_range; /* level 1 or more: */
  /* of the buckets of `level` (of level 1, if points are wanted) that touch it: the first, the
   * last */
  int64_t idx[2];
} part;

static ac_status read_points(const part *p, items *list, ac_err *e) {
  const ac_store_value values[] = {INT(p->series), FLOAT(p->from), FLOAT(p->to)};
  if (p->axis == AC_CURVE_STEP) {
    const ac_store_value after[] = {INT(p->series), FLOAT(p->to)};
    AC_TRY(collect(p->s, POINT("step") "AND step<?2 ORDER BY step DESC,seq DESC LIMIT 1", values, 2,
                   list, e));
    AC_TRY(collect(p->s, POINT("step") "AND step BETWEEN ?2 AND ?3 ORDER BY step,seq", values, 3,
                   list, e));
    return collect(p->s, POINT("step") "AND step>?2 ORDER BY step,seq LIMIT 1", after, 2, list, e);
  }
  /* points lie by step: buckets tell which steps these times have */
  int64_t step[2] = {INT64_MIN, INT64_MAX};
  bool found = false;
  const ac_store_value of[] = {INT(p->series), INT(p->idx[0]), INT(p->idx[1])};
  if (p->has_range)
    AC_TRY(numbers(
        p->s,
        "SELECT min(step0),max(step1) FROM buckets WHERE series=?1 AND level=1 AND idx BETWEEN ?2 AND ?3",
        of, 3, step, 2, &found, e));
  const ac_store_value near[] = {INT(p->series), FLOAT(p->from), FLOAT(p->to),
                                 INT(found ? step[0] : INT64_MIN),
                                 INT(found ? step[1] : INT64_MAX)};
  return collect(
      p->s, POINT("wall") "AND wall BETWEEN ?2 AND ?3 AND step BETWEEN ?4 AND ?5 ORDER BY wall,seq",
      near, 5, list, e);
}

static ac_status read_buckets(const part *p, items *list, ac_err *e) {
  const ac_store_value between[] = {INT(p->series), INT(p->level), INT(p->idx[0] - 1),
                                    INT(p->idx[1] + 1)};
  return collect(
      p->s,
      p->axis == AC_CURVE_STEP
          ? "SELECT (step0+step1)/2.0,sum,min,max,finite FROM buckets WHERE series=?1 AND level=?2"
            " AND idx BETWEEN ?3 AND ?4 ORDER BY idx"
          : "SELECT (wall0+wall1)/2,sum,min,max,finite FROM buckets WHERE series=?1 AND level=?2"
            " AND idx BETWEEN ?3 AND ?4 ORDER BY idx",
      between, 4, list, e);
}

/* From the coarsest level that has buckets down to the one of which not more than `most` touch the
 * part, and no finer one. */
static ac_status choose(part *p, int64_t most, ac_err *e) {
  int64_t all = 0, width = AC_STORE_FACTOR;
  bool found = false;
  const ac_store_value one[] = {INT(p->series)};
  AC_TRY(numbers(p->s, "SELECT n FROM series WHERE id=?", one, 1, &all, 1, &found, e));
  if (!found || all <= most || all < width) return AC_OK; /* all of its points */
  for (p->level = 1; p->level < AC_STORE_LEVELS && width * AC_STORE_FACTOR <= all; p->level++)
    width *= AC_STORE_FACTOR;
  p->idx[0] = 0;
  p->idx[1] = INT64_MAX / AC_STORE_FACTOR - 1;
  for (;; p->level--) {
    const ac_store_value values[] = {INT(p->series), INT(p->level),  FLOAT(p->from),
                                     FLOAT(p->to),   INT(p->idx[0]), INT(p->idx[1])};
    AC_TRY(numbers(
        p->s,
        p->axis == AC_CURVE_STEP
            ? "SELECT min(idx),max(idx) FROM buckets WHERE series=?1 AND level=?2 AND step1>=?3 AND step0<=?4"
              " AND idx BETWEEN ?5 AND ?6"
            : "SELECT min(idx),max(idx) FROM buckets WHERE series=?1 AND level=?2 AND wall1>=?3 AND wall0<=?4"
              " AND idx BETWEEN ?5 AND ?6",
        values, 6, p->idx, 2, &found, e));
    if (!found) p->level = 0; /* between two buckets: take the neighbouring points */
    p->has_range = found;
    if (!found || (p->idx[1] - p->idx[0] + 1) * AC_STORE_FACTOR > most) return AC_OK;
    if (p->level == 1) {
      p->level = 0;
      return AC_OK;
    }
    p->idx[0] *= AC_STORE_FACTOR;
    p->idx[1] = p->idx[1] * AC_STORE_FACTOR + AC_STORE_FACTOR - 1;
  }
}

static int by_x(const void *a, const void *b) {
  const double x = ((const item *)a)->x, y = ((const item *)b)->x;
  return (x > y) - (x < y);
}

/* Neighbours of a list by groups of k. */
static void merge(items *list, int64_t k) {
  int64_t n = 0;
  for (int64_t i = 0; i < list->n; i += k) {
    item m = list->p[i];
    int64_t j = i + 1;
    if (m.finite == 0) m.sum = 0;
    for (; j < list->n && j < i + k; j++) {
      const item *it = &list->p[j];
      if (it->finite == 0) continue;
      if (m.finite == 0 || it->min < m.min) m.min = it->min;
      if (m.finite == 0 || it->max > m.max) m.max = it->max;
      m.sum += it->sum;
      m.finite += it->finite;
    }
    m.x = (list->p[i].x + list->p[j - 1].x) / 2;
    list->p[n++] = m;
  }
  list->n = n;
}

ac_status ac_store_curve(ac_store *s, int64_t series, ac_curve_axis axis, double from, double to,
                         int64_t max_points, ac_curve_point **points, int64_t *n, ac_err *e) {
  items list = {0};
  part p = {.s = s, .series = series, .axis = axis, .from = from, .to = to};
  if (max_points < 2)
    return AC_FAIL(e, INVALID, "a curve needs 2 points or more, got %lld", (long long)max_points);
  ac_status st = choose(&p, 4 * max_points, e);
  if (st == AC_OK) st = p.level == 0 ? read_points(&p, &list, e) : read_buckets(&p, &list, e);
  if (st != AC_OK) {
    free(list.p);
    return st;
  }
  for (int64_t i = 1; i < list.n; i++)
    if (list.p[i].x < list.p[i - 1].x) { /* a run that went on from an earlier step */
      qsort(list.p, (size_t)list.n, sizeof *list.p, by_x);
      break;
    }
  if (list.n > max_points) merge(&list, (list.n + max_points - 1) / max_points);
  ac_curve_point *out = malloc((size_t)(list.n + 1) * sizeof *out);
  if (out == NULL) st = AC_FAIL(e, OOM, "no memory for a curve");
  for (int64_t i = 0; st == AC_OK && i < list.n; i++) {
    const item *it = &list.p[i];
    const bool any = it->finite > 0;
    out[i] = (ac_curve_point){it->x, any ? it->sum / (double)it->finite : NAN, any ? it->min : NAN,
                              any ? it->max : NAN};
  }
  free(list.p);
  if (st != AC_OK) return st;
  *points = out;
  *n = list.n;
  return AC_OK;
}

#else

ac_status ac_store_library(const char **version, ac_err *e) {
  (void)version;
  return aci_library_absent("sqlite", e);
}
ac_status ac_store_open(const char *path, bool write, ac_store **out, ac_err *e) {
  (void)path, (void)write, (void)out;
  return aci_library_absent("sqlite", e);
}
/* Nobody has a store here. */
void ac_store_close(ac_store *s) { (void)s; }
ac_status ac_cursor_open(ac_store *s, const char *sql, const ac_store_value *values, int n_values,
                         ac_cursor **out, ac_err *e) {
  (void)s, (void)sql, (void)values, (void)n_values, (void)out;
  return aci_library_absent("sqlite", e);
}
ac_status ac_cursor_next(ac_cursor *c, bool *more, ac_err *e) {
  (void)c, (void)more;
  return aci_library_absent("sqlite", e);
}
int ac_cursor_columns(const ac_cursor *c) { return (void)c, 0; }
const char *ac_cursor_name(const ac_cursor *c, int i) { return (void)c, (void)i, ""; }
int64_t ac_cursor_changes(const ac_cursor *c) { return (void)c, 0; }
ac_store_value ac_cursor_value(const ac_cursor *c, int i) {
  return (void)c, (void)i, (ac_store_value){AC_VALUE_NULL, 0, 0, NULL, 0};
}
void ac_cursor_free(ac_cursor *c) { (void)c; }
ac_status ac_store_curve(ac_store *s, int64_t series, ac_curve_axis axis, double from, double to,
                         int64_t max_points, ac_curve_point **points, int64_t *n, ac_err *e) {
  (void)s, (void)series, (void)axis, (void)from, (void)to, (void)max_points, (void)points, (void)n;
  return aci_library_absent("sqlite", e);
}
#endif
