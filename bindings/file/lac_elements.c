/* Elements of a few bits for Lua (accel.file.core): widen, unpack_bits. Called by stdlib/accel/models/packed,
 * which reads quantised weights of other tools. */
#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "file/elements.h"

/* A contiguous tensor of the host at idx. */
static const ac_tensor *check_host(lua_State *L, lac_state *S, int idx, const char *name) {
  const ac_tensor *t = lac_check_tensor(L, S, idx, name);
  if (!aci_is_contiguous(t) || t->device->kind != AC_DEV_CPU ||
      (t->numel > 0 && ac_tensor_data(t) == NULL))
    lac_argerror(L, S, AC_INVALID, NULL, idx, name,
                 "expected a contiguous tensor in the host's memory");
  return t;
}

static ac_tensor *new_result(lua_State *L, lac_state *S, lac_box *b, ac_dtype d, int ndim,
                             const int64_t *shape) {
  ac_device *cpu;
  ac_tensor *out = NULL;
  ac_err e;
  ac_status st = ac_ctx_device(S->ctx, "cpu", &cpu, &e);
  if (st == AC_OK) st = ac_tensor_new(cpu, d, ndim, shape, &out, &e);
  if (st != AC_OK) lac_raise(L, S, &e);
  lac_box_fill(S, b, out);
  return out;
}

/* widen(bytes, type) -> tensor: bytes u8 [..., n] that hold elements of a type of at most 8 bits under its name in
 * safetensors, "F8_E8M0" or "F4" (two in a byte). */
static int widen(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *type = lac_check_string(L, S, 2, "type", NULL);
  const aci_element *k = aci_element_of(type, NULL);
  int64_t shape[AC_MAX_DIMS];
  ac_err e;
  lac_box *b = lac_box_push(L, S);
  const ac_tensor *t = check_host(L, S, 1, "bytes"); /* after the box: finalizers may have run */
  if (k == NULL || k->bits > 8)
    return lac_error(L, S, AC_INVALID, "widen: unknown type '%s'", type);
  if (t->dtype != AC_U8 || t->ndim < 1)
    return lac_error(L, S, AC_INVALID, "widen: expected u8 of one dim or more, got %s",
                     ac_dtype_name((ac_dtype)t->dtype));
  for (int d = 0; d < t->ndim; d++) shape[d] = t->shape[d];
  shape[t->ndim - 1] *= 8 / k->bits;
  ac_tensor *out = new_result(L, S, b, k->to, t->ndim, shape);
  t = check_host(L, S, 1, "bytes");
  if (aci_element_widen(k, ac_tensor_data(t), ac_tensor_data(out), out->numel, &e) != AC_OK)
    return lac_raise(L, S, &e);
  return 1;
}

/* unpack_bits(words, bits, dim, n) -> u8: n integers of `bits` bits along dim (from 1), a stream in the i32 words there. */
static int unpack_bits(lua_State *L) {
  lac_state *S = lac_get(L);
  const int64_t bits = lac_check_int(L, S, 2, "bits"), dim = lac_check_int(L, S, 3, "dim"),
                n = lac_check_int(L, S, 4, "n");
  int64_t shape[AC_MAX_DIMS], outer = 1, inner = 1;
  lac_box *b = lac_box_push(L, S);
  const ac_tensor *t = check_host(L, S, 1, "words");
  if (t->dtype != AC_I32 && t->dtype != AC_U32)
    return lac_error(L, S, AC_INVALID, "unpack_bits: expected i32 words, got %s",
                     ac_dtype_name((ac_dtype)t->dtype));
  if (bits < 1 || bits > 8)
    return lac_error(L, S, AC_INVALID, "unpack_bits: bits must lie in 1 .. 8, got %lld",
                     (long long)bits);
  if (dim < 1 || dim > t->ndim)
    return lac_error(L, S, AC_INDEX, "unpack_bits: dim %lld of %d", (long long)dim, t->ndim);
  const int64_t words = t->shape[dim - 1];
  if (n < 0 || n > words * 32 / bits)
    return lac_error(L, S, AC_SHAPE,
                     "unpack_bits: %lld integers of %lld bits do not fit into %lld words of 32",
                     (long long)n, (long long)bits, (long long)words);
  for (int d = 0; d < t->ndim; d++) {
    shape[d] = d == dim - 1 ? n : t->shape[d];
    if (d < dim - 1) outer *= t->shape[d];
    if (d > dim - 1) inner *= t->shape[d];
  }
  ac_tensor *out = new_result(L, S, b, AC_U8, t->ndim, shape);
  t = check_host(L, S, 1, "words");
  aci_unpack_bits(t->device->team, ac_tensor_data(t), outer, words, inner, (int)bits, n,
                  ac_tensor_data(out));
  return 1;
}

LAC_OPEN("accel.file.core", elements) {
  static const luaL_Reg funcs[] = {{"widen", widen}, {"unpack_bits", unpack_bits}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
