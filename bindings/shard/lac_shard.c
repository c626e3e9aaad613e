/* accel.shard.core, the native part of accel.shard: memory of units and the ranges that ranks hold.
 * The Lua files of accel/shard are its only users.
 *
 *   boxes(shape, from, count) -> {{at =, count =, offsets = {...}, shape = {...}}, ...}   all from
 *   0
 *   bind(t, flat, offset)             t lies in flat's memory, as its dtype, from now on, from
 *                                     element offset (from 0)
 *   shares(group)                     whether the members map each other's memory
 *   shared(group, count, dtype, owner) -> flat tensor that all members map. owner: a group rank
 *   gathered(unit, count, dtype, device, gather, anywhere) -> flat tensor without bytes. gather()
 *   is called when a backward
 *                                     needs it. anywhere: when any op does
 *   set(flat, bytes)                  gives a gathered tensor its bytes, another tensor's. nil
 *                                     removes them
 *   there(flat), written(flat), used(flat)   whether it has bytes, whether an op wrote to them,
 *   whether an op has them now */
#include "bindings/core/callback.h"
#include "bindings/core/lac.h"
#include "bindings/comm/dist.h"
#include "shard/shard.h"

static void push_ints(lua_State *L, int n, const int64_t *v, const char *field) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, (lua_Integer)v[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, field);
}

static int boxes(lua_State *L) {
  lac_state *S = lac_get(L);
  int64_t shape[AC_MAX_DIMS], all = 1;
  int next;
  const int ndim = lac_check_shape(L, S, 1, 1, "shape", shape, &next);
  const int64_t from = lac_check_int(L, S, 2, "from"), count = lac_check_int(L, S, 3, "count");
  for (int i = 0; i < ndim; i++) all *= shape[i];
  if (from < 0 || count < 0 || count > all - from)
    return lac_argerror(L, S, AC_INVALID, NULL, 3, "count", "elements %lld .. %lld of %lld",
                        (long long)from, (long long)(from + count), (long long)all);
  aci_box *b = lua_newuserdatauv(L, ACI_MAX_BOXES * sizeof *b, 0);
  const int n = aci_boxes(ndim, shape, from, count, b);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_createtable(L, 0, 4);
    lua_pushinteger(L, (lua_Integer)b[i].at);
    lua_setfield(L, -2, "at");
    lua_pushinteger(L, (lua_Integer)b[i].count);
    lua_setfield(L, -2, "count");
    push_ints(L, ndim, b[i].offset, "offsets");
    push_ints(L, ndim, b[i].shape, "shape");
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

static int bind(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_tensor *t = lac_check_tensor(L, S, 1, "t"), *flat = lac_check_tensor(L, S, 2, "flat");
  const int64_t offset = lac_check_int(L, S, 3, "offset");
  const ac_status st =
      aci_tensor_bind(t, flat->storage, (ac_dtype)flat->dtype, flat->offset + offset, &e);
  return st == AC_OK ? 0 : lac_raise(L, S, &e);
}

static int shares(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_group *own;
  lua_pushboolean(L, ac_group_shares_memory(lac_check_group(L, S, 1, &own)));
  return 1;
}

/* Fills the box on top with a flat tensor of the storage, whose reference is taken. */
static ac_status fill(lac_state *S, lac_box *b, ac_storage *s, ac_dtype dt, int64_t count,
                      ac_err *e) {
  ac_tensor *t = NULL;
  const ac_status st = ac_tensor_view(s, dt, 1, &count, NULL, 0, &t, e);
  ac_storage_release(s);
  if (st == AC_OK) lac_box_fill(S, b, t);
  return st;
}

static int shared(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  lac_group *own;
  char site[LAC_SITE];
  ac_storage *s;
  ac_group *g = lac_check_group(L, S, 1, &own);
  const int64_t count = lac_check_int(L, S, 2, "count");
  const ac_dtype dt = lac_check_dtype(L, S, 3, "dtype");
  const int64_t owner = lac_check_int(L, S, 4, "owner");
  lac_box *b = lac_box_push(L, S);
  ac_status st = ac_group_shared_storage(g, (size_t)count * ac_dtype_bytes(dt), (int)owner,
                                         lac_site(L, S, 1, site), &s, &e);
  if (st == AC_OK) st = fill(S, b, s, dt, count, &e);
  return st == AC_OK ? 1 : lac_raise(L, S, &e);
}

static int gather_body(lua_State *L) {
  const lac_callback *cb = lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, cb->ref);
  lua_call(L, 0, 0);
  return 0;
}

static ac_status gather(void *user, ac_err *e) {
  lac_callback *cb = user;
  return lac_protect(cb->state, gather_body, cb, e);
}

static int gathered(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_storage *s;
  const char *unit = lac_check_string(L, S, 1, "unit", NULL);
  const int64_t count = lac_check_int(L, S, 2, "count");
  const ac_dtype dt = lac_check_dtype(L, S, 3, "dtype");
  ac_device *d = lac_check_device(L, S, 4, "device");
  lac_check_function(L, S, 5, "gather");
  const bool anywhere = lua_toboolean(L, 6);
  lac_box *b = lac_box_push(L, S);
  lac_callback *cb = lac_callback_new(L, S, 5);
  ac_status st = aci_gathered_new(S->ctx, d, (size_t)count * ac_dtype_bytes(dt), unit, anywhere,
                                  gather, cb, lac_callback_free, &s, &e);
  if (st != AC_OK) lac_callback_free(cb);
  else st = fill(S, b, s, dt, count, &e);
  return st == AC_OK ? 1 : lac_raise(L, S, &e);
}

static ac_storage *check_gathered(lua_State *L, lac_state *S) {
  const ac_tensor *t = lac_check_tensor(L, S, 1, "flat");
  if (!aci_gathered_is(t->storage))
    lac_argerror(L, S, AC_INVALID, NULL, 1, "flat", "expected a tensor of core.gathered");
  return t->storage;
}

static int set(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_storage *s = check_gathered(L, S);
  const ac_tensor *bytes = lua_isnoneornil(L, 2) ? NULL : lac_check_tensor(L, S, 2, "bytes");
  return aci_gathered_set(s, bytes != NULL ? bytes->storage : NULL, &e) == AC_OK
             ? 0
             : lac_raise(L, S, &e);
}

static int there(lua_State *L) {
  lua_pushboolean(L, aci_gathered_there(check_gathered(L, lac_get(L))));
  return 1;
}

static int used(lua_State *L) {
  lua_pushboolean(L, aci_gathered_used(check_gathered(L, lac_get(L))));
  return 1;
}

static int written(lua_State *L) {
  lua_pushboolean(L, aci_gathered_written(check_gathered(L, lac_get(L))));
  return 1;
}

LAC_OPEN("accel.shard.core", shard) {
  static const luaL_Reg funcs[] = {{"boxes", boxes},   {"bind", bind},         {"shares", shares},
                                   {"shared", shared}, {"gathered", gathered}, {"set", set},
                                   {"there", there},   {"used", used},         {"written", written},
                                   {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
