/* Pictures in memory for Lua, in accel.vision.core: u8 tensors [height, width, channels] to new ones.
 * Called by accel.vision.transforms, which checks the meaning of arguments. */
#include <string.h>

#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "file/pixels/pixels.h"
#include "tensor/tensor_impl.h"

static const ac_tensor *check(lua_State *L, lac_state *S, int idx, ac_dtype dt) {
  const ac_tensor *t = lac_check_tensor(L, S, idx, "picture");
  if (t->dtype != dt || t->ndim != 3 || !aci_is_contiguous(t) || t->device->kind != AC_DEV_CPU ||
      t->shape[2] < 1 || t->shape[2] > 4 || t->numel == 0)
    lac_argerror(L, S, AC_INVALID, NULL, idx, "picture",
                 "expected contiguous %s tensor [height, width, 1 to 4 channels] on the CPU",
                 ac_dtype_name(dt));
  return t;
}

static aci_pixels view(const ac_tensor *t) {
  return (aci_pixels){ac_tensor_data((ac_tensor *)(uintptr_t)t), t->shape[0], t->shape[1],
                      (int)t->shape[2]};
}

/* Pushes a picture, then checks the source again: making a box may run finalizers. */
static aci_pixels result(lua_State *L, lac_state *S, int64_t height, int64_t width, int channels) {
  const int64_t shape[] = {height, width, channels};
  if (height < 1 || width < 1 || height > INT32_MAX || width > INT32_MAX)
    lac_error(L, S, AC_SHAPE, "the size of the result is %lld x %lld", (long long)height,
              (long long)width);
  return view(lac_new_cpu(L, S, AC_U8, 3, shape));
}

static void numbers(lua_State *L, lac_state *S, int idx, const char *name, double *to, int n) {
  luaL_checktype(L, idx, LUA_TTABLE);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, idx, i + 1);
    if (!lua_isnumber(L, -1))
      lac_argerror(L, S, AC_INVALID, NULL, idx, name, "expected %d numbers", n);
    to[i] = lua_tonumber(L, -1);
    lua_pop(L, 1);
  }
}

static aci_filter filter(lua_State *L, lac_state *S, int idx) {
  const int64_t f = lac_check_int(L, S, idx, "filter");
  if (f < 0 || f > ACI_HAMMING)
    lac_argerror(L, S, AC_INVALID, NULL, idx, "filter", "must be 0 to 5, got %lld", (long long)f);
  return (aci_filter)f;
}

/* resample(picture, height, width, filter, {left, upper, right, lower}) */
static int resample(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = check(L, S, 1, AC_U8);
  const aci_filter f = filter(L, S, 4);
  double box[4];
  numbers(L, S, 5, "box", box, 4);
  if (!(box[0] >= 0 && box[1] >= 0 && box[2] > box[0] && box[3] > box[1] &&
        box[2] <= (double)t->shape[1] && box[3] <= (double)t->shape[0]))
    return lac_argerror(L, S, AC_INVALID, NULL, 5, "box", "must lie in the picture");
  aci_pixels out = result(L, S, lac_check_int(L, S, 2, "height"), lac_check_int(L, S, 3, "width"),
                          (int)t->shape[2]);
  const aci_pixels in = view(check(L, S, 1, AC_U8));
  ac_err e;
  if (aci_pixels_resample(&in, box, f, &out, &e) != AC_OK) return lac_raise(L, S, &e);
  return 1;
}

/* resample_weights(in, first, last, out, filter) -> f64 [out, in] */
static int resample_weights(lua_State *L) {
  lac_state *S = lac_get(L);
  const int64_t in = lac_check_int(L, S, 1, "in"), out = lac_check_int(L, S, 4, "out");
  const double first = lac_check_number(L, S, 2, "first"), last = lac_check_number(L, S, 3, "last");
  const aci_filter f = filter(L, S, 5);
  if (in < 1 || out < 1 || in > INT32_MAX || out > INT32_MAX || !(first >= 0) || !(last > first) ||
      !(last <= (double)in))
    return lac_error(L, S, AC_INVALID, "invalid sizes of a resize");
  const int64_t shape[] = {out, in};
  ac_tensor *t = lac_new_cpu(L, S, AC_F64, 2, shape);
  ac_err e;
  if (aci_resample_weights(in, first, last, out, f, ac_tensor_data(t), &e) != AC_OK)
    return lac_raise(L, S, &e);
  return 1;
}

/* warp(picture, height, width, coefficients, filter, fill): fill is nil or a byte a channel. PyTorch's
 * arithmetic for f32, Pillow's for u8 */
static int warp(lua_State *L) {
  lac_state *S = lac_get(L);
  const bool floats = lac_check_tensor(L, S, 1, "picture")->dtype == AC_F32;
  const ac_tensor *t = check(L, S, 1, floats ? AC_F32 : AC_U8);
  const int channels = (int)t->shape[2];
  double a[8], fill[4] = {0};
  numbers(L, S, 4, "coefficients", a, 8);
  const aci_filter f = filter(L, S, 5);
  const bool filled = !lua_isnoneornil(L, 6);
  if (filled) numbers(L, S, 6, "fill", fill, channels);
  const int64_t height = lac_check_int(L, S, 2, "height"), width = lac_check_int(L, S, 3, "width");
  if (floats) {
    const int64_t shape[] = {height, width, channels};
    const float value[4] = {(float)fill[0], (float)fill[1], (float)fill[2], (float)fill[3]};
    ac_tensor *out = lac_new_cpu(L, S, AC_F32, 3, shape);
    t = check(L, S, 1, AC_F32);
    aci_floats_warp(ac_tensor_data((ac_tensor *)(uintptr_t)t), t->shape[0], t->shape[1], channels,
                    a, f, filled ? value : NULL, ac_tensor_data(out), height, width);
    return 1;
  }
  aci_pixels out = result(L, S, height, width, channels);
  const aci_pixels in = view(check(L, S, 1, AC_U8));
  for (int64_t i = 0; i < height * width * channels; i++) out.p[i] = (uint8_t)fill[i % channels];
  aci_pixels_warp(&in, a, f, &out);
  return 1;
}

/* kernel3(picture, {9 numbers}, scale) */
static int kernel3(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = check(L, S, 1, AC_U8);
  double given[9];
  float k[9];
  numbers(L, S, 2, "kernel", given, 9);
  for (int i = 0; i < 9; i++) k[i] = (float)given[i];
  const float scale = (float)lac_check_number(L, S, 3, "scale");
  aci_pixels out = result(L, S, t->shape[0], t->shape[1], (int)t->shape[2]);
  const aci_pixels in = view(check(L, S, 1, AC_U8));
  aci_pixels_kernel3(&in, k, scale, &out);
  return 1;
}

/* blur(picture, sigma) */
static int blur(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = check(L, S, 1, AC_U8);
  const double sigma = lac_check_number(L, S, 2, "sigma");
  if (!(sigma > 0 && sigma < 1e4))
    return lac_argerror(L, S, AC_INVALID, NULL, 2, "sigma", "must be positive");
  aci_pixels out = result(L, S, t->shape[0], t->shape[1], (int)t->shape[2]);
  const aci_pixels in = view(check(L, S, 1, AC_U8));
  ac_err e;
  if (aci_pixels_blur(&in, sigma, &out, &e) != AC_OK) return lac_raise(L, S, &e);
  return 1;
}

/* table(picture, values): 256 values for all channels, or 256 for each */
static int table(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = check(L, S, 1, AC_U8);
  luaL_checktype(L, 2, LUA_TTABLE);
  const lua_Unsigned n = lua_rawlen(L, 2);
  uint8_t values[1024];
  if (n != 256 && n != 256 * (lua_Unsigned)t->shape[2])
    return lac_argerror(L, S, AC_INVALID, NULL, 2, "values", "expected 256 or 256 a channel");
  for (lua_Unsigned i = 0; i < n; i++) {
    lua_rawgeti(L, 2, (lua_Integer)i + 1);
    values[i] = aci_clip8((int)lua_tonumber(L, -1));
    lua_pop(L, 1);
  }
  aci_pixels out = result(L, S, t->shape[0], t->shape[1], (int)t->shape[2]);
  const aci_pixels in = view(check(L, S, 1, AC_U8));
  aci_pixels_table(&in, values, n > 256, &out);
  return 1;
}

/* blend(a, b, alpha) */
static int blend(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = check(L, S, 1, AC_U8), *u = check(L, S, 2, AC_U8);
  for (int d = 0; d < 3; d++)
    if (t->shape[d] != u->shape[d])
      return lac_error(L, S, AC_SHAPE, "blend: pictures differ in size");
  const float alpha = (float)lac_check_number(L, S, 3, "alpha");
  aci_pixels out = result(L, S, t->shape[0], t->shape[1], (int)t->shape[2]);
  const aci_pixels a = view(check(L, S, 1, AC_U8)), b = view(check(L, S, 2, AC_U8));
  aci_pixels_blend(&a, &b, alpha, &out);
  return 1;
}

/* histogram(picture) -> i64 [channels, 256] */
static int histogram(lua_State *L) {
  lac_state *S = lac_get(L);
  const int64_t shape[] = {check(L, S, 1, AC_U8)->shape[2], 256};
  ac_tensor *out = lac_new_cpu(L, S, AC_I64, 2, shape);
  const aci_pixels in = view(check(L, S, 1, AC_U8));
  aci_pixels_histogram(&in, ac_tensor_data(out));
  return 1;
}

/* convert(picture of 3 channels, "L", "YCbCr", "HSV" or "RGB"): RGB is from HSV */
static int convert(lua_State *L) {
  static const char *const names[] = {"L", "YCbCr", "HSV", "RGB", NULL};
  static void (*const to[])(const aci_pixels *, aci_pixels *) = {aci_pixels_gray, aci_pixels_ycbcr,
                                                                 aci_pixels_hsv, aci_pixels_rgb};
  lac_state *S = lac_get(L);
  const ac_tensor *t = check(L, S, 1, AC_U8);
  const int which = luaL_checkoption(L, 2, NULL, names);
  if (t->shape[2] != 3) return lac_error(L, S, AC_SHAPE, "convert: expected 3 channels");
  aci_pixels out = result(L, S, t->shape[0], t->shape[1], which == 0 ? 1 : 3);
  const aci_pixels in = view(check(L, S, 1, AC_U8));
  to[which](&in, &out);
  return 1;
}

LAC_OPEN("accel.vision.core", pixels) {
  static const luaL_Reg funcs[] = {{"resample", resample}, {"resample_weights", resample_weights},
                                   {"warp", warp},         {"kernel3", kernel3},
                                   {"blur", blur},         {"table", table},
                                   {"blend", blend},       {"histogram", histogram},
                                   {"convert", convert},   {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
