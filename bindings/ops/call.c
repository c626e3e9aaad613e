/* The one function for every op in Lua: accel.<op>(...) and x:<op>(...).
 *
 * A call is positional arguments, then at most one table with string keys. The op's signature
 * defines them. Values are parsed into ac_value on the C stack (lists beyond a fixed size into a
 * scratch userdata), positions and dims become 0-based, and ac_call does the rest. Lists of
 * integers may be written out (x:view(2, 3)) if no number can follow them. Upvalues: 1 metatable, 2
 * state, 3 the op. Nothing runs the collector between reading the arguments and filling the boxes,
 * which are made before. */
#include <stdio.h>
#include <string.h>

#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "ops/core/ctx_impl.h"

enum { SCRATCH = 640 }; /* words for the lists of one call before a userdata is taken */

typedef struct call {
  lua_State *L;
  lac_state *S;
  const ac_op *op;
  const aci_sig *sig;
  size_t n_words, used;
  int64_t *words; /* scratch, or a userdata for long lists */
  int arg;        /* position for messages. 0: an option */
  uint32_t given; /* bit per parameter */
  ac_value v[AC_MAX_ARGS];
  int64_t scratch[SCRATCH];
} call;

#define BAD(c, p, code, ...) \
  lac_argerror((c)->L, (c)->S, (code), (c)->op->name, (c)->arg, (p)->name, __VA_ARGS__)

static int expected(call *c, const aci_param *p, int idx, const char *what) {
  char buf[96];
  return BAD(c, p, AC_INVALID, "expected %s, got %s", what,
             lac_typename(c->L, idx, buf, sizeof buf));
}

/* Words that the lists among the arguments need at most. Ops without lists need none. */
static size_t count_words(lua_State *L, int n_args) {
  size_t words = (size_t)n_args;
  for (int i = 1; i <= n_args; i++) {
    if (lua_type(L, i) != LUA_TTABLE) continue;
    size_t n = lua_rawlen(L, i);
    words += n;
    if (n > 0) continue;
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) /* options */
      words += lua_type(L, -1) == LUA_TTABLE ? lua_rawlen(L, -1) : 1;
  }
  return words;
}

static void *scratch(call *c, size_t n) {
  if (n > c->n_words - c->used)
    lac_error(c->L, c->S, AC_STATE, "%s: a list grew while the arguments were read", c->op->name);
  void *p = c->words + c->used;
  c->used += n;
  return p;
}

/* ---- single values ---- */

static ac_tensor *read_tensor(call *c, const aci_param *p, int idx) {
  lua_State *L = c->L;
  lac_box *b = lac_box_test(L, idx);
  if (__builtin_expect(b != NULL, 1)) {
    if (__builtin_expect(b->t != NULL, 1)) return b->t;
    lac_site_push(L, b->site);
    const char *site = lua_tostring(L, -1);
    BAD(c, p, AC_RELEASED, "the tensor was released%s%s", site != NULL ? " at " : "",
        site != NULL ? site : "");
  }
  expected(c, p, idx,
           p->type == AC_T_OPERAND   ? "tensor or number"
           : p->type == AC_T_TENSORS ? "list of tensors"
                                     : "tensor");
  return NULL;
}

static int64_t read_int(call *c, const aci_param *p, int idx, const char *what) {
  int ok = 0;
  int64_t i = lua_type(c->L, idx) == LUA_TNUMBER ? lua_tointegerx(c->L, idx, &ok) : 0;
  if (!ok) expected(c, p, idx, what);
  return i;
}

/* 1-based, negative from the end -> 0-based, negative from the end. A tensor of one integer has a
 * position as tensors hold them, from 0. */
static int64_t read_pos(call *c, const aci_param *p, int idx, const char *what) {
  const lac_box *b = p->type == AC_T_POS ? lac_box_test(c->L, idx) : NULL;
  if (b != NULL && b->t != NULL && b->t->numel == 1 && ac_dtype_is_int((ac_dtype)b->t->dtype)) {
    ac_scalar s;
    ac_err e;
    if (ac_tensor_item(b->t, 0, &s, &e) != AC_OK) lac_raise(c->L, c->S, &e);
    return s.i;
  }
  int64_t i = read_int(c, p, idx, what);
  if (i == 0)
    BAD(c, p, AC_INDEX, "%s count from 1 (or from -1, the last)",
        p->type == AC_T_POS ? "positions" : "dims");
  return i > 0 ? i - 1 : i;
}

/* PyTorch writes some words with a hyphen ("nearest-exact"), which signatures cannot hold. */
static bool same_word(const char *s, const char *name) {
  while (*s != 0 && (*s == *name || (*s == '-' && *name == '_'))) s++, name++;
  return *s == 0 && *name == 0;
}

static int read_enum(call *c, const aci_param *p, int idx) {
  char list[ACI_MAX_ENUM * 28] = "";
  const char *names[ACI_MAX_ENUM];
  if (lua_type(c->L, idx) == LUA_TSTRING) {
    const char *s = lua_tostring(c->L, idx);
    for (int i = 0; i < p->n_enum; i++)
      if (same_word(s, p->enum_name[i])) return i;
  }
  for (int i = 0; i < p->n_enum; i++) {
    names[i] = p->enum_name[i];
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s\"%s\"", i ? ", " : "",
             p->enum_name[i]);
  }
  if (lua_type(c->L, idx) != LUA_TSTRING) return expected(c, p, idx, list);
  const char *near = ac_nearest(lua_tostring(c->L, idx), names, p->n_enum);
  return BAD(c, p, AC_INVALID, "no choice \"%s\"%s%s%s; there are %s", lua_tostring(c->L, idx),
             near ? ", did you mean \"" : "", near ? near : "", near ? "\"" : "", list);
}

static ac_dtype read_dtype(call *c, const aci_param *p, int idx) {
  ac_dtype d = AC_F32;
  if (lua_type(c->L, idx) != LUA_TSTRING) expected(c, p, idx, "dtype such as \"f32\"");
  if (!ac_dtype_find(lua_tostring(c->L, idx), &d))
    BAD(c, p, AC_INVALID,
        "no dtype '%s'; there are f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool c64 c128",
        lua_tostring(c->L, idx));
  return d;
}

static ac_device *read_device(call *c, const aci_param *p, int idx) {
  ac_err e;
  ac_device *d = NULL;
  if (lua_type(c->L, idx) != LUA_TSTRING) expected(c, p, idx, "device such as \"cpu\"");
  if (ac_ctx_device(c->S->ctx, lua_tostring(c->L, idx), &d, &e) != AC_OK)
    BAD(c, p, e.code, "%s", e.msg);
  return d;
}

/* ---- lists ---- */

static bool is_list_type(ac_type t) {
  return t == AC_T_INTS || t == AC_T_DIMS || t == AC_T_SHAPE || t == AC_T_FLOATS ||
         t == AC_T_TENSORS;
}

static bool is_number_type(ac_type t) {
  return t == AC_T_OPERAND || t == AC_T_SCALAR || t == AC_T_INT || t == AC_T_FLOAT ||
         t == AC_T_POS || t == AC_T_DIM || (is_list_type(t) && t != AC_T_TENSORS);
}

static const char *list_name(ac_type t) {
  switch (t) {
    case AC_T_TENSORS: return "list of tensors";
    case AC_T_FLOATS: return "list of numbers";
    case AC_T_DIMS: return "dims (integers)";
    case AC_T_SHAPE: return "shape (integers)";
    default: return "list of integers";
  }
}

static void store_number(call *c, const aci_param *p, int idx, void *list, int i) {
  if (p->type == AC_T_FLOATS) {
    if (lua_type(c->L, idx) != LUA_TNUMBER) expected(c, p, idx, list_name(p->type));
    ((double *)list)[i] = lua_tonumber(c->L, idx);
  } else if (p->type == AC_T_DIMS) {
    ((int64_t *)list)[i] = read_pos(c, p, idx, list_name(p->type));
  } else if (p->holes && lua_isboolean(c->L, idx) && !lua_toboolean(c->L, idx)) {
    ((int64_t *)list)[i] = AC_INT_NONE;
  } else {
    ((int64_t *)list)[i] = read_int(c, p, idx, list_name(p->type));
  }
}

/* n numbers written out at idx, idx+1, ... */
static void read_numbers(call *c, const aci_param *p, int idx, int n, ac_value *v) {
  void *list = scratch(c, (size_t)n);
  for (int i = 0; i < n; i++) store_number(c, p, idx + i, list, i);
  v->kind = p->type;
  v->n = n;
  v->ints = list; /* floats shares the place */
}

static void read_table(call *c, const aci_param *p, int idx, ac_value *v) {
  lua_State *L = c->L;
  if (!lua_istable(L, idx)) expected(c, p, idx, list_name(p->type));
  lua_Unsigned len = lua_rawlen(L, idx);
  if (len > INT32_MAX / 8) BAD(c, p, AC_INVALID, "the list is too long");
  void *list = scratch(c, (size_t)len);
  for (int i = 0; i < (int)len; i++) {
    lua_rawgeti(L, idx, i + 1);
    int top = lua_gettop(L);
    if (p->type == AC_T_TENSORS) {
      char buf[96];
      if (lac_box_test(L, top) == NULL)
        BAD(c, p, AC_INVALID, "expected list of tensors, entry %d is %s", i + 1,
            lac_typename(L, top, buf, sizeof buf));
      ((ac_tensor **)list)[i] = read_tensor(c, p, top);
    } else {
      store_number(c, p, top, list, i);
    }
    lua_pop(L, 1);
  }
  v->kind = p->type;
  v->n = (int32_t)len;
  v->ints = list;
}

/* Reads the value at idx for p. Tensors and strings are borrowed from the stack. Leaves it as it
 * was. */
static void read_value(call *c, const aci_param *p, int idx, ac_value *v) {
  lua_State *L = c->L;
  switch (p->type) {
    case AC_T_TENSOR:
      v->kind = AC_T_TENSOR;
      v->tensor = read_tensor(c, p, idx);
      return;
    case AC_T_OPERAND:
      if (lua_type(L, idx) != LUA_TUSERDATA && lac_is_scalar(L, idx, &v->scalar)) {
        v->kind = AC_T_SCALAR;
      } else {
        v->kind = AC_T_TENSOR;
        v->tensor = read_tensor(c, p, idx);
      }
      return;
    case AC_T_SCALAR:
      if (!lac_is_scalar(L, idx, &v->scalar)) expected(c, p, idx, "number");
      break;
    case AC_T_INT: v->i = read_int(c, p, idx, "integer"); break;
    case AC_T_POS:
    case AC_T_DIM:
      v->i = read_pos(c, p, idx, p->type == AC_T_DIM ? "dim (integer)" : "position (integer)");
      break;
    case AC_T_FLOAT:
      if (lua_type(L, idx) != LUA_TNUMBER) expected(c, p, idx, "number");
      v->f = lua_tonumber(L, idx);
      break;
    case AC_T_BOOL:
      if (!lua_isboolean(L, idx)) expected(c, p, idx, "boolean");
      v->b = lua_toboolean(L, idx);
      break;
    case AC_T_STRING:
      if (lua_type(L, idx) != LUA_TSTRING) expected(c, p, idx, "string");
      v->str = lua_tostring(L, idx);
      break;
    case AC_T_ENUM: v->i = read_enum(c, p, idx); break;
    case AC_T_DTYPE: v->dtype = read_dtype(c, p, idx); break;
    case AC_T_DEVICE: v->device = read_device(c, p, idx); break;
    case AC_T_GENERATOR:
      v->generator = luaL_testudata(L, idx, "accel.Generator");
      if (v->generator == NULL) expected(c, p, idx, "generator");
      break;
    case AC_T_INTS:
    case AC_T_FLOATS:
    case AC_T_DIMS:
    case AC_T_SHAPE:
      if (lua_type(L, idx) == LUA_TNUMBER) read_numbers(c, p, idx, 1, v);
      else read_table(c, p, idx, v);
      return;
    case AC_T_TENSORS: read_table(c, p, idx, v); return;
    case AC_T_NONE: break;
  }
  v->kind = p->type;
}

/* ---- the whole argument list ---- */

/* The types that a parameter accepts, for messages. */
static const char *wanted(const aci_param *p) {
  switch (p->type) {
    case AC_T_OPERAND: return "tensor or number";
    case AC_T_SCALAR: return "number";
    default: return is_list_type(p->type) ? list_name(p->type) : aci_type_name(p->type);
  }
}

/* What to write in the place of options that scripts bring from PyTorch. */
static const char *instead_of(const char *key) {
  if (strcmp(key, "out") == 0) return "assign the result, or copy it by y:copy_(result)";
  if (strcmp(key, "inplace") == 0) return "in-place forms end with _, such as x:relu_()";
  if (strcmp(key, "real") == 0 || strcmp(key, "imag") == 0)
    return "make a tensor of a complex number: accel.tensor { real = 0, imag = 1 }";
  return NULL;
}

static void read_options(call *c, int idx) {
  lua_State *L = c->L;
  const aci_sig *s = c->sig;
  c->arg = 0;
  lua_pushnil(L);
  while (lua_next(L, idx)) {
    char buf[96];
    if (lua_type(L, -2) != LUA_TSTRING)
      lac_argerror(L, c->S, AC_INVALID, c->op->name, 0, "options", "names are strings, found %s",
                   lac_typename(L, -2, buf, sizeof buf));
    const char *key = lua_tostring(L, -2);
    int i = 0;
    while (i < s->n_params && strcmp(s->param[i].name, key) != 0) i++;
    if (i == s->n_params) {
      const char *names[AC_MAX_ARGS];
      int n = 0;
      for (int k = 0; k < s->n_params; k++)
        if (!(c->given >> k & 1)) names[n++] = s->param[k].name;
      const char *near = ac_nearest(key, names, n);
      if (near != NULL)
        lac_argerror(L, c->S, AC_INVALID, c->op->name, 0, key, "no such option; did you mean '%s'?",
                     near);
      if (instead_of(key) != NULL)
        lac_argerror(L, c->S, AC_INVALID, c->op->name, 0, key, "no such option; %s",
                     instead_of(key));
      char list[400] = "";
      for (int k = 0; k < n; k++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", k ? ", " : "", names[k]);
      lac_argerror(L, c->S, AC_INVALID, c->op->name, 0, key,
                   n ? "no such option; there are %s" : "no such option", list);
    }
    if (c->given >> i & 1)
      lac_argerror(L, c->S, AC_INVALID, c->op->name, 0, key, "also given as argument %d", i + 1);
    c->given |= 1u << i;
    read_value(c, &s->param[i], lua_gettop(L), &c->v[i]);
    lua_pop(L, 1);
  }
}

static void missing(call *c, int i, int n_args) {
  const aci_param *p = &c->sig->param[i];
  c->arg = i + 1;
  /* nil, or the table of options, in its place */
  bool there = i < n_args && (lua_isnil(c->L, i + 1) || lua_istable(c->L, i + 1));
  BAD(c, p, AC_INVALID, "expected %s, got %s", wanted(p),
      there ? luaL_typename(c->L, i + 1) : "no value");
}

/* Positional arguments from idx on, which stands for parameter i, then options. */
static void read_rest(call *c, int idx, int i, int n_args) {
  lua_State *L = c->L;
  const aci_sig *s = c->sig;
  int opts = 0, n = n_args;
  if (lua_type(L, n) == LUA_TTABLE) {
    /* a list if the signature expects one, otherwise options */
    bool list_due = n <= s->n_params && is_list_type(s->param[n - 1].type);
    if (list_due ? lac_is_opts(L, n) : lua_rawlen(L, n) == 0) opts = n--;
  }
  for (; idx <= n && i < s->n_params; i++) {
    const aci_param *p = &s->param[i];
    c->arg = idx;
    int type = lua_type(L, idx);
    if (type == LUA_TNIL) {
      idx++;
      continue;
    }
    c->given |= 1u << i;
    if (is_list_type(p->type) && p->type != AC_T_TENSORS && type == LUA_TNUMBER) {
      bool greedy = true;
      for (int k = i + 1; k < s->n_params; k++)
        greedy = greedy && !is_number_type(s->param[k].type);
      int count = 1;
      while (greedy && idx + count <= n && lua_type(L, idx + count) == LUA_TNUMBER) count++;
      read_numbers(c, p, idx, count, &c->v[i]);
      idx += count;
    } else {
      read_value(c, p, idx++, &c->v[i]);
    }
  }
  if (__builtin_expect(idx <= n, 0)) {
    char buf[96];
    c->arg = idx;
    lac_argerror(L, c->S, AC_INVALID, c->op->name, idx, "",
                 "%d argument%s at most, then options; got %s", s->n_params,
                 s->n_params == 1 ? "" : "s", lac_typename(L, idx, buf, sizeof buf));
  }
  if (opts) read_options(c, opts);
}

static void read_args(call *c, int n_args) {
  const ac_op *op = c->op;
  int i = 0;
  c->used = 0;
  c->given = 0;
  /* tensors come first, and most often nothing else */
  for (; i < n_args && i < op->n_params; i++) {
    const lac_box *b = op->tensors >> i & 1 ? lac_box_test(c->L, i + 1) : NULL;
    if (b == NULL || b->t == NULL) break;
    c->v[i].kind = AC_T_TENSOR;
    c->v[i].tensor = b->t;
    c->given |= 1u << i;
  }
  if (i < n_args) read_rest(c, i + 1, i, n_args);
  const uint32_t missed = op->needed & ~c->given;
  if (__builtin_expect(missed != 0, 0)) missing(c, __builtin_ctz(missed), n_args);
  for (; i < op->n_params; i++) {
    if (c->given >> i & 1) continue;
    if (op->fallbacks >> i & 1) c->v[i] = c->sig->param[i].dflt;
    else c->v[i].kind = AC_T_NONE; /* a default is filled in by ac_call */
  }
}

/* Lua value for result t: the argument itself when the op returned it, else the prepared box at
 * box_idx. */
static void give(call *c, ac_tensor *t, int box_idx, int n_args) {
  lua_State *L = c->L;
  lac_state *S = c->S;
  if (t == NULL) {
    lua_pushnil(L);
    return;
  }
  if (c->v[0].kind == AC_T_TENSOR && c->v[0].tensor == t && n_args >= 1 &&
      lua_touserdata(L, 1) != NULL) {
    ac_tensor_release(t);
    lua_pushvalue(L, 1);
    return;
  }
  lac_box_fill(S, lua_touserdata(L, box_idx), t);
  lac_charge(S, t);
  lua_pushvalue(L, box_idx);
}

/* A list whose length the call decided: boxes are made after it, so the results lie in `hold`
 * meanwhile. */
static int give_list(call *c, lac_list *hold, const ac_value *r, int n) {
  lua_State *L = c->L;
  for (int i = 0; i < n; i++) hold->t[i] = r[i].tensor;
  hold->n = n;
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lac_box_fill(c->S, lac_box_push(L, c->S), hold->t[i]);
    lac_charge(c->S, hold->t[i]);
    hold->t[i] = NULL;
    lua_rawseti(L, -2, i + 1);
  }
  hold->n = 0;
  return 1;
}

static int op_call(lua_State *L) {
  lac_state *S = lua_touserdata(L, LAC_STATE);
  call c;
  ac_err e;
  ac_value r[AC_MAX_RESULTS];
  int n_args = lua_gettop(L), n_results = 0, tries = 0;
  c.L = L;
  c.S = S;
  c.op = lua_touserdata(L, lua_upvalueindex(3));
  /* and the op is gone */
  if (__builtin_expect(S->ctx == NULL, 0)) return luaL_error(L, "accel is closed");
  if (__builtin_expect(!c.op->parsed, 0) && aci_op_parse(c.op, &e) != AC_OK)
    return lac_raise(L, S, &e);
  c.sig = aci_op_sig(c.op);
  lac_gc_due(L, S);
  const bool many = c.op->gives_list, self = c.op->gives_self;
  const int n_boxes = many || self ? 0 : c.op->n_results;
  if (__builtin_expect(n_boxes * 2 + 12 > LUA_MINSTACK, 0))
    luaL_checkstack(L, n_boxes * 2 + 12, "results");
  /* boxes before arguments are read: making one may run the collector, and finalizers may release
   * tensors */
  size_t n_words = c.op->takes_list ? count_words(L, n_args) : 0;
  c.words = n_words <= SCRATCH ? c.scratch : lua_newuserdatauv(L, n_words * 8, 0);
  c.n_words = n_words <= SCRATCH ? SCRATCH : n_words;
  lac_list *hold = many ? lac_list_new(L, AC_MAX_RESULTS) : NULL;
  const int base = hold != NULL || c.words != c.scratch ? lua_gettop(L) + 1 : n_args + 1;
  lac_box *box = NULL; /* the last one */
  for (int i = 0; i < n_boxes; i++) box = lac_box_push(L, S);
again:
  read_args(&c, n_args);
  ac_status st = lac_call(L, S, c.op, c.v, r, &n_results, &e);
  if (__builtin_expect(st != AC_OK, 0)) {
    if (st == AC_OOM && tries++ == 0 && lac_gc_oom(L, S)) goto again;
    return lac_raise(L, S, &e);
  }
  if (n_boxes == 1 && r[0].tensor != NULL &&
      (c.v[0].kind != AC_T_TENSOR || c.v[0].tensor != r[0].tensor)) {
    lac_box_fill(S, box, r[0].tensor);
    lac_charge(S, r[0].tensor);
    return 1;
  }
  if (self) { /* count arguments as written in the script */
    for (int i = 0; i < n_results; i++) ac_tensor_release(r[i].tensor);
    if (lua_type(L, 1) == LUA_TUSERDATA) lua_pushvalue(L, 1);
    else lac_push_tensor(L, S, c.v[0].tensor); /* it came as an option */
    return 1;
  }
  if (many) return give_list(&c, hold, r, n_results);
  for (int i = 0; i < n_results; i++) give(&c, r[i].tensor, base + i, n_args);
  return n_results;
}

void lac_push_op(lua_State *L, lac_state *S, const ac_op *op) {
  luaL_checkstack(L, 4, "op");
  lac_push_upvalues(L);
  lua_pushlightuserdata(L, (void *)(uintptr_t)op);
  lua_pushcclosure(L, op_call, 3);
}
