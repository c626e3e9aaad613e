/* The Lua files: chunk.c has those inside the library, path.c finds the others. */
#ifndef LAC_CHUNK_H
#define LAC_CHUNK_H
#include "bindings/core/state.h"

/* Pops the environment of the files that are run from now on (lua/rights.lua), or nil: the
 * globals. */
void lac_chunk_env(lua_State *L);
/* Runs lua/<name>.lua once with the accel table and lib_dir as its arguments and pushes its
 * result. */
void lac_chunk(lua_State *L, lac_state *S, const char *name);
/* Pushes a function that stands in for that result until it is first called. */
void lac_push_lazy(lua_State *L, const char *name);
/* Folder that holds accel/init.lua: next to this library, otherwise the installed one. False: not
 * found. */
bool lac_lua_dir(char *buf, size_t n);

#endif
