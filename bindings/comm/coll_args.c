/* Checks shared by all collectives of Lua (dist.h): options, the root, tensors, and how they
 * raise. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "autograd/node.h"
#include "comm/comm_impl.h"
#include "dist.h"
#include "bindings/ops/placeholders.h"

/* ---- errors ---- */

int lac_coll_bad(lua_State *L, lac_state *S, const lac_coll *k, ac_status code, const char *fmt,
                 ...) {
  ac_err e = {.code = code, .rank = -1};
  snprintf(e.op, sizeof e.op, "%s", k->name);
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(e.msg, sizeof e.msg, fmt, ap);
  va_end(ap);
  return lac_raise(L, S, &e);
}

int lac_coll_raise(lua_State *L, lac_state *S, const lac_coll *k, ac_err *e) {
  if (e->op[0] == 0) snprintf(e->op, sizeof e->op, "%s", ac_coll_name(k->c.kind));
  return lac_raise(L, S, e);
}

/* ---- options ---- */

static ac_reduce_op reduce_op(lua_State *L, lac_state *S, const char *s) {
  static const struct {
    const char *name;
    ac_reduce_op op;
  } ops[] = {{"sum", AC_REDUCE_SUM},     {"avg", AC_REDUCE_MEAN}, {"mean", AC_REDUCE_MEAN},
             {"min", AC_REDUCE_MIN},     {"max", AC_REDUCE_MAX},  {"prod", AC_REDUCE_PROD},
             {"product", AC_REDUCE_PROD}};
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
    if (strcmp(ops[i].name, s) == 0) return ops[i].op;
  lac_argerror(L, S, AC_INVALID, NULL, 0, "op",
               "no reduction '%s'; there are sum, avg, min, max, prod", s);
  return AC_REDUCE_SUM;
}

/* The table of options at idx, whose keys are group and those that `which` stands for. */
static lac_opts open_table(lua_State *L, lac_state *S, int idx, unsigned which) {
  static const char *const options[] = {
      "async_op", "op", "dst", "src", "tag", "output_split_sizes", "gather_list", "scatter_list"};
  static const char *const in_group[] = {
      NULL, NULL, "group_dst", "group_src", NULL, "input_split_sizes", NULL, NULL};
  const char *names[2 * sizeof options / sizeof options[0] + 2];
  int n = 0;
  names[n++] = "group";
  for (unsigned i = 0; i < sizeof options / sizeof options[0]; i++) {
    if (!(which >> i & 1)) continue;
    names[n++] = options[i];
    if (in_group[i] != NULL) names[n++] = in_group[i];
  }
  names[n] = NULL;
  return lac_opts_open(L, S, idx, names);
}

lac_opts lac_coll_open(lua_State *L, lac_state *S, lac_coll *k, const char *name, ac_coll_kind kind,
                       int idx, unsigned which) {
  const char *op = NULL;
  lac_opts o = {L, S, 0};
  k->name = name;
  k->c = (ac_coll){.kind = kind, .op = AC_REDUCE_SUM};
  k->own = NULL;
  k->async = false;
  if ((which & LAC_O_OP) && lua_type(L, idx) == LUA_TSTRING) op = lua_tostring(L, idx++);
  if (!lua_isnoneornil(L, idx)) {
    o = open_table(L, S, idx, which);
    if (which & LAC_O_ASYNC) k->async = lac_opt_bool(&o, "async_op", false);
    if (which & LAC_O_OP) op = lac_opt_string(&o, "op", op);
    if (which & LAC_O_TAG) {
      const int64_t tag = lac_opt_int(&o, "tag", 0);
      if (tag < 0 || tag > INT32_MAX)
        lac_argerror(L, S, AC_INVALID, name, 0, "tag", "expected 0 .. %d, got %lld", INT32_MAX,
                     (long long)tag);
      k->c.tag = (int)tag;
    }
  }
  if (op != NULL) k->c.op = reduce_op(L, S, op);
  if (lac_opt_push(&o, "group") != 0) {
    k->g = lac_check_group(L, S, -1, &k->own);
    lua_pop(L, 1);
  } else {
    k->g = ac_world_group(lac_world(L, S));
  }
  if (ac_group_rank(k->g) < 0)
    lac_coll_bad(L, S, k, AC_INVALID,
                 "rank %d is not a member of the group; only members may call it",
                 ac_world_rank(S->ranks->world));
  if (S->ranks->alone[0] != 0 && kind != AC_COLL_SEND && kind != AC_COLL_RECV &&
      ac_group_size(k->g) > S->ranks->alone_ranks)
    lac_coll_bad(
        L, S, k, AC_STATE,
        "called inside %s, which not all of the %d ranks run together: the others would never join it; call it outside, on every rank",
        S->ranks->alone, ac_group_size(k->g));
  return o;
}

void lac_coll_root(lac_coll *k, const lac_opts *o, int idx, const char *what, int fallback) {
  lua_State *L = o->L;
  lac_state *S = o->S;
  char in_group[16];
  int64_t r = fallback;
  bool given = false;
  snprintf(in_group, sizeof in_group, "group_%s", what);
  if (idx != 0 && !lua_isnoneornil(L, idx)) {
    r = lac_check_int(L, S, idx, what);
    given = true;
  } else if (lac_opt_push(o, what) != 0) {
    lua_pop(L, 1);
    r = lac_opt_int(o, what, 0);
    given = true;
  }
  const int n = ac_group_size(k->g);
  if (lac_opt_push(o, in_group) != 0) {
    lua_pop(L, 1);
    if (given)
      lac_argerror(L, S, AC_INVALID, k->name, 0, in_group,
                   "given together with %s; give only one of them", what);
    r = lac_opt_int(o, in_group, 0);
    if (r < 0 || r >= n)
      lac_argerror(L, S, AC_INVALID, k->name, 0, in_group, "%lld in a group of %d", (long long)r,
                   n);
    k->c.root = (int)r;
    return;
  }
  if (!given && fallback < 0)
    lac_coll_bad(L, S, k, AC_INVALID, "expected a rank as %s, got nothing", what);
  for (int i = 0; i < n; i++)
    if (ac_group_global_rank(k->g, i) == r) {
      k->c.root = i;
      return;
    }
  if (k->own == NULL)
    lac_coll_bad(L, S, k, AC_INVALID, "%s is rank %lld of a world of %d; ranks count from 0", what,
                 (long long)r, n);
  lac_coll_bad(L, S, k, AC_INVALID,
               "%s is rank %lld, which is not a member of the group; %s takes its ranks", what,
               (long long)r, in_group);
}

/* ---- tensors ---- */

static bool is_sim(const lac_state *S) {
  return strcmp(ac_world_backend(S->ranks->world), "sim") == 0;
}

void lac_coll_tensor(lua_State *L, lac_state *S, const lac_coll *k, const ac_tensor *t,
                     bool written) {
  char a[128];
  ac_err e;
  /* a dry run of one rank: nothing moves */
  if (t->device->kind == AC_DEV_META && !is_sim(S) && !lac_placeholders(L))
    lac_coll_bad(L, S, k, AC_UNSUPPORTED,
                 "backend %s carries values, this one is %s; backend sim takes shapes alone",
                 ac_world_backend(S->ranks->world), aci_tensor_str(t, a, sizeof a));
  if (!written) return;
  if (!aci_is_contiguous(t) && aci_overlaps_self(t))
    lac_coll_bad(
        L, S, k, AC_SHAPE,
        "the tensor written in place, %s, has elements that share memory (expanded?); clone it first",
        aci_tensor_str(t, a, sizeof a));
  if (aci_write_check(S->ctx, t, &e) != AC_OK) lac_coll_raise(L, S, k, &e);
}

void lac_coll_place(lua_State *L, lac_state *S, lac_coll *k, const ac_tensor *t) {
  bool direct = false;
  ac_err e;
  /* NULL: a barrier */
  if (t == NULL || !aci_is_accelerator(t->device) || !aci_device_takes(&k->c)) return;
  if (k->c.kind == AC_COLL_SEND || k->c.kind == AC_COLL_RECV)
    direct =
        ac_world_sends_device(S->ranks->world, t->device, ac_group_global_rank(k->g, k->c.root));
  else if (ac_group_takes_device(k->g, t->device, k->site, &direct, &e) != AC_OK)
    lac_coll_raise(L, S, k, &e);
  if (direct && aci_device_serves(k->g, k->c.kind)) k->c.device = t->device;
}

void lac_coll_alike(lua_State *L, lac_state *S, const lac_coll *k, const char *na,
                    const ac_tensor *a, const char *nb, const ac_tensor *b) {
  char ta[128], tb[128];
  /* host memory outside the pool also belongs to the CPU */
  if (a->dtype == b->dtype && aci_same_device(a->device, b->device)) return;
  lac_coll_bad(L, S, k, a->dtype != b->dtype ? AC_DTYPE : AC_DEVICE,
               "%s is %s, %s is %s; both must have the same %s", na,
               aci_tensor_str(a, ta, sizeof ta), nb, aci_tensor_str(b, tb, sizeof tb),
               a->dtype != b->dtype ? "dtype" : "device");
}
