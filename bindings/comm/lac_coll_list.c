/* Collectives over lists of tensors, one for each rank: all_gather, gather, scatter,
 * reduce_scatter, all_to_all. The core takes parts one after the other: contiguous lists
 * (t:chunk(n), t:unbind()) go unchanged, others through a copy. */
#include <stdio.h>

#include "dist.h"

/* The list at idx: a tensor for each rank of the group, of like's dtype and device (NULL: its first
 * one's), each checked. */
static lac_list *check_list(lua_State *L, lac_state *S, const lac_coll *k, int idx,
                            const char *name, bool written, const char *like_name,
                            const ac_tensor *like) {
  char what[64], buf[96];
  const int n = ac_group_size(k->g);
  if (!lua_istable(L, idx))
    lac_coll_bad(L, S, k, AC_INVALID, "%s: expected list of %d tensors, one for each rank, got %s",
                 name, n, lac_typename(L, idx, buf, sizeof buf));
  for (int i = 0; i < n && i < (int)lua_rawlen(L, idx); i++) {
    lua_rawgeti(L, idx, i + 1);
    const lac_box *b = lac_box_test(L, -1);
    if (b == NULL || b->t == NULL)
      lac_coll_bad(L, S, k, b == NULL ? AC_INVALID : AC_RELEASED, "%s[%d]: expected tensor, got %s",
                   name, i + 1, lac_typename(L, -1, buf, sizeof buf));
    lua_pop(L, 1);
  }
  lac_list *l = lac_check_list(L, S, idx, name, false);
  if (l->n != n)
    lac_coll_bad(L, S, k, AC_INVALID,
                 "%s has %d tensor%s, the group has %d rank%s; give one for each", name, l->n,
                 l->n == 1 ? "" : "s", n, n == 1 ? "" : "s");
  for (int i = 0; i < n; i++) {
    snprintf(what, sizeof what, "%s[%d]", name, i + 1);
    lac_coll_tensor(L, S, k, l->t[i], written);
    lac_coll_alike(L, S, k, what, l->t[i], like_name, like != NULL ? like : l->t[0]);
  }
  return l;
}

/* Shapes alike: all of them, or but for the first extent. */
static void check_shape(lua_State *L, lac_state *S, const lac_coll *k, const char *list, int i,
                        const ac_tensor *t, const char *name, const ac_tensor *like, bool uneven) {
  char a[128], b[128];
  bool same = t->ndim == like->ndim;
  for (int d = uneven ? 1 : 0; same && d < t->ndim; d++) same = t->shape[d] == like->shape[d];
  if (same) return;
  lac_coll_bad(L, S, k, AC_SHAPE, "%s[%d] is %s, %s is %s; %s", list, i + 1,
               aci_tensor_str(t, a, sizeof a), name, aci_tensor_str(like, b, sizeof b),
               uneven ? "they may differ in the first extent only" : "they must have one shape");
}

/* Every entry must equal t except in the first extent. This rank's own has its shape. */
static void check_uneven(lua_State *L, lac_state *S, const lac_coll *k, const char *list,
                         const lac_list *l, const char *name, const ac_tensor *t) {
  const int own = ac_group_rank(k->g);
  for (int i = 0; i < l->n; i++) check_shape(L, S, k, list, i, l->t[i], name, t, i != own);
}

/* The parts' sizes: count if all are equal, otherwise a list of them, pushed. */
static void set_counts(lua_State *L, lac_coll *k, const lac_list *l) {
  int64_t *counts = lua_newuserdatauv(L, ((size_t)l->n + 1) * sizeof *counts, 0);
  bool even = true;
  for (int i = 0; i < l->n; i++) {
    counts[i] = l->t[i]->numel;
    even &= counts[i] == counts[0];
  }
  k->c.count = counts[0];
  if (!even) k->c.counts = counts;
}

/* The tensor at idx in a list that keeps it, whatever the collector's finalizers release
 * meanwhile. */
static lac_list *check_one(lua_State *L, lac_state *S, int idx, const char *name) {
  lac_list *one = lac_check_list(L, S, idx, name, false);
  lac_check_tensor(L, S, idx, name); /* and no list */
  return one;
}

/* Runs a collective between the one tensor of this rank and a list with one for each rank (NULL:
 * this rank has none). gathers: the list receives, else the tensor. Releases both. */
static int run(lua_State *L, lac_state *S, lac_coll *k, lac_list *one, lac_list *l, bool gathers) {
  ac_tensor *t = one->t[0];
  k->c.dtype = (ac_dtype)t->dtype;
  k->c.site = lac_site(L, S, 1, k->site);
  lac_coll_place(L, S, k, t);
  lac_work *w = lac_work_push(L, S, k, !gathers ? 1 : l != NULL ? l->n : 0);
  lac_work_take(L, k, w, gathers ? &w->send : &w->recv, t, gathers ? LAC_READ : LAC_WRITE);
  if (l != NULL) {
    lac_work_take_list(L, k, w, gathers ? &w->recv : &w->send, l, gathers ? LAC_WRITE : LAC_READ);
    lac_list_release(l);
  }
  lac_list_release(one);
  return lac_work_run(L, k, w);
}

/* all_gather(list, t [, opts]): entry r gets rank r's t. First extents may differ from rank to
 * rank */
static int all_gather(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_coll k;
  lac_args_end(L, S, 3);
  lac_coll_open(L, S, &k, "all_gather", AC_COLL_ALL_GATHER, 3, LAC_O_ASYNC);
  lac_list *in = check_one(L, S, 2, "tensor");
  lac_coll_tensor(L, S, &k, in->t[0], false);
  lac_list *l = check_list(L, S, &k, 1, "tensor_list", true, "tensor", in->t[0]);
  check_uneven(L, S, &k, "tensor_list", l, "tensor", in->t[0]);
  set_counts(L, &k, l);
  return run(L, S, &k, in, l, true);
}

/* reduce_scatter(out, list [, op] [, opts]): out gets the reduction of all ranks' entry for this
 * rank */
static int reduce_scatter(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_coll k;
  lac_args_end(L, S, 4);
  lac_coll_open(L, S, &k, "reduce_scatter", AC_COLL_REDUCE_SCATTER, 3, LAC_O_ASYNC | LAC_O_OP);
  lac_list *out = check_one(L, S, 1, "output");
  lac_coll_tensor(L, S, &k, out->t[0], true);
  lac_list *l = check_list(L, S, &k, 2, "input_list", false, "output", out->t[0]);
  check_uneven(L, S, &k, "input_list", l, "output", out->t[0]);
  set_counts(L, &k, l);
  return run(L, S, &k, out, l, false);
}

/* gather and scatter: the root alone has a list, under the option `list`. */
static int with_root(lua_State *L, bool gathers) {
  lac_state *S = lac_get(L);
  lac_coll k;
  const char *list = gathers ? "gather_list" : "scatter_list", *root = gathers ? "dst" : "src";
  lac_args_end(L, S, 2);
  const lac_opts o = lac_coll_open(
      L, S, &k, gathers ? "gather" : "scatter", gathers ? AC_COLL_GATHER : AC_COLL_SCATTER, 2,
      LAC_O_ASYNC | (gathers ? LAC_O_DST | LAC_O_GATHER : LAC_O_SRC | LAC_O_SCATTER));
  lac_coll_root(&k, &o, 0, root, 0);
  lac_list *one = check_one(L, S, 1, "tensor"), *l = NULL;
  lac_coll_tensor(L, S, &k, one->t[0], !gathers);
  const bool has = ac_group_rank(k.g) == k.c.root;
  const int at = lac_opt_push(&o, list), rank = ac_world_rank(S->ranks->world);
  const char *does = gathers ? "receives" : "sends";
  if (has && at == 0)
    return lac_coll_bad(L, S, &k, AC_INVALID, "rank %d %s: it needs %s, a tensor for each rank",
                        rank, does, list);
  if (!has && at != 0)
    return lac_coll_bad(L, S, &k, AC_INVALID, "rank %d %s nothing: %s is for %s alone", rank, does,
                        list, root);
  if (has) {
    l = check_list(L, S, &k, at, list, gathers, "tensor", one->t[0]);
    for (int i = 0; i < l->n; i++)
      check_shape(L, S, &k, list, i, l->t[i], "tensor", one->t[0], false);
  }
  k.c.count = one->t[0]->numel;
  return run(L, S, &k, one, l, gathers);
}

/* gather(t [, {gather_list =, dst = 0}]) */
static int gather(lua_State *L) { return with_root(L, true); }
/* scatter(t [, {scatter_list =, src = 0}]) */
static int scatter(lua_State *L) { return with_root(L, false); }

/* all_to_all(outs, ins [, opts]): entry r of ins goes to rank r, entry r of outs comes from it */
static int all_to_all(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_coll k;
  lac_args_end(L, S, 3);
  lac_coll_open(L, S, &k, "all_to_all", AC_COLL_ALL_TO_ALL, 3, LAC_O_ASYNC);
  lac_list *in = check_list(L, S, &k, 2, "input_list", false, "input_list[1]", NULL);
  const ac_tensor *first = in->t[0];
  lac_list *out = check_list(L, S, &k, 1, "output_list", true, "input_list[1]", first);
  const int own = ac_group_rank(k.g), n = in->n;
  check_shape(L, S, &k, "output_list", own, out->t[own], "this rank's own entry of input_list",
              in->t[own], false);
  int64_t *counts = lua_newuserdatauv(L, 2 * (size_t)n * sizeof *counts, 0);
  for (int i = 0; i < n; i++) {
    counts[i] = in->t[i]->numel;
    counts[n + i] = out->t[i]->numel;
  }
  k.c.dtype = (ac_dtype)first->dtype;
  k.c.counts = counts;
  k.c.recv_counts = counts + n;
  k.c.site = lac_site(L, S, 1, k.site);
  lac_coll_place(L, S, &k, first);
  lac_work *w = lac_work_push(L, S, &k, n);
  lac_work_take_list(L, &k, w, &w->recv, out, LAC_WRITE);
  lac_work_take_list(L, &k, w, &w->send, in, LAC_READ);
  lac_list_release(out);
  lac_list_release(in);
  return lac_work_run(L, &k, w);
}

LAC_OPEN("accel.dist.core", list_collectives) {
  static const luaL_Reg funcs[] = {{"all_gather", all_gather}, {"gather", gather},
                                   {"scatter", scatter},       {"reduce_scatter", reduce_scatter},
                                   {"all_to_all", all_to_all}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
