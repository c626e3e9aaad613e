/* Bytes to Lua values (codec.h has the format). Called by accel.decode.
 *
 * The bytes may be hostile. Each length is compared with the remaining bytes before anything is
 * allocated for it, so that memory grows with the input only (at most some fifty times). Only
 * output of codec_write.c is accepted. */
#include "codec.h"
#include "bindings/core/gc.h"
#include "json.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_AT_ONCE = 1 << 16 }; /* entries that a table gets room for before they were seen */

typedef struct run {
  lua_State *L;
  lac_state *S;
  ac_device *device;
  ac_err *e;
  ac_tensor *const *shared;
  size_t n_shared;
  const unsigned char *begin, *at, *end;
  int refs, depth; /* refs: list of the values that `R` may refer to */
  lua_Integer n_refs;
  bool is_key; /* the value being read is one */
  lac_codec_key key;
} run;

static bool read_value(run *r);

/* The error stands at byte `at`, counted from 0. Returns false. */
static bool fail_at(run *r, const unsigned char *at, const char *fmt, ...) AC_PRINTF(3, 4);
static bool fail_at(run *r, const unsigned char *at, const char *fmt, ...) {
  char text[300];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  AC_FAIL(r->e, PARSE, "decode: byte %zu: %s", (size_t)(at - r->begin), text);
  return false;
}

static size_t left(const run *r) { return (size_t)(r->end - r->at); }

static bool read_varint(run *r, uint64_t *out) {
  const unsigned char *from = r->at;
  uint64_t v = 0;
  for (int shift = 0; r->at < r->end; shift += 7) {
    const unsigned char c = *r->at++;
    if (shift == 63 && c > 1) return fail_at(r, from, "a number of more than 64 bits");
    v |= (uint64_t)(c & 0x7f) << shift;
    if (c >= 0x80) continue;
    if (c == 0 && shift > 0) return fail_at(r, from, "a number longer than necessary");
    *out = v;
    return true;
  }
  return fail_at(r, from, "the data ends inside a number");
}

/* A count of things that take `each` bytes or more. */
static bool read_count(run *r, const char *what, size_t each, uint64_t *out) {
  const unsigned char *from = r->at;
  if (!read_varint(r, out)) return false;
  if (*out > left(r) / each)
    return fail_at(r, from, "%llu %s, but only %zu bytes are left", (unsigned long long)*out, what,
                   left(r));
  return true;
}

/* Gives the value on top the next number. */
static void remember(run *r) {
  lua_pushvalue(r->L, -1);
  lua_rawseti(r->L, r->refs, ++r->n_refs);
}

static bool read_string(run *r) {
  uint64_t n;
  if (!read_count(r, "bytes of text", 1, &n)) return false;
  const char *s = (const char *)r->at;
  r->key = (lac_codec_key){.kind = LAC_KEY_STRING, .s = s, .n = (size_t)n};
  r->at += n;
  lua_pushlstring(r->L, s, (size_t)n);
  if (n >= LAC_CODEC_SHARED) remember(r);
  return true;
}

static bool read_back_reference(run *r) {
  const unsigned char *from = r->at - 1;
  uint64_t i;
  if (!read_varint(r, &i)) return false;
  if (i >= (uint64_t)r->n_refs)
    return fail_at(r, from, "a reference to number %llu of %lld", (unsigned long long)i,
                   (long long)r->n_refs);
  lua_rawgeti(r->L, r->refs, (lua_Integer)i + 1);
  if (!r->is_key) return true;
  if (lua_type(r->L, -1) != LUA_TSTRING)
    return fail_at(r, from, "a %s as a key", luaL_typename(r->L, -1));
  r->key = (lac_codec_key){.kind = LAC_KEY_STRING};
  r->key.s = lua_tolstring(r->L, -1, &r->key.n);
  return true;
}

/* ---- tensors ---- */

/* Tag read already: length and name of the dtype, whether bytes follow, dims, extents, bytes.
 * Everything is compared with the remaining bytes before memory is allocated. Pushes a box. False:
 * r->e is filled. A tensor without bytes is a meta tensor. */
static bool read_tensor(run *r) {
  const unsigned char *from = r->at - 1;
  char name[16];
  int64_t shape[AC_MAX_DIMS];
  ac_dtype dt;
  if (left(r) < 1 || left(r) - 1 < (size_t)r->at[0] + 2)
    return fail_at(r, from, "the data ends inside a tensor");
  const size_t len = *r->at++;
  if (len >= sizeof name) return fail_at(r, from, "a tensor of an unknown dtype");
  memcpy(name, r->at, len);
  name[len] = 0;
  r->at += len;
  if (strlen(name) != len || !ac_dtype_find(name, &dt) || strcmp(name, ac_dtype_name(dt)) != 0)
    return fail_at(r, from, "a tensor of an unknown dtype");
  const int has_bytes = *r->at++, ndim = *r->at++;
  if (has_bytes > 1) return fail_at(r, from, "a tensor whose flag for bytes is neither 0 nor 1");
  if (ndim > AC_MAX_DIMS)
    return fail_at(r, from, "a tensor of %d dims, more than %d", ndim, AC_MAX_DIMS);
  uint64_t n = aci_dsize(dt);
  bool fits = true, empty = false;
  for (int i = 0; i < ndim; i++) {
    uint64_t extent;
    if (!read_varint(r, &extent)) return false;
    if (extent > INT64_MAX) return fail_at(r, from, "a tensor with an extent of more than 63 bits");
    shape[i] = (int64_t)extent;
    if (extent == 0) empty = true;
    else fits = fits && !__builtin_mul_overflow(n, extent, &n);
  }
  if (empty) n = 0;
  if (has_bytes && (!fits || n > left(r)))
    return fail_at(r, from, "a tensor of more bytes than the %zu that are left", left(r));
  const unsigned char *bytes = r->at;
  if (has_bytes) r->at += n;
  for (size_t i = 0; has_bytes && dt == AC_BOOL && i < n; i++)
    if (bytes[i] > 1) return fail_at(r, bytes + i, "%d in a bool tensor", bytes[i]);
  ac_device *d = r->device;
  if (!has_bytes && ac_ctx_device(r->S->ctx, "meta", &d, r->e) != AC_OK) return false;
  ac_tensor *t = NULL;
  ac_status st;
  lac_box *b = lac_box_new(r->L, r->S);
  if (has_bytes)
    LAC_RETRY(r->L, r->S, st, ac_tensor_from_host(d, dt, ndim, shape, bytes, &t, r->e));
  else st = ac_tensor_new(d, dt, ndim, shape, &t, r->e);
  if (st == AC_OOM && has_bytes) return false;
  if (st != AC_OK) {
    const ac_err why = *r->e;
    return fail_at(r, from, "%.250s", why.msg);
  }
  lac_box_fill(r->S, b, t);
  lac_charge(r->S, t);
  remember(r);
  return true;
}

/* A tensor from the separate list. */
static bool read_shared(run *r) {
  const unsigned char *from = r->at - 1;
  uint64_t i;
  if (!read_varint(r, &i)) return false;
  if (i >= r->n_shared)
    return fail_at(r, from, "tensor %llu of the %zu in the separate list", (unsigned long long)i,
                   r->n_shared);
  ac_tensor *t = r->shared[i];
  lac_push_tensor(r->L, r->S, t);
  r->S->gc->charged += (size_t)t->numel * aci_dsize((ac_dtype)t->dtype);
  remember(r);
  return true;
}

/* ---- tables ---- */

static bool read_key(run *r, const lac_codec_key *before) {
  const unsigned char *from = r->at;
  r->is_key = true;
  if (r->at < r->end && strchr("IDSFTR", *r->at) == NULL)
    return fail_at(r, from, "a key that is not a number, string or boolean");
  if (!read_value(r)) return false;
  r->is_key = false;
  if (before != NULL && lac_codec_compare(before, &r->key) >= 0)
    return fail_at(r, from, "keys out of order");
  return true;
}

/* The value for the key on top. Both go into the table below. */
static bool read_entry(run *r, int table, bool through_newindex) {
  const unsigned char *from = r->at;
  if (!read_value(r)) return false;
  if (lua_isnil(r->L, -1)) return fail_at(r, from, "nil in a table");
  if (through_newindex) lua_settable(r->L, table);
  else lua_rawset(r->L, table);
  return true;
}

static bool read_pairs(run *r, int table, lua_Integer n_list, uint64_t n) {
  lac_codec_key before;
  for (uint64_t i = 0; i < n; i++) {
    const unsigned char *from = r->at;
    if (!read_key(r, i > 0 ? &before : NULL)) return false;
    before = r->key;
    if (before.kind == LAC_KEY_INT && before.i >= 1 && before.i - 1 <= n_list)
      return fail_at(r, from, "key %lld, which belongs into the list of %lld", (long long)before.i,
                     (long long)n_list);
    if (!read_entry(r, table, false)) return false;
  }
  return true;
}

static bool read_table(run *r, char tag) {
  lua_State *L = r->L;
  const unsigned char *from = r->at - 1;
  uint64_t n = 0, n_pairs;
  if (!read_count(r, "entries", 1, &n)) return false;
  if (!read_count(r, "pairs", 2, &n_pairs)) return false;
  lua_createtable(L, n < MOST_AT_ONCE ? (int)n : MOST_AT_ONCE,
                  n_pairs < MOST_AT_ONCE ? (int)n_pairs : MOST_AT_ONCE);
  const int table = lua_gettop(L);
  remember(r);
  if (++r->depth > LAC_CODEC_DEPTH)
    return fail_at(r, from, "tables nest more than %d deep", LAC_CODEC_DEPTH);
  for (uint64_t i = 1; i <= n; i++) {
    const unsigned char *at = r->at;
    if (!read_value(r)) return false;
    if (lua_isnil(L, -1)) return fail_at(r, at, "nil in a table");
    lua_rawseti(L, table, (lua_Integer)i);
  }
  if (!read_pairs(r, table, (lua_Integer)n, n_pairs)) return false;
  r->depth--;
  if (tag == 'a') {
    lac_push_json_array(L);
    lua_setmetatable(L, table);
  }
  return true;
}

static bool read_ordered(run *r) {
  lua_State *L = r->L;
  const unsigned char *from = r->at - 1;
  uint64_t n;
  if (!read_count(r, "pairs", 2, &n)) return false;
  lua_getglobal(L, "require");
  lua_pushliteral(L, "accel.util.ordered");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "new");
  lua_remove(L, -2);
  lua_call(L, 0, 1);
  const int table = lua_gettop(L);
  remember(r);
  if (++r->depth > LAC_CODEC_DEPTH)
    return fail_at(r, from, "tables nest more than %d deep", LAC_CODEC_DEPTH);
  for (uint64_t i = 0; i < n; i++) {
    const unsigned char *at = r->at;
    if (!read_key(r, NULL)) return false;
    lua_pushvalue(L, -1);
    if (lua_rawget(L, table) != LUA_TNIL) return fail_at(r, at, "a duplicate key");
    lua_pop(L, 1);
    if (!read_entry(r, table, true)) return false;
  }
  r->depth--;
  return true;
}

/* ---- values ---- */

static bool read_float(run *r) {
  double f;
  if (left(r) < sizeof f) return fail_at(r, r->at - 1, "the data ends inside a float");
  memcpy(&f, r->at, sizeof f);
  r->key = (lac_codec_key){.kind = LAC_KEY_FLOAT, .f = f};
  if (r->is_key && (isnan(f) || (f >= -0x1p63 && f < 0x1p63 && f == floor(f))))
    return fail_at(r, r->at - 1, "a float key of %g, which must be an integer", f);
  r->at += sizeof f;
  lua_pushnumber(r->L, f);
  return true;
}

/* Pushes the value, or returns false and leaves anything on the stack. */
static bool read_value(run *r) {
  lua_State *L = r->L;
  uint64_t v;
  if (left(r) == 0) return fail_at(r, r->at, "the data ends before a value");
  luaL_checkstack(L, 10, "decode");
  const char tag = (char)*r->at++;
  if (tag == 'R') return read_back_reference(r);
  if (strchr("toaXYNZ", tag) != NULL) r->is_key = false;
  switch (tag) {
    case 'N': lua_pushnil(L); return true;
    case 'Z': lua_pushlightuserdata(L, NULL); return true;
    case 'F':
    case 'T':
      r->key = (lac_codec_key){.kind = LAC_KEY_BOOL, .i = tag == 'T'};
      lua_pushboolean(L, tag == 'T');
      return true;
    case 'I':
      if (!read_varint(r, &v)) return false;
      r->key = (lac_codec_key){.kind = LAC_KEY_INT, .i = (lua_Integer)(v >> 1 ^ (0 - (v & 1)))};
      lua_pushinteger(L, r->key.i);
      return true;
    case 'D': return read_float(r);
    case 'S': return read_string(r);
    case 't':
    case 'a': return read_table(r, tag);
    case 'o': return read_ordered(r);
    case 'X': return read_tensor(r);
    case 'Y': return read_shared(r);
    default: return fail_at(r, r->at - 1, "no value begins with %02x", (unsigned char)tag);
  }
}

ac_status lac_decode(lua_State *L, lac_state *S, const void *bytes, size_t n, ac_device *d,
                     ac_err *e) {
  return lac_decode_shared(L, S, bytes, n, NULL, 0, d, e);
}

ac_status lac_decode_shared(lua_State *L, lac_state *S, const void *bytes, size_t n,
                            ac_tensor *const *shared, size_t n_shared, ac_device *d, ac_err *e) {
  const unsigned char *p = bytes;
  run r = {.L = L, .S = S, .device = d, .e = e, .begin = p, .at = p, .end = p + n};
  r.shared = shared;
  r.n_shared = n_shared;
  const int top = lua_gettop(L);
  *e = (ac_err){.rank = -1};
  if (n < LAC_CODEC_HEAD_BYTES || memcmp(p, LAC_CODEC_HEAD, LAC_CODEC_VERSION_AT) != 0)
    return AC_FAIL(e, PARSE, "decode: %zu bytes that accel.encode did not write", n);
  if (memcmp(p, LAC_CODEC_HEAD, LAC_CODEC_HEAD_BYTES) != 0)
    return AC_FAIL(e, PARSE,
                   "decode: written by another version of accel: format %d, this one reads %d",
                   p[LAC_CODEC_VERSION_AT], LAC_CODEC_HEAD[LAC_CODEC_VERSION_AT]);
  r.at += LAC_CODEC_HEAD_BYTES;
  luaL_checkstack(L, 10, "decode");
  lua_newtable(L);
  r.refs = lua_gettop(L);
  bool ok = read_value(&r);
  if (ok && r.at != r.end) ok = fail_at(&r, r.at, "%zu bytes after the value", left(&r));
  if (!ok) {
    lua_settop(L, top);
    return e->code;
  }
  lua_replace(L, top + 1);
  lua_settop(L, top + 1);
  return AC_OK;
}
