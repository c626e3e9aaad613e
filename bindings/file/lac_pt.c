/* Files of torch.save for Lua: accel.load of a .pt, and services for stdlib's reader of
 * torch.distributed.checkpoint (accel.file.core): parts of files, the metadata.
 *
 * dict, OrderedDict and Counter are accel.util.ordered, list, tuple, torch.Size and set arrays, str
 * and bytes strings, None is accel.json.null in a list and absent from a dict, an int beyond 64
 * bits the string of its digits, a complex {real =, imag =}, a dtype our name of it. Values that
 * the file shares between places are shared here. */
#include <stdlib.h>
#include <string.h>

#include "accel/autograd.h"
#include "accel/file.h"
#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "file/pt.h"
#include "pt.h"

enum { SHOWN_PATH = 200 };

static int holder_close(lua_State *L) {
  lac_pt_holder *h = luaL_checkudata(L, 1, LAC_PT);
  ac_pt *f = h->f;
  h->f = NULL;
  ac_pt_close(f);
  return 0;
}

/* One conversion: tables at fixed places of the stack. */
typedef struct walk {
  lua_State *L;
  lac_state *S;
  ac_pt *f;
  ac_device *device;
  /* id -> table or tensor, storage -> u8 tensor, accel.util.ordered.new */
  int seen, storages, new_ordered;
  int failed; /* values of nil, message, code on top when not 0 */
  size_t path_len;
  char path[SHOWN_PATH + 32]; /* keys down to the value, for messages */
} walk;

static bool push_value(walk *w, uint32_t id);

static bool fail(walk *w, ac_err *e) {
  w->failed = lac_fail(w->L, e);
  return false;
}

static size_t path_add(walk *w, const char *s, size_t n) {
  const size_t was = w->path_len;
  if (was + n + 2 > SHOWN_PATH) return was;
  if (was > 0) w->path[w->path_len++] = '.';
  memcpy(w->path + w->path_len, s, n);
  w->path[w->path_len += n] = 0;
  return was;
}

static void path_cut(walk *w, size_t n) { w->path[w->path_len = n] = 0; }

/* ---- tensors ---- */

bool lac_pt_push_storage(lua_State *L, lac_state *S, ac_pt *f, int i, ac_device *d, ac_err *e) {
  ac_device *cpu;
  lac_box *b = lac_box_push(L, S);
  ac_tensor *t = NULL;
  const int64_t n = (int64_t)ac_pt_storage_bytes(f, i);
  if (ac_ctx_device(S->ctx, "cpu", &cpu, e) != AC_OK) return lac_raise(L, S, e);
  ac_status st = ac_tensor_new_class(cpu, AC_U8, 1, &n, AC_MEM_PARAMETER, &t, e);
  if (st == AC_OOM && lac_gc_oom(L, S))
    st = ac_tensor_new_class(cpu, AC_U8, 1, &n, AC_MEM_PARAMETER, &t, e);
  if (st != AC_OK) return lac_raise(L, S, e);
  lac_box_fill(S, b, t);
  if (ac_pt_read(f, i, t, e) != AC_OK) return false;
  if (d != cpu) {
    const ac_value v[3] = {{.kind = AC_T_TENSOR, .tensor = t},
                           {.kind = AC_T_DTYPE, .dtype = AC_U8},
                           {.kind = AC_T_DEVICE, .device = d}};
    lac_call_op(L, S, "to", v, 3, lac_box_push(L, S));
    lua_remove(L, -2);
  }
  return true;
}

/* Pushes the box of a storage's bytes on the device, read when a tensor needs it first. */
static bool push_storage(walk *w, int i) {
  ac_err e;
  if (lua_rawgeti(w->L, w->storages, i + 1) != LUA_TNIL) return true;
  lua_pop(w->L, 1);
  if (!lac_pt_push_storage(w->L, w->S, w->f, i, w->device, &e)) return fail(w, &e);
  lua_pushvalue(w->L, -1);
  lua_rawseti(w->L, w->storages, i + 1);
  return true;
}

static bool push_tensor(walk *w, const ac_pt_tensor *t) {
  lua_State *L = w->L;
  ac_err e;
  if (!t->has_dtype) {
    AC_FAIL(&e, DTYPE, "tensor '%s' is %s, which has no tensors here", w->path, t->dtype_name);
    return fail(w, &e);
  }
  if (!push_storage(w, t->storage)) return false;
  lac_box *b = lac_box_push(L, w->S), *bytes = lac_box_test(L, -2);
  ac_tensor *out = NULL;
  if (ac_tensor_view(ac_tensor_storage(bytes->t), t->dtype, t->ndim, t->shape, t->stride, t->offset,
                     &out, &e) != AC_OK)
    return lac_raise(L, w->S, &e);
  lac_box_fill(w->S, b, out);
  if (t->requires_grad && ac_dtype_is_float(t->dtype) &&
      ac_tensor_set_requires_grad(out, true, &e) != AC_OK)
    return lac_raise(L, w->S, &e);
  lua_remove(L, -2);
  return true;
}

/* ---- containers ---- */

/* The table is on top and stays there. */
static bool fill_list(walk *w, const ac_pt_value *v) {
  lua_State *L = w->L;
  char at[16];
  for (uint32_t i = 0; i < v->n; i++) {
    const size_t was = path_add(w, at, (size_t)snprintf(at, sizeof at, "%u", i));
    if (!push_value(w, v->item[i])) return false;
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      lua_pushlightuserdata(L, NULL); /* accel.json.null */
    }
    lua_rawseti(L, -2, (lua_Integer)i + 1);
    path_cut(w, was);
  }
  return true;
}

static bool fill_dict(walk *w, const ac_pt_value *v) {
  lua_State *L = w->L;
  for (uint32_t i = 0; i + 1 < v->n; i += 2) {
    if (!push_value(w, v->item[i])) return false;
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      lua_pushlightuserdata(L, NULL);
    }
    size_t n;
    const char *s = luaL_tolstring(L, -1, &n);
    const size_t was = path_add(w, s, n);
    lua_pop(L, 1);
    if (!push_value(w, v->item[i + 1])) return false;
    lua_settable(L, -3); /* the order is kept by __newindex */
    path_cut(w, was);
  }
  return true;
}

/* An object: its fields, and its class's name under `class`. The state of one with __slots__ is (None, fields). */
static bool push_object(walk *w, const ac_pt_value *v) {
  lua_State *L = w->L;
  const ac_pt_value *state = v->n > 1 ? ac_pt_at(w->f, v->item[1]) : NULL;
  if (state != NULL && state->kind == AC_PT_TUPLE && state->n == 2 &&
      ac_pt_at(w->f, state->item[0])->kind == AC_PT_NONE &&
      ac_pt_at(w->f, state->item[1])->kind == AC_PT_DICT)
    state = ac_pt_at(w->f, state->item[1]);
  lua_pushvalue(L, w->new_ordered);
  lua_call(L, 0, 1);
  if (!push_value(w, v->item[0])) return false;
  lua_setfield(L, -2, "class");
  if (v->n > 2) {
    if (!push_value(w, v->item[2])) return false;
    lua_setfield(L, -2, "size");
  }
  if (state == NULL) return true;
  if (state->kind == AC_PT_DICT) return fill_dict(w, state);
  if (state->kind == AC_PT_TUPLE) return fill_list(w, state);
  if (!push_value(w, v->item[1])) return false;
  lua_rawseti(L, -2, 1);
  return true;
}

static bool push_container(walk *w, uint32_t id, const ac_pt_value *v) {
  lua_State *L = w->L;
  luaL_checkstack(L, 12, "values inside each other");
  if (lua_rawgeti(L, w->seen, (lua_Integer)id + 1) != LUA_TNIL) return true;
  lua_pop(L, 1);
  if (v->kind == AC_PT_OBJECT) {
    if (!push_object(w, v)) return false;
  } else if (v->kind == AC_PT_TENSOR) {
    if (!push_tensor(w, ac_pt_tensor_at(w->f, v->i))) return false;
  } else if (v->kind == AC_PT_DICT) {
    lua_pushvalue(L, w->new_ordered);
    lua_call(L, 0, 1);
    if (!fill_dict(w, v)) return false;
  } else {
    lua_createtable(L, (int)(v->n < 1 << 24 ? v->n : 0), 0);
    if (!fill_list(w, v)) return false;
  }
  lua_pushvalue(L, -1);
  lua_rawseti(L, w->seen, (lua_Integer)id + 1);
  return true;
}

/* Pushes one value. None is nil. */
static bool push_value(walk *w, uint32_t id) {
  lua_State *L = w->L;
  const ac_pt_value *v = ac_pt_at(w->f, id);
  ac_dtype d;
  switch ((ac_pt_kind)v->kind) {
    case AC_PT_NONE: lua_pushnil(L); return true;
    case AC_PT_BOOL: lua_pushboolean(L, v->i != 0); return true;
    case AC_PT_INT: lua_pushinteger(L, v->i); return true;
    case AC_PT_FLOAT: lua_pushnumber(L, v->f); return true;
    case AC_PT_STR:
    case AC_PT_BYTES: lua_pushlstring(L, v->s, v->n); return true;
    case AC_PT_DTYPE:
      lua_pushlstring(L, v->s, v->n);
      if (ac_dtype_find(lua_tostring(L, -1), &d)) {
        lua_pop(L, 1);
        lua_pushstring(L, ac_dtype_name(d));
      }
      return true;
    case AC_PT_WIDE_INT: {
      char *digits = ac_pt_decimal(v);
      if (digits == NULL) return lac_error(L, w->S, AC_OOM, "load: no memory");
      lua_pushstring(L, digits);
      free(digits);
      return true;
    }
    case AC_PT_COMPLEX:
      lua_createtable(L, 0, 2);
      lua_pushnumber(L, ac_pt_at(w->f, v->item[0])->f);
      lua_setfield(L, -2, "real");
      lua_pushnumber(L, ac_pt_at(w->f, v->item[1])->f);
      lua_setfield(L, -2, "imag");
      return true;
    default: return push_container(w, id, v);
  }
}

/* ---- functions ---- */

typedef enum part_kind { WHOLE, PART, METADATA } part_kind;

static int load_tree(lua_State *L, lac_state *S, part_kind how, const char *path, uint64_t begin,
                     uint64_t bytes, ac_device *d) {
  ac_err e;
  walk w = {.L = L, .S = S, .device = d};
  lua_getglobal(L, "require");
  lua_pushliteral(L, "accel.util.ordered");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "new");
  w.new_ordered = lua_gettop(L);
  lua_newtable(L);
  w.seen = lua_gettop(L);
  lua_newtable(L);
  w.storages = lua_gettop(L);
  lac_pt_holder *h = lua_newuserdatauv(L, sizeof *h, 0);
  h->f = NULL;
  luaL_setmetatable(L, LAC_PT);
  lua_toclose(L, -1);
  const ac_status st = how == METADATA ? aci_pt_open_metadata(path, &h->f, &e)
                       : how == PART   ? aci_pt_open_part(path, begin, bytes, &h->f, &e)
                                       : ac_pt_open(path, &h->f, &e);
  if (st != AC_OK) return lac_fail(L, &e);
  w.f = h->f;
  if (!push_value(&w, ac_pt_root(w.f))) return w.failed;
  if (lua_isnil(L, -1)) lua_pushlightuserdata(L, NULL);
  return 1;
}

int lac_pt_load(lua_State *L, lac_state *S, const char *path, ac_device *d) {
  return load_tree(L, S, WHOLE, path, 0, UINT64_MAX, d);
}

/* load_part(path, byte, bytes [, {device =}]) -> the tree of a torch.save stream inside a file, or
 * nil, message, code */
static int load_part(lua_State *L) {
  static const char *const names[] = {"device", NULL};
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  const lua_Integer begin = luaL_checkinteger(L, 2), bytes = luaL_checkinteger(L, 3);
  luaL_argcheck(L, begin >= 0 && bytes >= 0, 2, "a part begins at 0 or later");
  lac_opts o = lac_opts_open(L, S, 4, names);
  ac_device *d = lac_opt_device(&o, "device", NULL);
  return load_tree(L, S, PART, path, (uint64_t)begin, (uint64_t)bytes, d);
}

/* dcp_metadata(path) -> the contents of a .metadata, as tables, or nil, message, code */
static int dcp_metadata(lua_State *L) {
  lac_state *S = lac_get(L);
  return load_tree(L, S, METADATA, lac_check_path(L, S, 1, "path", NULL), 0, UINT64_MAX, NULL);
}

LAC_OPEN("accel.file.core", pt_parts) {
  static const luaL_Reg funcs[] = {
      {"load_part", load_part}, {"dcp_metadata", dcp_metadata}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}

LAC_OPEN("accel", pt) {
  static const luaL_Reg metas[] = {{"__gc", holder_close}, {"__close", holder_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{NULL, NULL}};
  lac_new_class(L, S, LAC_PT, metas, methods);
}
