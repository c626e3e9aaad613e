/* The typed table of ACCEL_* variables (params.def, and the rows that devices declare): parsing,
 * checking, snapshots. Contexts take one snapshot each. Accel-run env prints the table. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "accel/base.h"
#include "base/base_impl.h"
#include "base/number.h"

#define PREFIX "ACCEL_"

static const ac_param_info table[] = {
#define AC_PARAM(name, type, fallback, allowed, help) \
  {#name, AC_PARAM_##type, fallback, allowed, help},
#include "base/params.def"
#undef AC_PARAM
};
enum { N_BUILTIN = sizeof table / sizeof table[0], MAX_DECLARED = 64 };

/* Rows of devices, after the built-in ones. They are added and never removed. The count is written
 * last. */
static const ac_param_info *declared[MAX_DECLARED];
static _Atomic int n_declared;
static pthread_mutex_t declaring = PTHREAD_MUTEX_INITIALIZER;

typedef struct value {
  bool set;
  int64_t i;
  double f;
  char *s; /* as written. Owned */
} value;

struct ac_params {
  /* rows that this snapshot has: those that were declared when it was taken or last extended */
  int n;
  value v[N_BUILTIN + MAX_DECLARED];
};

int ac_params_count(void) {
  return N_BUILTIN + atomic_load_explicit(&n_declared, memory_order_acquire);
}

const ac_param_info *ac_params_info(int i) {
  if (i < 0 || i >= ac_params_count()) return NULL;
  return i < N_BUILTIN ? &table[i] : declared[i - N_BUILTIN];
}

static int row_of(const char *name) {
  for (int i = 0, n = ac_params_count(); i < n; i++)
    if (strcmp(ac_params_info(i)->name, name) == 0) return i;
  return -1;
}

ac_status aci_params_declare(const ac_param_info *rows, int n, ac_err *e) {
  ac_status st = AC_OK;
  pthread_mutex_lock(&declaring);
  int at = atomic_load_explicit(&n_declared, memory_order_relaxed);
  for (int i = 0; i < n && st == AC_OK; i++) {
    if (row_of(rows[i].name) >= 0)
      st = AC_FAIL(e, STATE, "the parameter ACCEL_%s already exists", rows[i].name);
  }
  if (st == AC_OK && at + n > MAX_DECLARED)
    st = AC_FAIL(e, STATE, "devices declare more than %d parameters", MAX_DECLARED);
  for (int i = 0; i < n && st == AC_OK; i++) declared[at + i] = &rows[i];
  if (st == AC_OK) atomic_store_explicit(&n_declared, at + n, memory_order_release);
  pthread_mutex_unlock(&declaring);
  return st;
}

/* ---- one value ---- */

static bool parse_bool(const char *s, int64_t *out) {
  static const char *const yes[] = {"y", "yes", "t", "true", "on", "1"}, *const no[] = {
                                                                             "n",     "no",  "f",
                                                                             "false", "off", "0"};
  for (int i = 0; i < 6; i++) {
    if (strcasecmp(s, yes[i]) == 0) return *out = 1, true;
    if (strcasecmp(s, no[i]) == 0) return *out = 0, true;
  }
  return false;
}

bool aci_params_flag(const char *name, bool otherwise) {
  int64_t v;
  const char *s = getenv(name);
  return s != NULL && parse_bool(s, &v) ? v != 0 : otherwise;
}

static bool parse_int(const char *s, int64_t *out) {
  char *end;
  errno = 0;
  long long v = strtoll(s, &end, 10);
  if (end == s || *end != '\0' || errno != 0 || s[0] == ' ') return false;
  *out = v;
  return true;
}

static bool parse_float(const char *s, double *out) {
  char *end;
  *out = aci_strtod(s, &end);
  return end != s && *end == '\0' && isfinite(*out);
}

bool ac_size_parse(const char *s, int64_t *out) {
  if (strspn(s, "0123456789.") == 0)
    return false; /* strtod would take blanks, signs, hex and "inf" as well */
  if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) return false;
  char *end;
  double v = aci_strtod(s, &end);
  if (end == s) return false;
  s = end;
  static const char units[] = "KMGTP";
  const char first = *s;
  const char *u = first == '\0'
                      ? NULL
                      : strchr(units, first >= 'a' && first <= 'z' ? first - 'a' + 'A' : first);
  if (u != NULL) {
    const bool decimal = strcasecmp(s + 1, "b") == 0;
    for (long k = u - units; k >= 0; k--) v *= decimal ? 1000 : 1024;
    if (strcmp(s + 1, "b") == 0 && first < 'a') v /= 8;
    s += strcasecmp(s + 1, "ib") == 0 ? 2 : 1;
  }
  if (strcasecmp(s, "b") == 0) s++;
  if (*s != '\0' || v >= 9.2e18) return false;
  *out = (int64_t)v;
  return true;
}

/* A size, or "50%" of this machine's memory. */
static bool parse_size(const char *s, int64_t *out) {
  const size_t n = strlen(s);
  char number[32];
  double v;
  if (n == 0 || n > sizeof number || s[n - 1] != '%') return ac_size_parse(s, out);
  memcpy(number, s, n - 1);
  number[n - 1] = '\0';
  if (strspn(number, "0123456789.") != n - 1 || !parse_float(number, &v) || v > 100) return false;
  *out = (int64_t)((double)aci_host_memory() * (v / 100));
  return true;
}

static bool in_range(const char *allowed, double v) {
  const char *dots = strstr(allowed, "..");
  double lo = -INFINITY, hi = INFINITY;
  if (dots != allowed) lo = (double)strtol(allowed, NULL, 10);
  if (dots[2] != '\0') hi = (double)strtol(dots + 2, NULL, 10);
  return v >= lo && v <= hi;
}

static bool in_choice(const char *allowed, const char *s) {
  size_t n = strlen(s);
  for (const char *p = allowed;; p++) {
    size_t len = strcspn(p, "|");
    if (len == n && memcmp(p, s, n) == 0) return true;
    p += len;
    if (*p == '\0') return false;
  }
}

static bool parse(const ac_param_info *row, const char *s, value *v) {
  switch (row->type) {
    case AC_PARAM_INT:
      if (!parse_int(s, &v->i) || (row->allowed != NULL && !in_range(row->allowed, (double)v->i)))
        return false;
      v->f = (double)v->i;
      return true;
    case AC_PARAM_BOOL: return parse_bool(s, &v->i);
    case AC_PARAM_SIZE:
      return parse_size(s, &v->i) && (row->allowed == NULL || in_range(row->allowed, (double)v->i));
    case AC_PARAM_FLOAT:
      return parse_float(s, &v->f) && (row->allowed == NULL || in_range(row->allowed, v->f));
    case AC_PARAM_STR: return row->allowed == NULL || in_choice(row->allowed, s);
  }
  return false;
}

static const char *expected(const ac_param_info *row) {
  if (row->allowed != NULL) return row->allowed;
  switch (row->type) {
    case AC_PARAM_INT: return "an integer";
    case AC_PARAM_BOOL: return "y|yes|t|true|on|1 or n|no|f|false|off|0";
    case AC_PARAM_SIZE: return "bytes, with K, M, G or T, or N% of the memory";
    case AC_PARAM_FLOAT: return "a number";
    case AC_PARAM_STR: break;
  }
  return "text";
}

/* ---- snapshots ---- */

/* "4" or "4,2" (nested levels: the first counts). The variable is OpenMP's, so a value that does
 * not parse is ignored. */
static const char *omp_threads(char buf[24]) {
  const char *s = getenv("OMP_NUM_THREADS");
  if (s == NULL) return NULL;
  size_t n = strcspn(s, ",");
  if (n == 0 || n >= 24) return NULL;
  memcpy(buf, s, n);
  buf[n] = '\0';
  int64_t v;
  if (parse_int(buf, &v) && v >= 1 && v <= 1024) return buf;
  ac_log_write(AC_LOG_WARN, "base", "OMP_NUM_THREADS=%s is not a number of threads; ignored", s);
  return NULL;
}

static ac_status read_row(ac_params *p, int i, ac_err *e) {
  const ac_param_info *row = ac_params_info(i);
  char name[64] = PREFIX, omp[24];
  strncat(name, row->name, sizeof name - sizeof PREFIX);
  const char *text = getenv(name);
  if (text != NULL && text[0] == '\0') text = NULL; /* an empty variable is an unset one */
  p->v[i].set = text != NULL;
  if (text == NULL && strcmp(row->name, "NUM_THREADS") == 0) text = omp_threads(omp);
  if (text == NULL) text = row->fallback;
  if (!parse(row, text, &p->v[i]))
    return AC_FAIL(e, INVALID, "%s=%.200s: expected %s", name, text, expected(row));
  p->v[i].s = strdup(text);
  return p->v[i].s != NULL ? AC_OK : AC_FAIL(e, OOM, "out of memory for the parameters");
}

ac_status aci_params_extend(ac_params *p, ac_err *e) {
  for (const int n = ac_params_count(); p->n < n; p->n++) AC_TRY(read_row(p, p->n, e));
  return AC_OK;
}

ac_status ac_params_new(ac_params **out, ac_err *e) {
  *out = NULL;
  ac_params *p = calloc(1, sizeof *p);
  if (p == NULL) return AC_FAIL(e, OOM, "out of memory for the parameters");
  const ac_status st = aci_params_extend(p, e);
  if (st == AC_OK) *out = p;
  else ac_params_free(p);
  return st;
}

void ac_params_free(ac_params *p) {
  if (p == NULL) return;
  for (int i = 0; i < p->n; i++) free(p->v[i].s);
  free(p);
}

static const value *value_of(const ac_params *p, const char *name) {
  /* a row that came after the snapshot and could not be read since */
  static const value unread = {.s = ""};
  int i = row_of(name);
  if (i < 0) {
    ac_log_write(AC_LOG_ERROR, "base", "no parameter '%s': it reads as 0 and as \"\"", name);
    return &unread;
  }
  return i < p->n ? &p->v[i] : &unread;
}

int64_t ac_params_int(const ac_params *p, const char *name) { return value_of(p, name)->i; }

double ac_params_float(const ac_params *p, const char *name) { return value_of(p, name)->f; }

const char *ac_params_str(const ac_params *p, const char *name) { return value_of(p, name)->s; }

bool ac_params_is_set(const ac_params *p, const char *name) { return value_of(p, name)->set; }

/* ---- variables without a row ---- */

/* environ's entries are not terminated at the '=', so each name is copied once and kept for good:
 * callers may hold it. */
typedef struct interned {
  struct interned *next;
  char name[];
} interned;

static const char *intern(const char *s, size_t n) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static interned *all;
  pthread_mutex_lock(&lock);
  interned *it = all;
  while (it != NULL && (strlen(it->name) != n || memcmp(it->name, s, n) != 0)) it = it->next;
  if (it == NULL && (it = malloc(sizeof *it + n + 1)) != NULL) {
    memcpy(it->name, s, n);
    it->name[n] = '\0';
    it->next = all;
    all = it;
  }
  pthread_mutex_unlock(&lock);
  return it == NULL ? PREFIX "?" : it->name;
}

int ac_params_unknown(const char **names, int max) {
  extern char **environ;
  int n = 0;
  for (char **v = environ; v != NULL && *v != NULL; v++) {
    if (strncmp(*v, PREFIX, sizeof PREFIX - 1) != 0) continue;
    size_t len = strcspn(*v, "=");
    if (len >= 64) len = 63;
    char bare[64];
    memcpy(bare, *v + sizeof PREFIX - 1, len - (sizeof PREFIX - 1));
    bare[len - (sizeof PREFIX - 1)] = '\0';
    /* ACCEL_TEST_*: for test suites */
    if (row_of(bare) >= 0 || strncmp(bare, "TEST_", 5) == 0) continue;
    if (n < max) names[n] = intern(*v, len);
    n++;
  }
  return n;
}
