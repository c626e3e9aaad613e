/* Series of a run in the store: their points, and buckets of 8, 64, ... 32,768 points with least,
 * most and sum, from which a chart of any part of a long series is drawn without reading all of it.
 * Called by store.c in the writer's thread. */
#include "track/store_impl.h"

#ifdef ACCEL_HAVE_SQLITE
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h" /* aci_hash_bytes */

enum { FIRST_SLOTS = 64, HASH_KEY = 0x5eed };

static int64_t width_of(int level) { /* points of a bucket */
  int64_t n = 1;
  for (int i = 0; i <= level; i++) n *= AC_STORE_FACTOR;
  return n;
}

static void add_to(aci_bucket *b, int64_t step, double wall, double value) {
  if (b->n++ == 0) {
    b->step0 = b->step1 = step;
    b->wall0 = b->wall1 = wall;
  }
  if (step < b->step0) b->step0 = step;
  if (step > b->step1) b->step1 = step;
  if (wall < b->wall0) b->wall0 = wall;
  if (wall > b->wall1) b->wall1 = wall;
  if (!isfinite(value)) return;
  if (b->finite++ == 0) b->min = b->max = value;
  if (value < b->min) b->min = value;
  if (value > b->max) b->max = value;
  b->sum += value;
}

/* ---- the table of series ---- */

static uint32_t *slot_of(aci_series_set *s, const char *tag, uint32_t n) {
  uint64_t h = aci_hash_bytes(HASH_KEY, tag, n);
  for (;; h++) {
    uint32_t *t = &s->slot[h & (s->n_slots - 1)];
    if (*t == 0) return t;
    const aci_series *x = &s->list[*t - 1];
    if (x->n_tag == n && memcmp(x->tag, tag, n) == 0) return t;
  }
}

static bool grow(aci_series_set *s) {
  if (s->n == s->cap) {
    const uint32_t cap = s->cap == 0 ? FIRST_SLOTS / 2 : 2 * s->cap;
    aci_series *list = realloc(s->list, cap * sizeof *list);
    if (list == NULL) return false;
    s->list = list;
    s->cap = cap;
  }
  if (2 * (s->n + 1) <= s->n_slots) return true;
  const uint32_t n_slots = s->n_slots == 0 ? FIRST_SLOTS : 2 * s->n_slots;
  uint32_t *slot = calloc(n_slots, sizeof *slot);
  if (slot == NULL) return false;
  free(s->slot);
  s->slot = slot;
  s->n_slots = n_slots;
  for (uint32_t i = 0; i < s->n; i++) *slot_of(s, s->list[i].tag, s->list[i].n_tag) = i + 1;
  return true;
}

/* ---- the store's data of an existing series ---- */

static double number_or(aci_db *d, sqlite3_stmt *q, int column, double fallback) {
  return d->lib.column_type(q, column) == SQLITE_NULL ? fallback : d->lib.column_double(q, column);
}

/* Columns n, finite, step0, step1, wall0, wall1, min, max, sum of a statement that was bound. */
static ac_status read_bucket(aci_db *d, sqlite3_stmt *q, aci_bucket *b, ac_err *e) {
  const int rc = d->lib.step(q);
  ac_status st = rc == SQLITE_ROW || rc == SQLITE_DONE ? AC_OK : aci_db_fail(d, "read", e);
  if (rc == SQLITE_ROW)
    *b = (aci_bucket){
        d->lib.column_int64(q, 0), d->lib.column_int64(q, 1),  d->lib.column_int64(q, 2),
        d->lib.column_int64(q, 3), d->lib.column_double(q, 4), d->lib.column_double(q, 5),
        number_or(d, q, 6, 0),     number_or(d, q, 7, 0),      d->lib.column_double(q, 8)};
  d->lib.reset(q);
  return st;
}

static ac_status find(aci_series_set *s, aci_db *d, aci_series *x, bool *found, ac_err *e) {
  sqlite3_stmt *q = s->find;
  d->lib.bind_int64(q, 1, s->run);
  d->lib.bind_text(q, 2, x->tag, (int)x->n_tag, NULL);
  const int rc = d->lib.step(q);
  *found = rc == SQLITE_ROW;
  ac_status st = rc == SQLITE_ROW || rc == SQLITE_DONE ? AC_OK : aci_db_fail(d, "read", e);
  if (rc == SQLITE_ROW) {
    x->id = d->lib.column_int64(q, 0);
    x->all = (aci_bucket){.n = d->lib.column_int64(q, 1),
                          .finite = d->lib.column_int64(q, 2),
                          .step0 = d->lib.column_int64(q, 3),
                          .step1 = d->lib.column_int64(q, 4),
                          .wall0 = d->lib.column_double(q, 5),
                          .wall1 = d->lib.column_double(q, 6),
                          .min = number_or(d, q, 7, 0),
                          .max = number_or(d, q, 8, 0)};
    x->last = number_or(d, q, 9, NAN);
  }
  d->lib.reset(q);
  for (int l = 0; st == AC_OK && *found && l < AC_STORE_LEVELS; l++) {
    const int64_t width = width_of(l), n = x->all.n;
    if (n % width == 0) continue;
    q = n < width ? s->sum_up : s->read_bucket; /* a level has rows from its first full bucket on */
    d->lib.bind_int64(q, 1, x->id);
    if (n > width) {
      d->lib.bind_int64(q, 2, l + 1);
      d->lib.bind_int64(q, 3, n / width);
    }
    st = read_bucket(d, q, &x->level[l], e);
    if (st == AC_OK && x->level[l].n != n % width)
      st = AC_FAIL(e, STATE, "%s: series '%s' has another number of points than its buckets",
                   d->path, x->tag);
  }
  return st;
}

static ac_status add(aci_series_set *s, aci_db *d, aci_series *x, ac_err *e) {
  d->lib.bind_int64(s->add, 1, s->run);
  d->lib.bind_text(s->add, 2, x->tag, (int)x->n_tag, NULL);
  AC_TRY(aci_db_run(d, s->add, e));
  x->id = d->lib.last_insert_rowid(d->db);
  return AC_OK;
}

static ac_status series_of(aci_series_set *s, aci_db *d, const char *tag, uint32_t n,
                           aci_series **out, ac_err *e) {
  if (s->n_slots > 0) {
    const uint32_t at = *slot_of(s, tag, n);
    if (at > 0) {
      *out = &s->list[at - 1];
      return AC_OK;
    }
  }
  aci_series x = {.n_tag = n, .last = NAN};
  bool found = false;
  if (!grow(s) || (x.tag = malloc((size_t)n + 1)) == NULL)
    return AC_FAIL(e, OOM, "no memory for a series");
  memcpy(x.tag, tag, n);
  x.tag[n] = 0;
  ac_status st = find(s, d, &x, &found, e);
  if (st == AC_OK && !found) st = add(s, d, &x, e);
  if (st != AC_OK) {
    free(x.tag);
    return st;
  }
  *slot_of(s, tag, n) = s->n + 1;
  s->list[s->n] = x;
  *out = &s->list[s->n++];
  return AC_OK;
}

/* ---- writing ---- */

static void bind_extremes(aci_db *d, sqlite3_stmt *q, int at, const aci_bucket *b) {
  if (b->finite > 0) {
    d->lib.bind_double(q, at, b->min);
    d->lib.bind_double(q, at + 1, b->max);
  } else {
    d->lib.bind_null(q, at);
    d->lib.bind_null(q, at + 1);
  }
}

static ac_status write_bucket(aci_series_set *s, aci_db *d, const aci_series *x, int level,
                              int64_t idx, ac_err *e) {
  const aci_bucket *b = &x->level[level];
  sqlite3_stmt *q = s->bucket;
  const int64_t ints[] = {x->id, level + 1, idx, b->n, b->finite, b->step0, b->step1};
  for (int i = 0; i < 7; i++) d->lib.bind_int64(q, i + 1, ints[i]);
  d->lib.bind_double(q, 8, b->wall0);
  d->lib.bind_double(q, 9, b->wall1);
  bind_extremes(d, q, 10, b);
  d->lib.bind_double(q, 12, b->sum);
  return aci_db_run(d, q, e);
}

ac_status aci_series_point(aci_series_set *s, aci_db *d, const char *tag, uint32_t n_tag,
                           int64_t step, double wall, double value, ac_err *e) {
  aci_series *x;
  AC_TRY(series_of(s, d, tag, n_tag, &x, e));
  sqlite3_stmt *q = s->point;
  d->lib.bind_int64(q, 1, x->id);
  d->lib.bind_int64(q, 2, step);
  d->lib.bind_int64(q, 3, x->all.n);
  d->lib.bind_double(q, 4, wall);
  d->lib.bind_double(q, 5, value); /* NaN becomes NULL */
  AC_TRY(aci_db_run(d, q, e));
  x->dirty = true;
  x->last = value;
  add_to(&x->all, step, wall, value);
  for (int l = 0; l < AC_STORE_LEVELS; l++) {
    add_to(&x->level[l], step, wall, value);
    if (x->level[l].n < width_of(l)) continue;
    AC_TRY(write_bucket(s, d, x, l, (x->all.n - 1) / width_of(l), e));
    x->level[l] = (aci_bucket){0};
  }
  return AC_OK;
}

static ac_status flush(aci_series_set *s, aci_db *d, aci_series *x, ac_err *e) {
  sqlite3_stmt *q = s->update;
  for (int l = 0; l < AC_STORE_LEVELS && x->all.n > width_of(l); l++)
    if (x->level[l].n > 0) AC_TRY(write_bucket(s, d, x, l, x->all.n / width_of(l), e));
  const int64_t ints[] = {x->all.n, x->all.finite, x->all.step0, x->all.step1};
  for (int i = 0; i < 4; i++) d->lib.bind_int64(q, i + 1, ints[i]);
  d->lib.bind_double(q, 5, x->last);
  bind_extremes(d, q, 6, &x->all);
  d->lib.bind_double(q, 8, x->all.wall0);
  d->lib.bind_double(q, 9, x->all.wall1);
  d->lib.bind_int64(q, 10, x->id);
  AC_TRY(aci_db_run(d, q, e));
  x->dirty = false;
  return AC_OK;
}

ac_status aci_series_flush(aci_series_set *s, aci_db *d, ac_err *e) {
  for (uint32_t i = 0; i < s->n; i++)
    if (s->list[i].dirty) AC_TRY(flush(s, d, &s->list[i], e));
  return AC_OK;
}

void aci_series_forget(aci_series_set *s) {
  for (uint32_t i = 0; i < s->n; i++) free(s->list[i].tag);
  s->n = 0;
  if (s->n_slots > 0) memset(s->slot, 0, s->n_slots * sizeof *s->slot);
}

ac_status aci_series_open(aci_series_set *s, aci_db *d, int64_t run, ac_err *e) {
  *s = (aci_series_set){.run = run};
  AC_TRY(aci_db_prepare(
      d,
      "SELECT id,n,finite,first_step,last_step,first_wall,last_wall,min,max,last FROM series WHERE run=? AND tag=?",
      &s->find, e));
  AC_TRY(aci_db_prepare(d, "INSERT INTO series(run,tag,n,finite) VALUES(?,?,0,0)", &s->add, e));
  AC_TRY(aci_db_prepare(
      d,
      "UPDATE series SET n=?,finite=?,first_step=?,last_step=?,last=?,min=?,max=?,first_wall=?,last_wall=?"
      " WHERE id=?",
      &s->update, e));
  AC_TRY(aci_db_prepare(d, "INSERT INTO points(series,step,seq,wall,value) VALUES(?,?,?,?,?)",
                        &s->point, e));
  AC_TRY(aci_db_prepare(
      d,
      "INSERT OR REPLACE INTO buckets(series,level,idx,n,finite,step0,step1,wall0,wall1,min,max,sum)"
      " VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
      &s->bucket, e));
  AC_TRY(aci_db_prepare(
      d,
      "SELECT n,finite,step0,step1,wall0,wall1,min,max,sum FROM buckets WHERE series=? AND level=? AND idx=?",
      &s->read_bucket, e));
  return aci_db_prepare(
      d,
      "SELECT count(*),count(value) FILTER (WHERE abs(value)<9e999),min(step),max(step),min(wall),max(wall),"
      "min(value) FILTER (WHERE abs(value)<9e999),max(value) FILTER (WHERE abs(value)<9e999),"
      "total(value) FILTER (WHERE abs(value)<9e999) FROM points WHERE series=?",
      &s->sum_up, e);
}

void aci_series_close(aci_series_set *s, aci_db *d) {
  sqlite3_stmt *const all[] = {s->find,   s->add,         s->update, s->point,
                               s->bucket, s->read_bucket, s->sum_up};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) d->lib.finalize(all[i]);
  aci_series_forget(s);
  free(s->list);
  free(s->slot);
  *s = (aci_series_set){0};
}
#endif
