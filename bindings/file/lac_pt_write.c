/* Services for accel.util.torch_file, which writes files of torch.save: places of tensors in their
 * storages, bytes of storages with their CRC-32, names of dtypes. Misuse raises. */
#include <string.h>

#include "base/crc32.h"
#include "bindings/core/lac.h"
#include "file/pt.h"
#include "tensor/geometry.h"
#include "tensor/host_read.h"
#include "writer.h"

/* crc32(bytes [, crc of the bytes before]) -> crc */
static int crc32(lua_State *L) {
  size_t n;
  const char *bytes = lac_check_string(L, lac_get(L), 1, "bytes", &n);
  lua_pushinteger(L, aci_crc32((uint32_t)luaL_optinteger(L, 2, 0), bytes, n));
  return 1;
}

/* torch_dtype(our name) -> the class of its storages (nil: it has none), PyTorch's name */
static int torch_dtype(lua_State *L) {
  const int i = aci_pt_dtype_of(lac_check_dtype(L, lac_get(L), 1, "dtype"));
  if (i < 0) return 0;
  lua_pushstring(L, aci_pt_dtype_at(i)->storage);
  lua_pushstring(L, aci_pt_dtype_at(i)->name);
  return 2;
}

static size_t span_of(const ac_tensor *t) {
  return t->numel == 0
             ? 0
             : (size_t)aci_span(t->ndim, t->shape, t->stride) * aci_dsize((ac_dtype)t->dtype);
}

/* storage_range(t) -> a number that names its storage, the first byte of t in it, bytes from there
 * to t's last */
static int storage_range(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = lac_check_tensor(L, S, 1, "tensor");
  if (t->storage == NULL || t->storage->layout != NULL)
    return lac_error(L, S, AC_UNSUPPORTED,
                     "a quantised tensor has no elements in a file of torch.save; dequantise it");
  lua_pushinteger(L, (lua_Integer)(intptr_t)t->storage);
  lua_pushinteger(L, t->offset * (lua_Integer)aci_dsize((ac_dtype)t->dtype));
  lua_pushinteger(L, (lua_Integer)span_of(t));
  return 3;
}

static ac_status write_bytes(aci_atomic_file *f, const ac_tensor *view, uint32_t *crc, ac_err *e) {
  enum { PIECE = 1 << 20 }; /* bytes are summed while they are in the cache */
  aci_host_read r;
  AC_TRY(aci_host_read_open(view, true, &r, e));
  const char *p = r.base + view->offset;
  ac_status st = AC_OK;
  for (int64_t at = 0; st == AC_OK && at < view->numel; at += PIECE) {
    const size_t n = view->numel - at < PIECE ? (size_t)(view->numel - at) : PIECE;
    *crc = aci_crc32(*crc, p + at, n);
    st = aci_atomic_write(f, p + at, n, e);
  }
  aci_host_read_close(&r);
  return st;
}

/* write_storage(file, t, first, bytes, crc) -> crc, or nil, message, code. Appends these bytes of
 * t's storage to a file of accel.util.writer, and returns their CRC-32 after crc. */
static int write_storage(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = lac_check_tensor(L, S, 2, "tensor");
  const int64_t first = luaL_checkinteger(L, 3), n = luaL_checkinteger(L, 4);
  uint32_t crc = (uint32_t)luaL_checkinteger(L, 5);
  aci_atomic_file *f = lac_check_file(L, S, 1);
  ac_tensor *view = NULL;
  ac_err e;
  if (ac_tensor_view(t->storage, AC_U8, 1, &n, NULL, first, &view, &e) != AC_OK)
    return lac_raise(L, S, &e);
  const ac_status st = write_bytes(f, view, &crc, &e);
  ac_tensor_release(view);
  if (st != AC_OK) return st == AC_IO ? lac_fail(L, &e) : lac_raise(L, S, &e);
  lua_pushinteger(L, crc);
  return 1;
}

LAC_OPEN("accel.file.core", pt_write) {
  static const luaL_Reg funcs[] = {{"crc32", crc32},
                                   {"torch_dtype", torch_dtype},
                                   {"storage_range", storage_range},
                                   {"write_storage", write_storage},
                                   {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
