/* Lua values to bytes (codec.h has the format). Called by accel.encode.
 *
 * Making tables and strings may run finalizers, which may change the data being written. So keys
 * are kept in a Lua list, tensors are retained, and a table whose entries disappear meanwhile is an
 * error. */
#include "codec.h"

#include <stdlib.h>
#include <string.h>

#include "bindings/core/op.h"
#include "json.h"
#include "tensor/host_read.h"

/* One run: seen maps tables, strings and addresses of tensors to numbers, list keeps keys. */
typedef struct run {
  lua_State *L;
  lac_state *S;
  lac_encoder *w;
  int seen, list, depth;
} run;

static void write_value(run *r, int idx, const lac_value_path *p);

/* ---- errors ---- */

#define AT(p) lac_place_text(r->L, (p), where, sizeof where)

static void too_large(const run *r, const lac_value_path *p) {
  char where[200];
  lac_error(r->L, r->S, AC_INVALID, "encode: more than %zu bytes%s; raise the option max_bytes",
            r->w->max_bytes, AT(p));
}

static void changed(const run *r, const lac_value_path *p) {
  char where[200];
  lac_error(r->L, r->S, AC_STATE, "encode: a table changed while it was read%s", AT(p));
}

static void no_memory(const run *r) {
  lac_error(r->L, r->S, AC_OOM, "encode: no memory for %zu bytes", r->w->buf.len);
}

/* ---- bytes ---- */

static size_t put_varint(char *out, uint64_t v) {
  size_t n = 0;
  for (; v >= 0x80; v >>= 7) out[n++] = (char)(v | 0x80);
  out[n++] = (char)v;
  return n;
}

static void put(run *r, char tag, const void *bytes, size_t n, const lac_value_path *p) {
  aci_strbuf *b = &r->w->buf;
  if (n + 1 > r->w->max_bytes - b->len) too_large(r, p);
  if (!aci_strbuf_reserve(b, n + 1)) no_memory(r);
  b->s[b->len] = tag;
  if (n > 0) memcpy(b->s + b->len + 1, bytes, n);
  b->len += n + 1;
}

static void put_number(run *r, char tag, uint64_t v, const lac_value_path *p) {
  char buf[10];
  put(r, tag, buf, put_varint(buf, v), p);
}

/* ---- values that may recur ---- */

/* The value on top identifies it in `seen` (popped). True: it came before, and a reference was
 * written. */
static bool came_before(run *r, const lac_value_path *p) {
  lua_State *L = r->L;
  lua_pushvalue(L, -1);
  if (lua_rawget(L, r->seen) == LUA_TNUMBER) {
    put_number(r, 'R', (uint64_t)lua_tointeger(L, -1), p);
    lua_pop(L, 2);
    return true;
  }
  lua_pop(L, 1);
  lua_pushinteger(L, r->w->n_refs++);
  lua_rawset(L, r->seen);
  return false;
}

static void write_string(run *r, int idx, const lac_value_path *p) {
  size_t n;
  const char *s = lua_tolstring(r->L, idx, &n);
  if (n >= LAC_CODEC_SHARED) {
    lua_pushvalue(r->L, idx);
    if (came_before(r, p)) return;
  }
  if (n >= r->w->max_bytes) too_large(r, p);
  put_number(r, 'S', n, p);
  if (n > r->w->max_bytes - r->w->buf.len) too_large(r, p);
  aci_strbuf_add(&r->w->buf, s, n);
  if (r->w->buf.failed) no_memory(r);
}

/* ---- tensors ---- */

static void hold(run *r, ac_tensor *t) {
  lac_encoder *w = r->w;
  if (w->n_held == w->cap_held) {
    const size_t cap = w->cap_held * 2 + 8;
    ac_tensor **more = realloc(w->held, cap * sizeof(ac_tensor *));
    if (more == NULL) no_memory(r);
    w->held = more;
    w->cap_held = cap;
  }
  ac_tensor_retain(t);
  w->held[w->n_held++] = t;
}

/* Appends the values of t, n bytes. There is room for them. */
static void put_values(run *r, ac_tensor *t, size_t n) {
  aci_strbuf *b = &r->w->buf;
  ac_value v = {.kind = AC_T_TENSOR, .tensor = t}, results[AC_MAX_RESULTS];
  ac_tensor *dense = NULL;
  ac_err e;
  if (n == 0) return;
  if (!aci_is_contiguous(t)) {
    int n_results = 0;
    const bool grad = ac_ctx_set_grad_enabled(r->S->ctx, false);
    const ac_status st = lac_try_op(r->L, r->S, "clone", &v, 1, NULL, results, &n_results, &e);
    ac_ctx_set_grad_enabled(r->S->ctx, grad);
    if (st != AC_OK) lac_raise(r->L, r->S, &e);
    t = dense = results[0].tensor; /* contiguous, as every clone */
  }
  aci_host_read h;
  const ac_status st = aci_host_read_open(t, true, &h, &e);
  if (st == AC_OK) {
    memcpy(b->s + b->len, h.base + (size_t)t->offset * aci_dsize((ac_dtype)t->dtype), n);
    b->len += n;
    aci_host_read_close(&h);
  }
  ac_tensor_release(dense);
  if (st != AC_OK) lac_raise(r->L, r->S, &e);
}

static void write_tensor(run *r, int idx, const lac_value_path *p) {
  lua_State *L = r->L;
  lac_box *b = lac_box_test(L, idx);
  if (b == NULL || b->t == NULL) lac_codec_refuse(r->L, r->S, idx, p, false);
  ac_tensor *t = b->t;
  hold(r, t);
  lua_pushlightuserdata(L, t);
  if (came_before(r, p)) {
    ac_tensor_release(r->w->held[--r->w->n_held]);
    return;
  }
  if (r->w->by_reference) {
    char where[200];
    if (t->grad_fn != NULL) /* it would arrive without, and nobody would know */
      lac_error(L, r->S, AC_GRAD, "encode: a tensor that has a history%s; detach() it", AT(p));
    put_number(r, 'Y', r->w->n_held - 1, p);
    return;
  }
  const char *name = ac_dtype_name((ac_dtype)t->dtype);
  const bool has_bytes = t->device->kind != AC_DEV_META;
  const size_t bytes = has_bytes ? (size_t)t->numel * aci_dsize((ac_dtype)t->dtype) : 0,
               len = strlen(name);
  char head[32 + 10 * AC_MAX_DIMS];
  size_t n = 0;
  head[n++] = (char)len;
  memcpy(head + n, name, len);
  n += len;
  head[n++] = has_bytes;
  head[n++] = (char)t->ndim;
  for (int i = 0; i < t->ndim; i++) n += put_varint(head + n, (uint64_t)t->shape[i]);
  put(r, 'X', head, n, p);
  if (bytes > r->w->max_bytes - r->w->buf.len) too_large(r, p);
  if (!aci_strbuf_reserve(&r->w->buf, bytes)) no_memory(r);
  put_values(r, t, bytes);
}

/* ---- tables ---- */

/* Keeps the key on top (popped) for the table at p. */
static void add_key(run *r, const lac_value_path *p) {
  lua_State *L = r->L;
  lac_encoder *w = r->w;
  lac_codec_key k = {.slot = (lua_Integer)w->n_keys + 1};
  switch (lua_type(L, -1)) {
    case LUA_TNUMBER:
      k.kind = lua_isinteger(L, -1) ? LAC_KEY_INT : LAC_KEY_FLOAT;
      if (k.kind == LAC_KEY_INT) k.i = lua_tointeger(L, -1);
      else k.f = lua_tonumber(L, -1);
      break;
    case LUA_TSTRING:
      k.kind = LAC_KEY_STRING;
      k.s = lua_tolstring(L, -1, &k.n);
      break;
    case LUA_TBOOLEAN:
      k.kind = LAC_KEY_BOOL;
      k.i = lua_toboolean(L, -1);
      break;
    default: lac_codec_refuse(r->L, r->S, lua_gettop(L), p, true);
  }
  if (w->n_keys == w->cap_keys) {
    const size_t cap = w->cap_keys * 2 + 16;
    lac_codec_key *more = realloc(w->keys, cap * sizeof *more);
    if (more == NULL) no_memory(r);
    w->keys = more;
    w->cap_keys = cap;
  }
  w->keys[w->n_keys++] = k;
  lua_rawseti(L, r->list, k.slot);
}

/* Is the table at idx, whose metatable is on top, an accel.util.ordered? */
static bool is_ordered(lua_State *L, int idx) {
  const int top = lua_gettop(L);
  bool yes = false;
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  if (lua_getfield(L, -1, "accel.util.ordered") == LUA_TTABLE &&
      lua_getfield(L, -1, "is") == LUA_TFUNCTION) {
    lua_pushvalue(L, idx);
    lua_call(L, 1, 1);
    yes = lua_toboolean(L, -1);
  }
  lua_settop(L, top);
  return yes;
}

/* Keys in the order that __pairs of the table's metatable (on top) gives. */
static void add_ordered_keys(run *r, int idx, const lac_value_path *p) {
  lua_State *L = r->L;
  const int f = lua_gettop(L) + 1;
  if (lua_getfield(L, -1, "__pairs") == LUA_TNIL) changed(r, p);
  lua_pushvalue(L, idx);
  lua_call(L, 1, 3);
  for (;;) {
    lua_pushvalue(L, f);
    lua_pushvalue(L, f + 1);
    lua_pushvalue(L, f + 2);
    lua_call(L, 2, 1);
    if (lua_isnil(L, -1)) break;
    lua_pushvalue(L, -1);
    lua_replace(L, f + 2);
    add_key(r, p);
  }
  lua_settop(L, f - 1);
}

static void write_entry(run *r, int idx, const lac_value_path *p, const lac_value_path *at) {
  lua_pushvalue(r->L, at->key);
  if (lua_rawget(r->L, idx) == LUA_TNIL) changed(r, p);
  write_value(r, at->key, p);
  write_value(r, lua_gettop(r->L), at);
}

/* A table, its list part first, then its other keys in sorted order. The keys of all tables under
 * way are in one array, w->keys: ours are those from `base` on. The Lua list at r->list anchors
 * them, since writing an entry may run finalizers that change the table. Leaves the stack as it
 * was. */
static void write_table(run *r, int idx, const lac_value_path *p) {
  lua_State *L = r->L;
  lac_encoder *w = r->w;
  char tag = 't', counts[20];
  const int top = lua_gettop(L);
  const size_t base = w->n_keys;
  if (r->depth == LAC_CODEC_DEPTH) {
    char where[200];
    lac_error(L, r->S, AC_INVALID, "encode: tables nest more than %d deep%s", LAC_CODEC_DEPTH,
              AT(p));
  }
  if (lua_getmetatable(L, idx)) {
    lac_push_json_array(L);
    tag = lua_rawequal(L, -1, -2) ? 'a' : 'o';
    lua_pop(L, 1);
    if (tag == 'o' && !is_ordered(L, idx)) lac_codec_refuse(r->L, r->S, idx, p, false);
  }
  lua_pushvalue(L, idx);
  if (came_before(r, p)) { /* a reference to the first time was written */
    lua_settop(L, top);
    return;
  }
  lua_Integer n = 0;
  if (tag == 'o') {
    add_ordered_keys(r, idx, p);
  } else {
    for (; lua_rawgeti(L, idx, n + 1) != LUA_TNIL; lua_pop(L, 1)) n++;
    lua_pop(L, 1);
    for (lua_pushnil(L); lua_next(L, idx);) {
      lua_pop(L, 1);
      if (lua_isinteger(L, -1) && lua_tointeger(L, -1) >= 1 && lua_tointeger(L, -1) <= n) continue;
      lua_pushvalue(L, -1);
      add_key(r, p);
    }
  }
  const size_t n_pairs = w->n_keys - base;
  if (tag != 'o' && n_pairs > 1) qsort(w->keys + base, n_pairs, sizeof *w->keys, lac_codec_compare);
  size_t n_counts = tag == 'o' ? 0 : put_varint(counts, (uint64_t)n);
  n_counts += put_varint(counts + n_counts, n_pairs);
  put(r, tag, counts, n_counts, p);
  r->depth++;
  for (lua_Integer i = 1; i <= n; i++) {
    const lac_value_path at = {p, 0, i};
    if (lua_rawgeti(L, idx, i) == LUA_TNIL) changed(r, p);
    write_value(r, lua_gettop(L), &at);
    lua_pop(L, 1);
  }
  /* w->keys may move while entries are written: it is read anew */
  for (size_t k = 0; k < n_pairs; k++) {
    lua_rawgeti(L, r->list, w->keys[base + k].slot);
    const lac_value_path at = {p, lua_gettop(L), 0};
    write_entry(r, idx, p, &at);
    lua_pop(L, 2);
  }
  r->depth--;
  w->n_keys = base;
  lua_settop(L, top);
}

/* ---- values ---- */

static void write_value(run *r, int idx, const lac_value_path *p) {
  lua_State *L = r->L;
  luaL_checkstack(L, 12, "encode");
  switch (lua_type(L, idx)) {
    case LUA_TNIL: put(r, 'N', NULL, 0, p); return;
    case LUA_TBOOLEAN: put(r, lua_toboolean(L, idx) ? 'T' : 'F', NULL, 0, p); return;
    case LUA_TNUMBER:
      if (lua_isinteger(L, idx)) {
        const lua_Integer i = lua_tointeger(L, idx);
        put_number(r, 'I', (uint64_t)i << 1 ^ (i < 0 ? UINT64_MAX : 0), p);
      } else {
        const double f = lua_tonumber(L, idx);
        put(r, 'D', &f, sizeof f, p);
      }
      return;
    case LUA_TSTRING: write_string(r, idx, p); return;
    case LUA_TTABLE: write_table(r, idx, p); return;
    case LUA_TUSERDATA: write_tensor(r, idx, p); return;
    case LUA_TLIGHTUSERDATA:
      if (lua_touserdata(L, idx) == NULL) {
        put(r, 'Z', NULL, 0, p);
        return;
      }
      break;
    default: break;
  }
  lac_codec_refuse(r->L, r->S, idx, p, false);
}

void lac_encode(lua_State *L, lac_state *S, lac_encoder *w, int idx) {
  run r = {.L = L, .S = S, .w = w};
  const lac_value_path root = {NULL, 0, 0};
  const int top = lua_gettop(L);
  luaL_checkstack(L, 12, "encode");
  idx = lua_absindex(L, idx);
  lua_newtable(L);
  r.seen = lua_gettop(L);
  lua_newtable(L);
  r.list = lua_gettop(L);
  aci_strbuf_add(&w->buf, LAC_CODEC_HEAD, LAC_CODEC_HEAD_BYTES);
  if (w->buf.failed) no_memory(&r);
  if (w->buf.len > w->max_bytes) too_large(&r, &root);
  write_value(&r, idx, &root);
  lua_settop(L, top);
}
