/* Errors: raise.c. */
#ifndef LAC_RAISE_H
#define LAC_RAISE_H
#include "bindings/core/site.h"

/* A state's part: errors of callbacks on their way through the core. Both are registry references
 * of Lua values. */
typedef struct lac_errors {
  int pending; /* kept by lac_protect, raised by lac_raise. LUA_NOREF: none */
  int stop;    /* the one that ends a checkpoint's second run: made once, stays */
} lac_errors;

void lac_raise_open(lua_State *L, lac_state *S);
/* Forgets the pending error. */
void lac_forget_error(lua_State *L, lac_state *S);
/* Raises the error (does not return): message "train.lua:12: op: message", fields code, message,
 * op, where, traceback. */
int lac_raise(lua_State *L, lac_state *S, const ac_err *e);
int lac_error(lua_State *L, lac_state *S, ac_status code, const char *fmt, ...) AC_PRINTF(4, 5);
/* "bad argument #2 'dim' to 'sum' (expected ...)". arg 0: an option. fn NULL: the running
 * function's name. */
int lac_argerror(lua_State *L, lac_state *S, ac_status code, const char *fn, int arg,
                 const char *name, const char *fmt, ...) AC_PRINTF(7, 8);
/* nil, message, code: for files, peers and devices that fail. */
int lac_fail(lua_State *L, const ac_err *e);
/* Pushes an error object made of e, without raising. */
void lac_push_error(lua_State *L, lac_state *S, const ac_err *e, bool with_where);
/* "number", "f32 tensor", "nil", "no value", for messages. buf holds the longer ones. */
const char *lac_typename(lua_State *L, int idx, char *buf, size_t n);

#endif
