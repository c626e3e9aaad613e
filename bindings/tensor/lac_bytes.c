/* Tensors from raw bytes and back: accel.from_bytes, t:to_bytes. Bytes are in this machine's
 * order. */
#include "bindings/core/op.h"
#include "factory.h"

/* accel.from_bytes(string, dtype [, shape] [, options]) */
static int from_bytes(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t len;
  const char *p = lac_check_string(L, S, 1, "bytes", &len);
  ac_dtype dt = lac_check_dtype(L, S, 2, "dtype");
  int64_t shape[AC_MAX_DIMS], count = 1;
  int ndim = 1, next = 3;
  size_t bytes = ac_dtype_bytes(dt);
  if (lua_istable(L, 3) && !lac_is_opts(L, 3)) {
    ndim = lac_check_shape(L, S, 3, 3, "shape", shape, &next);
    for (int i = 0; i < ndim; i++)
      if (__builtin_mul_overflow(count, shape[i], &count))
        return lac_error(L, S, AC_SHAPE, "from_bytes: shape is too large");
  } else {
    if (lua_isnil(L, 3)) next = 4;
    shape[0] = count = (int64_t)(len / bytes);
  }
  if ((uint64_t)count > len / bytes || (size_t)count * bytes != len)
    return lac_error(L, S, AC_SHAPE, "from_bytes: %zu bytes are not %lld elements of %s", len,
                     (long long)count, ac_dtype_name(dt));
  lac_spec s = lac_spec_read(L, S, next, dt, NULL);
  s.dtype = dt;
  lac_spec_from_host(L, S, &s, ndim, shape, p);
  return lac_spec_finish(L, S, &s);
}

/* t:to_bytes(): the elements in row-major order */
static int to_bytes(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_tensor *t = lac_check_tensor(L, S, 1, "x");
  if (!aci_is_contiguous(t)) {
    ac_value v[1] = {{.kind = AC_T_TENSOR, .tensor = t}};
    lac_box *b = lac_box_push(L, S);
    v[0].tensor = lac_check_tensor(L, S, 1, "x"); /* the collector may have run finalizers */
    bool grad = ac_ctx_set_grad_enabled(S->ctx, false);
    ac_value r[AC_MAX_RESULTS];
    ac_err e;
    int n = 0;
    ac_status st = lac_call(L, S, ac_op_find(S->ctx, "clone"), v, r, &n, &e);
    ac_ctx_set_grad_enabled(S->ctx, grad);
    if (st != AC_OK) return lac_raise(L, S, &e);
    lac_box_fill(S, b, r[0].tensor);
    t = r[0].tensor;
  }
  size_t bytes = (size_t)t->numel * ac_dtype_bytes((ac_dtype)t->dtype);
  const void *p = ac_tensor_data(t);
  if (p == NULL && bytes > 0)
    return lac_error(L, S, AC_DEVICE, "to_bytes: a tensor on %s has no bytes here",
                     t->device->name);
  lua_pushlstring(L, p != NULL ? p : "", bytes);
  return 1;
}

LAC_OPEN("accel", bytes) {
  static const luaL_Reg funcs[] = {
      {"from_bytes", from_bytes}, {"to_bytes", to_bytes}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"to_bytes", to_bytes}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lua_getfield(L, -1, "Tensor");
  lac_setfuncs(L, S, methods);
  lua_pop(L, 1);
}
