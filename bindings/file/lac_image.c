/* Pictures: accel.vision.core.decode(bytes, opts) and read(path, opts), which accel.vision.io wraps.
 * A file that cannot be opened returns nil, message, code. A picture that is damaged raises. */
#include <stdlib.h>
#include <string.h>

#include "accel/image.h"
#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "file/io.h"

#define IMAGE "accel.vision.image"
enum { MOST_BYTES = INT32_MAX };

/* Closed by its finalizer where making the tensor raises. */
typedef struct image {
  ac_image *im;
  char *bytes; /* of a file */
} image;

static int image_close(lua_State *L) {
  image *p = luaL_checkudata(L, 1, IMAGE);
  ac_image_close(p->im);
  free(p->bytes);
  p->im = NULL;
  p->bytes = NULL;
  return 0;
}

static ac_image_options options(lua_State *L, lac_state *S, int idx) {
  static const char *const names[] = {
      "mode", "apply_exif_orientation", "bits", "max_pixels", "draft_height", "draft_width", "info",
      NULL};
  lac_opts o = lac_opts_open(L, S, idx, names);
  ac_image_options i = {.struct_size = sizeof i};
  const int64_t mode = lac_opt_int(&o, "mode", 0), bits = lac_opt_int(&o, "bits", 16);
  if (mode < 0 || mode > AC_IMAGE_RGB_ALPHA)
    lac_argerror(L, S, AC_INVALID, NULL, 0, "mode", "must be 0 to 4, got %lld", (long long)mode);
  if (bits != 8 && bits != 16)
    lac_argerror(L, S, AC_INVALID, NULL, 0, "bits", "must be 8 or 16, got %lld", (long long)bits);
  i.mode = (ac_image_mode)mode;
  i.eight_bits = bits == 8;
  i.apply_orientation = lac_opt_bool(&o, "apply_exif_orientation", false);
  i.max_pixels = lac_opt_int(&o, "max_pixels", AC_IMAGE_MAX_PIXELS);
  i.draft_height = lac_opt_int(&o, "draft_height", 0);
  i.draft_width = lac_opt_int(&o, "draft_width", 0);
  if (i.max_pixels <= 0 || i.draft_height < 0 || i.draft_width < 0)
    lac_argerror(L, S, AC_INVALID, NULL, 0, i.max_pixels <= 0 ? "max_pixels" : "draft",
                 "must be positive");
  return i;
}

static image *new_image(lua_State *L) {
  image *p = lua_newuserdatauv(L, sizeof *p, 0);
  p->im = NULL;
  p->bytes = NULL;
  luaL_setmetatable(L, IMAGE);
  return p;
}

static void set_field(lua_State *L, const char *name, int64_t v) {
  lua_pushinteger(L, v);
  lua_setfield(L, -2, name);
}

/* The results: the tensor, {height, width, channels}, or with info a table about the picture. */
static int finish(lua_State *L, lac_state *S, image *p, const void *bytes, size_t n,
                  const ac_image_options *o, bool info) {
  ac_err e;
  ac_image_info about;
  if (ac_image_open(bytes, n, o, &p->im, &e) != AC_OK) return lac_raise(L, S, &e);
  ac_image_about(p->im, &about);
  if (info) {
    lua_createtable(L, 0, 6);
    set_field(L, "height", about.height);
    set_field(L, "width", about.width);
    set_field(L, "channels", about.channels);
    set_field(L, "orientation", about.orientation);
    lua_pushstring(L, about.format);
    lua_setfield(L, -2, "format");
    lua_pushstring(L, ac_dtype_name(about.dtype));
    lua_setfield(L, -2, "dtype");
  } else {
    const int64_t shape[] = {about.height, about.width, about.channels};
    ac_tensor *out = lac_new_cpu(L, S, about.dtype, 3, shape);
    if (ac_image_decode(p->im, out, &e) != AC_OK) return lac_raise(L, S, &e);
  }
  ac_image_close(p->im); /* now, not at a collection: pictures are many */
  free(p->bytes);
  p->im = NULL;
  p->bytes = NULL;
  return 1;
}

static bool wants_info(lua_State *L, int idx) {
  if (!lua_istable(L, idx)) return false;
  lua_getfield(L, idx, "info");
  const bool info = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return info;
}

/* core.decode(bytes, opts [, name]): bytes is a string or a contiguous u8 tensor of rank 1 */
static int decode(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_settop(L, 3);
  const char *name = lua_tostring(L, 3);
  lua_rotate(L, 2, 1); /* options last */
  ac_image_options o = options(L, S, 3);
  o.name = name == NULL ? "decode_image" : name;
  image *p = new_image(L);
  const bool info = wants_info(L, 3);
  if (lac_box_test(L, 1) == NULL) {
    size_t n;
    const char *s = lac_check_string(L, S, 1, "bytes", &n);
    return finish(L, S, p, s, n, &o, info);
  }
  const ac_tensor *t = lac_check_tensor(L, S, 1, "bytes");
  if (t->dtype != AC_U8 || t->ndim != 1 || !aci_is_contiguous(t) || t->device->kind != AC_DEV_CPU)
    return lac_argerror(L, S, AC_INVALID, NULL, 1, "bytes",
                        "expected string or contiguous u8 tensor of rank 1 on the CPU");
  /* a copy, since making the result may run finalizers that release t */
  p->bytes = malloc((size_t)t->numel + 1);
  if (p->bytes == NULL) return lac_error(L, S, AC_OOM, "out of memory");
  memcpy(p->bytes, ac_tensor_data(t), (size_t)t->numel);
  return finish(L, S, p, p->bytes, (size_t)t->numel, &o, info);
}

/* core.read(path, opts) */
static int read_file(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_settop(L, 2);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  ac_image_options o = options(L, S, 2);
  o.name = path;
  image *p = new_image(L);
  ac_err e;
  size_t n;
  if (aci_read_whole(path, MOST_BYTES, &p->bytes, &n, &e) != AC_OK) return lac_fail(L, &e);
  return finish(L, S, p, p->bytes, n, &o, wants_info(L, 2));
}

/* core.encode(picture, "jpeg" or "png", quality or level) -> bytes */
static int encode(lua_State *L) {
  static const char *const formats[] = {"jpeg", "png", NULL};
  lac_state *S = lac_get(L);
  const ac_tensor *t = lac_check_tensor(L, S, 1, "picture");
  const int which = luaL_checkoption(L, 2, NULL, formats);
  const int64_t level = lac_check_int(L, S, 3, "level");
  if (t->device->kind != AC_DEV_CPU)
    return lac_argerror(L, S, AC_INVALID, NULL, 1, "picture", "expected tensor on the CPU");
  image *p = new_image(L);
  t = lac_check_tensor(L, S, 1, "picture"); /* making the box may run finalizers */
  void *bytes;
  size_t n;
  ac_err e;
  const int value = level < -1 || level > 1000 ? 1000 : (int)level;
  const ac_status st = which == 0 ? ac_image_encode_jpeg(t, value, &bytes, &n, &e)
                                  : ac_image_encode_png(t, value, &bytes, &n, &e);
  p->bytes = bytes;
  if (st != AC_OK) return lac_raise(L, S, &e);
  lua_pushlstring(L, p->bytes, n);
  free(p->bytes);
  p->bytes = NULL;
  return 1;
}

LAC_OPEN("accel.vision.core", image) {
  static const luaL_Reg funcs[] = {
      {"decode", decode}, {"read", read_file}, {"encode", encode}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", image_close}, {"__close", image_close}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, IMAGE, metas, metas + 2);
}
