/* Sounds: accel.audio.core.load(path, opts), decode(bytes, opts) and encode(tensor, rate, format, ...),
 * which accel.audio.io wraps. A file that cannot be opened returns nil, message, code. A sound that
 * is damaged raises. */
#include <stdlib.h>
#include <string.h>

#include "accel/sound.h"
#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "tensor/tensor_impl.h"

#define SOUND "accel.audio.sound"

/* Closed by its finalizer where making the tensor raises. */
typedef struct sound {
  ac_sound *s;
  void *bytes; /* of encode */
} sound;

static int sound_close(lua_State *L) {
  sound *p = luaL_checkudata(L, 1, SOUND);
  ac_sound_close(p->s);
  free(p->bytes);
  *p = (sound){0};
  return 0;
}

static sound *new_sound(lua_State *L) {
  sound *p = lua_newuserdatauv(L, sizeof *p, 0);
  *p = (sound){0};
  luaL_setmetatable(L, SOUND);
  return p;
}

typedef struct request {
  int64_t first, frames;
  bool native, info;
} request;

static request options(lua_State *L, lac_state *S, int idx) {
  static const char *const names[] = {"frame_offset", "num_frames", "native", "info", NULL};
  const lac_opts o = lac_opts_open(L, S, idx, names);
  return (request){lac_opt_int(&o, "frame_offset", 0), lac_opt_int(&o, "num_frames", -1),
                   lac_opt_bool(&o, "native", false), lac_opt_bool(&o, "info", false)};
}

static void push_info(lua_State *L, const ac_sound_info *i) {
  lua_createtable(L, 0, 6);
  lua_pushinteger(L, i->rate);
  lua_setfield(L, -2, "sample_rate");
  lua_pushinteger(L, i->frames);
  lua_setfield(L, -2, "num_frames");
  lua_pushinteger(L, i->channels);
  lua_setfield(L, -2, "num_channels");
  lua_pushinteger(L, i->bits);
  lua_setfield(L, -2, "bits_per_sample");
  lua_pushstring(L, i->encoding);
  lua_setfield(L, -2, "encoding");
  lua_pushstring(L, i->format);
  lua_setfield(L, -2, "format");
}

/* The results: samples and rate, or a table about the sound. */
static int finish(lua_State *L, lac_state *S, sound *p, request r) {
  ac_sound_info i;
  ac_err e;
  ac_sound_about(p->s, &i);
  if (r.info) {
    push_info(L, &i);
    ac_sound_close(p->s);
    p->s = NULL;
    return 1;
  }
  if (r.first > i.frames) r.first = i.frames; /* as torchaudio: no frames */
  if (r.frames < 0 || r.frames > i.frames - r.first) r.frames = i.frames - r.first;
  ac_dtype dt = AC_F32;
  if (r.native)
    dt = i.bits == 8 && strcmp(i.encoding, "PCM_U") == 0 ? AC_U8 : i.bits == 16 ? AC_I16 : AC_I32;
  const int64_t shape[] = {i.channels, r.frames};
  ac_tensor *out = lac_new_cpu(L, S, dt, 2, shape);
  if (ac_sound_read(p->s, r.first, out, &e) != AC_OK) return lac_raise(L, S, &e);
  lua_pushinteger(L, i.rate);
  ac_sound_close(p->s); /* now, not at a collection */
  p->s = NULL;
  return 2;
}

/* core.load(path, opts) */
static int load(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_settop(L, 2);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  const request r = options(L, S, 2);
  sound *p = new_sound(L);
  ac_err e;
  const ac_status st = ac_sound_open(path, &p->s, &e);
  if (st == AC_NOT_FOUND || st == AC_IO) return lac_fail(L, &e);
  if (st != AC_OK) return lac_raise(L, S, &e);
  return finish(L, S, p, r);
}

/* core.decode(bytes, opts) */
static int decode(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_settop(L, 2);
  size_t n;
  const char *bytes = lac_check_string(L, S, 1, "bytes", &n);
  const request r = options(L, S, 2);
  sound *p = new_sound(L);
  ac_err e;
  if (ac_sound_open_bytes(bytes, n, "load", &p->s, &e) != AC_OK) return lac_raise(L, S, &e);
  return finish(L, S, p, r);
}

/* core.encode(tensor, rate, format [, encoding [, bits]]) -> bytes */
static int encode(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = lac_check_tensor(L, S, 1, "src");
  const int64_t rate = lac_check_int(L, S, 2, "sample_rate");
  const char *format = lac_check_string(L, S, 3, "format", NULL);
  const char *encoding = lua_isnoneornil(L, 4) ? NULL : lac_check_string(L, S, 4, "encoding", NULL);
  const int64_t bits = lua_isnoneornil(L, 5) ? 0 : lac_check_int(L, S, 5, "bits_per_sample");
  if (t->device->kind != AC_DEV_CPU)
    return lac_argerror(L, S, AC_INVALID, NULL, 1, "src", "expected tensor on the CPU");
  sound *p = new_sound(L);
  ac_err e;
  size_t n;
  if (ac_sound_encode(t, rate, format, encoding, (int)bits, &p->bytes, &n, &e) != AC_OK)
    return lac_raise(L, S, &e);
  lua_pushlstring(L, p->bytes, n);
  free(p->bytes);
  p->bytes = NULL;
  return 1;
}

LAC_OPEN("accel.audio.core", sound) {
  static const luaL_Reg funcs[] = {
      {"load", load}, {"decode", decode}, {"encode", encode}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", sound_close}, {"__close", sound_close}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, SOUND, metas, metas + 2);
}
