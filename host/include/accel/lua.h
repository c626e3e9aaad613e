/* accel/lua.h - accel as modules of a Lua 5.4 state that somebody else made.
 *
 * accel.core is the native part. accel is the whole library: it needs the Lua files of
 * share/lua/5.4/accel on package.path. A stock interpreter finds both as accel/core.so and
 * accel/init.lua through LUA_CPATH and LUA_PATH. A C program may put these into package.preload.
 * Each Lua state gets a context of its own, which lives as long as the state.
 *
 * A module in C that works on accel's tensors uses these functions, is compiled with
 * `pkg-config --cflags accel-lua` (CMake: accel::lua) and links no library: the process has accel
 * already, as libaccel in a host and accel-run, or as accel/core.so in a stock interpreter, where
 * the script must require "accel" before the module. Functions here are called by the thread that
 * runs L. */
#ifndef ACCEL_LUA_H
#define ACCEL_LUA_H
#include "accel/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lua_State;

AC_API int luaopen_accel_core(struct lua_State *L);
AC_API int luaopen_accel(struct lua_State *L);

/* The context of a Lua state. NULL when accel was not opened in it. Borrowed. */
AC_API ac_ctx *ac_lua_ctx(struct lua_State *L);
/* Pushes t as a tensor of Lua (retains it). NULL pushes nil. May raise. */
AC_API void ac_lua_push(struct lua_State *L, ac_tensor *t);
/* The tensor at idx, borrowed. Raises when there is none. */
AC_API ac_tensor *ac_lua_check(struct lua_State *L, int idx);
/* The same, but NULL when there is none. */
AC_API ac_tensor *ac_lua_test(struct lua_State *L, int idx);
/* Pushes a capsule for accel.from_dlpack, which owns m (and calls its deleter when nobody takes
 * it). Raises only for want of memory. */
AC_API void ac_lua_push_dlpack(struct lua_State *L, struct DLManagedTensor *m);
/* Takes the tensor out of the capsule at idx: the caller calls its deleter. NULL: no capsule, or
 * taken before. */
AC_API struct DLManagedTensor *ac_lua_take_dlpack(struct lua_State *L, int idx);

#ifdef __cplusplus
}
#endif
#endif
