/* Files of Lua's io library from descriptors: lac_open.c. Called by lac_stream.c as well. */
#ifndef LAC_FILE_OPEN_H
#define LAC_FILE_OPEN_H
#include <lauxlib.h>

#include "bindings/core/lac.h"

/* Argument 1 as a path. The library reads its own files, whatever scripts may do. */
const char *lac_path_arg(lua_State *L, lac_state *S, const char *who);
/* The option limit: bytes of content in memory, 0 for aci_unpacked_limit's. From open options, and from
 * a table at idx that has no other one. */
uint64_t lac_limit_of(const lac_opts *o);
uint64_t lac_limit_opt(lua_State *L, lac_state *S, int idx);
/* A file that is still closed: whatever raises now, nothing is open. */
luaL_Stream *lac_push_file(lua_State *L);
/* Hands it the descriptor. The results of the function that opens the file. */
int lac_fill_file(lua_State *L, luaL_Stream *s, int fd, const char *mode, const char *path);

#endif
