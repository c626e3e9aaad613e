/* Quantised tensors in scripts (t.quant_state stands in lac_tensor.c): their arrays as views,
 * tensors to be filled from files, and the tables of the codes. */
#include "bindings/core/lac.h"
#include "tensor/layout.h"

static ac_quant_type check_type(lua_State *L, lac_state *S, int arg) {
  ac_quant_type q;
  const char *name = lac_check_string(L, S, arg, "quant_type", NULL);
  if (!ac_quant_type_find(name, &q))
    lac_argerror(L, S, AC_INVALID, NULL, arg, "quant_type",
                 "'%s' is not one of nf4, fp4, int8, dynamic, udynamic", name);
  return q;
}

/* accel.quant_map(quant_type) */
static int quant_map(lua_State *L) {
  lac_state *S = lac_get(L);
  int n;
  const float *map = ac_quant_map(check_type(L, S, 1), &n);
  lac_box *b = lac_box_push(L, S);
  ac_device *cpu = NULL;
  ac_tensor *t = NULL;
  ac_err e;
  if (map == NULL)
    return lac_argerror(L, S, AC_INVALID, NULL, 1, "quant_type",
                        "codes of int8 are numbers, they have no table");
  const int64_t shape = n;
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK ||
      ac_tensor_from_host(cpu, AC_F32, 1, &shape, map, &t, &e) != AC_OK)
    return lac_raise(L, S, &e);
  lac_box_fill(S, b, t);
  return 1;
}

/* accel.empty_quantized(quant_type, shape, {dtype=, blocksize=, nested=, device=}) */
static int empty_quantized(lua_State *L) {
  static const char *const names[] = {"dtype", "blocksize", "nested", "device", NULL};
  lac_state *S = lac_get(L);
  ac_layout l = {.type = check_type(L, S, 1), .dtype = AC_F32};
  int next;
  ac_err e;
  l.ndim = lac_check_shape(L, S, 2, 2, "shape", l.shape, &next);
  lac_opts o = lac_opts_open(L, S, 3, names);
  lac_opt_dtype(&o, "dtype", &l.dtype);
  l.blocksize = l.type == AC_QUANT_INT8  ? (l.ndim == 2 ? l.shape[1] : 0)
                : l.type <= AC_QUANT_FP4 ? 64
                                         : 256;
  l.blocksize = lac_opt_int(&o, "blocksize", l.blocksize);
  l.nested = lac_opt_bool(&o, "nested", false);
  ac_device *d = lac_opt_device(&o, "device", NULL);
  lac_box *b = lac_box_push(L, S);
  ac_tensor *t = NULL;
  if (ac_tensor_new_quantized(d, &l, &t, &e) != AC_OK) return lac_raise(L, S, &e);
  lac_box_fill(S, b, t);
  return 1;
}

/* t:quant_part(name): a view of one of the arrays, nil if the layout has none */
static int quant_part(lua_State *L) {
  static const char *const parts[] = {"values", "absmax", "nested_absmax", "offset", NULL};
  lac_state *S = lac_get(L);
  lac_check_tensor(L, S, 1, "self");
  const int part = luaL_checkoption(L, 2, NULL, parts);
  lac_box *b = lac_box_push(L, S);
  ac_tensor *t = lac_check_tensor(L, S, 1, "self"), *v = NULL;
  ac_err e;
  const ac_status st = ac_tensor_part(t, (ac_layout_part)part, &v, &e);
  if (st == AC_NOT_FOUND) {
    lua_pushnil(L);
    return 1;
  }
  if (st != AC_OK) return lac_raise(L, S, &e);
  lac_box_fill(S, b, v);
  return 1;
}

/* t:quantized_like_(q): gives the bytes of t, which take the whole of a storage, the layout of q */
static int quantized_like(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_tensor *t = lac_check_tensor(L, S, 1, "self"), *q = lac_check_tensor(L, S, 2, "q");
  ac_err e;
  if (ac_tensor_quantize_as(t, ac_tensor_layout(q), &e) != AC_OK) return lac_raise(L, S, &e);
  lua_settop(L, 1);
  return 1;
}

LAC_OPEN("accel", quant) {
  static const luaL_Reg funcs[] = {
      {"quant_map", quant_map}, {"empty_quantized", empty_quantized}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"quant_part", quant_part}, {"quantized_like_", quantized_like}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lua_getfield(L, -1, "Tensor");
  lac_setfuncs(L, S, methods);
  lua_pop(L, 1);
}
