/* The key of t[key], checked entry by entry: see key.h. */
#include "bindings/core/key.h"

#include <string.h>

#include "ops/index/index_view.h"

static const char *shape_str(const ac_tensor *t, char *buf, size_t n) {
  return aci_shape_str(t->ndim, t->shape, buf, n);
}

/* The error for a key that t[key] does not accept. */
int lac_key_bad(lua_State *L, lac_state *S, int idx) {
  char buf[96];
  return lac_error(
      L, S, AC_INDEX,
      "index: expected a position, a name, a tensor of i64 or bool, or a table with one entry "
      "per dim such as "
      "{ {1, 3}, {}, -1 }, got %s",
      lac_typename(L, idx, buf, sizeof buf));
}

/* The value at idx as a position in dim d, 0-based. */
int64_t lac_key_position(lua_State *L, lac_state *S, const ac_tensor *t, int d, int idx) {
  int ok = 0;
  char shape[160];
  const int64_t i = lua_tointegerx(L, idx, &ok);
  if (!ok) lac_error(L, S, AC_INDEX, "index: expected integer, got %s", lua_tostring(L, idx));
  if (i == 0) lac_error(L, S, AC_INDEX, "index: positions count from 1 (or from -1, the last)");
  const int64_t z = i < 0 ? i + t->shape[d] : i - 1;
  if (z < 0 || z >= t->shape[d])
    lac_error(L, S, AC_INDEX, "index: %lld is out of range for dim %d of shape %s", (long long)i,
              d + 1, shape_str(t, shape, sizeof shape));
  return z;
}

static int64_t read_bound(lua_State *L, lac_state *S, int entry, int k) {
  int ok = 0;
  char buf[96];
  lua_rawgeti(L, entry, k);
  const int64_t i = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &ok) : 0;
  if (!ok)
    lac_error(L, S, AC_INDEX, "index: a range is {first, last, step} of integers, got %s",
              lac_typename(L, -1, buf, sizeof buf));
  lua_pop(L, 1);
  return i;
}

/* {}, {a}, {a, b} or {a, b, step} at entry, for dim d: start, length, step. */
static void read_range(lua_State *L, lac_state *S, const ac_tensor *t, int d, int entry,
                       int64_t *out) {
  const lua_Unsigned n = lua_rawlen(L, entry);
  const int64_t extent = t->shape[d];
  char shape[160];
  out[0] = 0;
  out[1] = extent;
  out[2] = 1;
  if (n == 0) {
    lua_pushnil(L);
    if (lua_next(L, entry) != 0)
      lac_error(L, S, AC_INDEX, "index: a range is {first, last, step}, without names");
    return;
  }
  if (n > 3)
    lac_error(L, S, AC_INDEX,
              "index: a range has at most three numbers {first, last, step}, got %d", (int)n);
  const int64_t a = read_bound(L, S, entry, 1), b = n > 1 ? read_bound(L, S, entry, 2) : -1;
  out[2] = n > 2 ? read_bound(L, S, entry, 3) : 1;
  if (out[2] < 1)
    lac_error(
        L, S, AC_INDEX,
        "index: the step of a range must be at least 1, got %lld; t:flip(%d) turns a dim around",
        (long long)out[2], d + 1);
  /* {a, a - 1} is empty, as a loop from a to a - 1 would be */
  const int64_t first = a < 0 ? a + extent : a - 1, last = b < 0 ? b + extent : b - 1;
  if (a == 0 || first < 0 || first > extent || last < first - 1 || last >= extent)
    lac_error(L, S, AC_INDEX, "index: {%lld, %lld} is out of range for dim %d of shape %s",
              (long long)a, (long long)b, d + 1, shape_str(t, shape, sizeof shape));
  out[0] = first;
  out[1] = last < first ? 0 : (last - first) / out[2] + 1;
}

/* Checks the tensor at idx as an index of dims d, d+1, ... of t and returns how many it
 * addresses. */
static int check_part(lua_State *L, lac_state *S, const ac_tensor *t, int d, const ac_tensor *p) {
  char a[160], b[160];
  if (p->dtype == AC_I64 || p->dtype == AC_I32) return 1;
  if (p->dtype != AC_BOOL)
    lac_error(L, S, AC_DTYPE,
              "index: a tensor in a key names positions (i64, i32) or masks them (bool), got %s",
              ac_dtype_name((ac_dtype)p->dtype));
  bool ok = p->ndim > 0 && d + p->ndim <= t->ndim;
  for (int k = 0; ok && k < p->ndim; k++) ok = p->shape[k] == t->shape[d + k];
  if (!ok)
    lac_error(L, S, AC_SHAPE, "index: a mask of shape %s does not fit shape %s from dim %d on",
              shape_str(p, a, sizeof a), shape_str(t, b, sizeof b), d + 1);
  return p->ndim;
}

static ac_tensor *box_tensor(lua_State *L, lac_state *S, int idx) {
  return lac_box_test(L, idx) != NULL ? lac_check_tensor(L, S, idx, "index") : NULL;
}

static bool is_word(lua_State *L, int idx, const char *word) {
  return lua_type(L, idx) == LUA_TSTRING && strcmp(lua_tostring(L, idx), word) == 0;
}

static void take(lac_key *k, int64_t start, int64_t length, int64_t step) {
  int64_t *s = k->spec + k->n_spec;
  s[0] = start;
  s[1] = length;
  s[2] = step;
  k->n_spec += 3;
  if (length != ACI_VIEW_SELECT) k->view[k->n_view++] = length == ACI_VIEW_NEW ? 1 : length;
}

/* A tensor as an entry: the dims it addresses stay whole in the view. Returns how many they are. */
static int take_part(lua_State *L, lac_state *S, const ac_tensor *t, int d, ac_tensor *p,
                     lac_key *k) {
  const int n = check_part(L, S, t, d, p);
  k->part[k->n_parts].t = p;
  k->part[k->n_parts++].dim = k->n_view;
  for (int i = 0; i < n; i++) take(k, 0, t->shape[d + i], 1);
  return n;
}

/* Entries of the table at `key`, checked for kind. Returns the number of dims that they use besides
 * "...". */
static int count_dims(lua_State *L, lac_state *S, int key, int n, int *dots) {
  int dims = 0, keys = 0;
  *dots = 0;
  for (lua_pushnil(L); lua_next(L, key); lua_pop(L, 1)) keys++;
  if (keys != n || n > LAC_KEY_ENTRIES)
    lac_error(L, S, AC_INDEX,
              "index: the table lists one entry per dim, such as { {1, 3}, {}, -1 }%s",
              n > LAC_KEY_ENTRIES ? "; it has too many" : ", without names or holes");
  for (int i = 1; i <= n; i++) {
    lua_rawgeti(L, key, i);
    const ac_tensor *p = box_tensor(L, S, -1);
    const int type = lua_type(L, -1);
    if (p != NULL) dims += p->dtype == AC_BOOL ? p->ndim : 1;
    else if (type == LUA_TNUMBER || type == LUA_TTABLE) dims++;
    else if (is_word(L, -1, "...")) ++*dots;
    else if (!is_word(L, -1, LAC_NEWAXIS)) {
      char buf[96];
      lac_error(
          L, S, AC_INDEX,
          "index: entry %d: expected a position, a range {first, last, step}, a tensor, accel.newaxis "
          "or \"...\", got %s",
          i, lac_typename(L, -1, buf, sizeof buf));
    }
    lua_pop(L, 1);
  }
  if (*dots > 1) lac_error(L, S, AC_INDEX, "index: \"...\" may appear only once in a key");
  return dims;
}

/* k->spec gets (start, length, step) for each entry of the view, k->part the tensors, whose dims
 * stay whole in it. d counts the dims of t that entries have used. Tensors are borrowed from the
 * key. Allocates nothing, so that no finalizer runs meanwhile. */
void lac_key_parse(lua_State *L, lac_state *S, const ac_tensor *t, lac_key *k) {
  char shape[160];
  int dots = 0, d = 0;
  memset(k, 0, offsetof(lac_key, spec));
  ac_tensor *single = box_tensor(L, S, 2);
  if (single != NULL) {
    if (t->ndim == 0)
      lac_error(L, S, AC_INDEX, "index: a tensor of rank 0 has no elements to index; use t:item()");
    d += take_part(L, S, t, d, single, k);
  } else {
    const int n = (int)lua_rawlen(L, 2), used = count_dims(L, S, 2, n, &dots);
    if (used > t->ndim)
      lac_error(L, S, AC_INDEX, "index: entries for %d dims, but the shape is %s", used,
                shape_str(t, shape, sizeof shape));
    for (int i = 1; i <= n; i++) {
      lua_rawgeti(L, 2, i);
      const int at = lua_gettop(L);
      ac_tensor *p = box_tensor(L, S, at);
      if (p != NULL) {
        d += take_part(L, S, t, d, p, k);
      } else if (lua_type(L, at) == LUA_TNUMBER) {
        take(k, lac_key_position(L, S, t, d++, at), ACI_VIEW_SELECT, 0);
      } else if (lua_type(L, at) == LUA_TTABLE) {
        int64_t range[3];
        read_range(L, S, t, d++, at, range);
        take(k, range[0], range[1], range[2]);
      } else if (is_word(L, at, "...")) {
        for (int rest = t->ndim - used; rest > 0; rest--, d++) take(k, 0, t->shape[d], 1);
      } else {
        take(k, 0, ACI_VIEW_NEW, 0);
      }
      lua_pop(L, 1);
    }
  }
  for (; d < t->ndim; d++) take(k, 0, t->shape[d], 1);
  k->whole = k->n_view == t->ndim;
  for (int i = 0; k->whole && i < k->n_spec; i += 3)
    k->whole = k->spec[i + 1] == t->shape[i / 3] && k->spec[i] == 0;
}

bool lac_key_has_tensors(lua_State *L) {
  if (lua_type(L, 2) != LUA_TTABLE) return true;
  bool found = false;
  for (lua_Unsigned i = lua_rawlen(L, 2); i > 0 && !found; i--) {
    found = lua_rawgeti(L, 2, (lua_Integer)i) == LUA_TUSERDATA;
    lua_pop(L, 1);
  }
  return found;
}
