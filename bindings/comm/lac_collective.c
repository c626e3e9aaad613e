/* Collectives with one tensor on either side: all_reduce, reduce, broadcast,
 * all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single, send, recv, isend, irecv,
 * barrier.
 *
 * A contiguous tensor goes to the core directly. Others travel through a copy (lac_work.c). Writes
 * follow the rules of ops that write in place: no leaf that requires gradients, versions rise,
 * history ends. */
#include <stdio.h>
#include <string.h>

#include "autograd/node.h"
#include "dist.h"

/* The collective between the tensors at the indices, which were checked. 0: none. The same index:
 * in place. */
static int run(lua_State *L, lac_state *S, lac_coll *k, int i_send, int i_recv) {
  /* a root's broadcast reads the buffer that the others receive in */
  const bool reads = k->c.kind == AC_COLL_BROADCAST && k->c.root == ac_group_rank(k->g);
  ac_tensor *s = i_send != 0 ? ((lac_box *)lua_touserdata(L, i_send))->t : NULL,
            *r = i_recv != 0 ? ((lac_box *)lua_touserdata(L, i_recv))->t : NULL;
  k->c.site = lac_site(L, S, 1, k->site);
  lac_coll_place(L, S, k, s != NULL ? s : r);
  if (!k->async && (s == NULL || lac_coll_direct(k, s)) && (r == NULL || lac_coll_direct(k, r)) &&
      (s == NULL || r == NULL || i_send == i_recv || !lac_work_clash(k, s, r))) {
    ac_err e;
    k->c.send = s != NULL ? aci_data(s) : NULL;
    k->c.recv = r != NULL ? aci_data(r) : NULL;
    if (ac_collective(k->g, &k->c, &e) != AC_OK) return lac_coll_raise(L, S, k, &e);
    if (r != NULL && !reads) aci_write_done(S->ctx, r);
    return 0;
  }
  lac_work *w = lac_work_push(L, S, k, 1); /* the collector may have run finalizers */
  if (i_send != 0 && i_send == i_recv) {
    lac_work_take(L, k, w, &w->recv, lac_check_tensor(L, S, i_recv, "tensor"),
                  LAC_READ | LAC_WRITE);
    ac_tensor_retain(w->send = w->recv);
  } else {
    if (i_recv != 0)
      lac_work_take(L, k, w, &w->recv, lac_check_tensor(L, S, i_recv, "tensor"),
                    reads ? LAC_READ : LAC_WRITE);
    if (i_send != 0)
      lac_work_take(L, k, w, &w->send, lac_check_tensor(L, S, i_send, "tensor"), LAC_READ);
  }
  return lac_work_run(L, k, w);
}

/* ---- the functions ---- */

/* all_reduce(t [, op] [, opts]): the usual call, a tensor alone, takes a short way. */
static int all_reduce(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_coll k;
  ac_tensor *t = lac_check_tensor(L, S, 1, "tensor");
  if (lua_gettop(L) == 1 && S->ranks->world != NULL && S->ranks->alone[0] == 0) {
    k.name = "all_reduce";
    k.c = (ac_coll){.kind = AC_COLL_ALL_REDUCE, .op = AC_REDUCE_SUM};
    k.g = ac_world_group(S->ranks->world);
    k.own = NULL;
    k.async = false;
  } else {
    lac_args_end(L, S, 3);
    lac_coll_open(L, S, &k, "all_reduce", AC_COLL_ALL_REDUCE, 2, LAC_O_ASYNC | LAC_O_OP);
    t = lac_check_tensor(L, S, 1, "tensor");
  }
  lac_coll_tensor(L, S, &k, t, true);
  k.c.dtype = (ac_dtype)t->dtype;
  k.c.count = t->numel;
  return run(L, S, &k, 1, 1);
}

/* reduce(t, dst [, op] [, opts]): in place at dst */
static int reduce(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_coll k;
  const bool named = lac_is_opts(L, 2);
  lac_args_end(L, S, 4);
  const lac_opts o = lac_coll_open(L, S, &k, "reduce", AC_COLL_REDUCE, named ? 2 : 3,
                                   LAC_O_ASYNC | LAC_O_OP | LAC_O_DST);
  lac_coll_root(&k, &o, named ? 0 : 2, "dst", -1);
  const bool gets = ac_group_rank(k.g) == k.c.root;
  const ac_tensor *t = lac_check_tensor(L, S, 1, "tensor");
  lac_coll_tensor(L, S, &k, t, gets);
  k.c.dtype = (ac_dtype)t->dtype;
  k.c.count = t->numel;
  return run(L, S, &k, 1, gets ? 1 : 0);
}

/* broadcast(t, src [, opts]) */
static int broadcast(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_coll k;
  const bool named = lac_is_opts(L, 2);
  lac_args_end(L, S, 3);
  const lac_opts o = lac_coll_open(L, S, &k, "broadcast", AC_COLL_BROADCAST, named ? 2 : 3,
                                   LAC_O_ASYNC | LAC_O_SRC);
  lac_coll_root(&k, &o, named ? 0 : 2, "src", -1);
  const ac_tensor *t = lac_check_tensor(L, S, 1, "tensor");
  lac_coll_tensor(L, S, &k, t, ac_group_rank(k.g) != k.c.root);
  k.c.dtype = (ac_dtype)t->dtype;
  k.c.count = t->numel;
  return run(L, S, &k, 0, 1);
}

/* Whole and part: (part, whole) with whole->numel == part->numel * ranks. */
static void check_whole(lua_State *L, lac_state *S, const lac_coll *k, const char *np,
                        const ac_tensor *part, const char *nw, const ac_tensor *whole) {
  char a[128], b[128];
  const int n = ac_group_size(k->g);
  lac_coll_alike(L, S, k, nw, whole, np, part);
  if (part->numel <= INT64_MAX / n && whole->numel == part->numel * n) return;
  lac_coll_bad(L, S, k, AC_SHAPE,
               "%s %s must have %d times the elements of %s %s, one part for each rank", nw,
               aci_tensor_str(whole, a, sizeof a), n, np, aci_tensor_str(part, b, sizeof b));
}

/* all_gather_into_tensor(out, t [, opts]) */
static int all_gather_into_tensor(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_coll k;
  lac_args_end(L, S, 3);
  lac_coll_open(L, S, &k, "all_gather_into_tensor", AC_COLL_ALL_GATHER, 3, LAC_O_ASYNC);
  const ac_tensor *out = lac_check_tensor(L, S, 1, "output_tensor"),
                  *t = lac_check_tensor(L, S, 2, "input_tensor");
  lac_coll_tensor(L, S, &k, t, false);
  lac_coll_tensor(L, S, &k, out, true);
  check_whole(L, S, &k, "input_tensor", t, "output_tensor", out);
  k.c.dtype = (ac_dtype)t->dtype;
  k.c.count = t->numel;
  return run(L, S, &k, 2, 1);
}

/* reduce_scatter_tensor(out, t [, op] [, opts]) */
static int reduce_scatter_tensor(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_coll k;
  lac_args_end(L, S, 4);
  lac_coll_open(L, S, &k, "reduce_scatter_tensor", AC_COLL_REDUCE_SCATTER, 3,
                LAC_O_ASYNC | LAC_O_OP);
  const ac_tensor *out = lac_check_tensor(L, S, 1, "output"),
                  *t = lac_check_tensor(L, S, 2, "input");
  lac_coll_tensor(L, S, &k, t, false);
  lac_coll_tensor(L, S, &k, out, true);
  check_whole(L, S, &k, "output", out, "input", t);
  k.c.dtype = (ac_dtype)t->dtype;
  k.c.count = out->numel;
  return run(L, S, &k, 2, 1);
}

/* Rows for each rank, from the option or in equal parts, as counts of elements. */
static void split_sizes(lua_State *L, lac_state *S, const lac_coll *k, const lac_opts *o,
                        const char *option, const char *name, const ac_tensor *t, int64_t *counts) {
  char a[128];
  const int n = ac_group_size(k->g), at = lac_opt_push(o, option);
  const int64_t rows = t->ndim > 0 ? t->shape[0] : 1,
                row = t->ndim > 0 && rows > 0 ? t->numel / rows : 1;
  if (at == 0) {
    if (rows % n != 0)
      lac_coll_bad(L, S, k, AC_SHAPE,
                   "the first extent of %s %s does not divide by %d ranks; give %s", name,
                   aci_tensor_str(t, a, sizeof a), n, option);
    for (int i = 0; i < n; i++) counts[i] = rows / n * row;
    return;
  }
  if (!lua_istable(L, at) || lua_rawlen(L, at) != (lua_Unsigned)n)
    lac_argerror(L, S, AC_INVALID, k->name, 0, option,
                 "expected a list of %d numbers of rows, got %s of %d", n, luaL_typename(L, at),
                 lua_istable(L, at) ? (int)lua_rawlen(L, at) : 0);
  int64_t sum = 0;
  for (int i = 0; i < n; i++) {
    int ok = 0;
    lua_rawgeti(L, at, i + 1);
    const lua_Integer v = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &ok) : 0;
    if (!ok || v < 0 || v > rows - sum)
      lac_argerror(L, S, AC_INVALID, k->name, 0, option,
                   "entry %d is %s; all together must be the %lld rows of %s", i + 1,
                   luaL_tolstring(L, -1, NULL), (long long)rows, name);
    sum += v;
    counts[i] = v * row;
    lua_pop(L, 1);
  }
  if (sum != rows)
    lac_argerror(L, S, AC_INVALID, k->name, 0, option, "the sum is %lld, %s %s has %lld rows",
                 (long long)sum, name, aci_tensor_str(t, a, sizeof a), (long long)rows);
  lua_pop(L, 1);
}

/* all_to_all_single(out, t [, {output_split_sizes =, input_split_sizes =}]) */
static int all_to_all_single(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_coll k;
  lac_args_end(L, S, 3);
  const lac_opts o = lac_coll_open(L, S, &k, "all_to_all_single", AC_COLL_ALL_TO_ALL, 3,
                                   LAC_O_ASYNC | LAC_O_SPLITS);
  const size_t n = (size_t)ac_group_size(k.g);
  int64_t *counts = lua_newuserdatauv(L, 2 * n * sizeof *counts, 0);
  const ac_tensor *out = lac_check_tensor(L, S, 1, "output"),
                  *t = lac_check_tensor(L, S, 2, "input");
  lac_coll_tensor(L, S, &k, t, false);
  lac_coll_tensor(L, S, &k, out, true);
  lac_coll_alike(L, S, &k, "output", out, "input", t);
  split_sizes(L, S, &k, &o, "input_split_sizes", "input", t, counts);
  split_sizes(L, S, &k, &o, "output_split_sizes", "output", out, counts + n);
  k.c.dtype = (ac_dtype)t->dtype;
  k.c.counts = counts;
  k.c.recv_counts = counts + n;
  return run(L, S, &k, 2, 1);
}

static int pair(lua_State *L, const char *name, ac_coll_kind kind, bool async) {
  lac_state *S = lac_get(L);
  lac_coll k;
  const bool named = lac_is_opts(L, 2), sends = kind == AC_COLL_SEND;
  lac_args_end(L, S, 3);
  const lac_opts o = lac_coll_open(L, S, &k, name, kind, named ? 2 : 3,
                                   LAC_O_TAG | (sends ? LAC_O_DST : LAC_O_SRC));
  lac_coll_root(&k, &o, named ? 0 : 2, sends ? "dst" : "src", -1);
  k.async = async;
  const ac_tensor *t = lac_check_tensor(L, S, 1, "tensor");
  lac_coll_tensor(L, S, &k, t, !sends);
  k.c.dtype = (ac_dtype)t->dtype;
  k.c.count = t->numel;
  const int n = run(L, S, &k, sends ? 1 : 0, sends ? 0 : 1);
  if (sends || async) return n;
  lua_pushinteger(L, ac_group_global_rank(k.g, k.c.root));
  return 1;
}

static int send_(lua_State *L) { return pair(L, "send", AC_COLL_SEND, false); }
static int recv_(lua_State *L) { return pair(L, "recv", AC_COLL_RECV, false); }
static int isend(lua_State *L) { return pair(L, "isend", AC_COLL_SEND, true); }
static int irecv(lua_State *L) { return pair(L, "irecv", AC_COLL_RECV, true); }

/* barrier([opts]) */
static int barrier(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_coll k;
  lac_args_end(L, S, 1);
  lac_coll_open(L, S, &k, "barrier", AC_COLL_BARRIER, 1, LAC_O_ASYNC);
  return run(L, S, &k, 0, 0);
}

LAC_OPEN("accel.dist.core", collectives) {
  static const luaL_Reg funcs[] = {{"all_reduce", all_reduce},
                                   {"reduce", reduce},
                                   {"broadcast", broadcast},
                                   {"all_gather_into_tensor", all_gather_into_tensor},
                                   {"reduce_scatter_tensor", reduce_scatter_tensor},
                                   {"all_to_all_single", all_to_all_single},
                                   {"send", send_},
                                   {"recv", recv_},
                                   {"isend", isend},
                                   {"irecv", irecv},
                                   {"barrier", barrier},
                                   {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
