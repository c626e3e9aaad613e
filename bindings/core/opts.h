/* One table of declared options at the end of the arguments: opts.c. */
#ifndef LAC_OPTS_H
#define LAC_OPTS_H
#include "bindings/core/check.h"

typedef struct lac_opts {
  lua_State *L;
  lac_state *S;
  int idx; /* 0: none given */
} lac_opts;
/* The table at idx (nil or none: no options), the last argument: an argument after it raises, so
 * call this before you push anything. names ends with NULL. An unknown key raises and names the
 * nearest. */
lac_opts lac_opts_open(lua_State *L, lac_state *S, int idx, const char *const *names);
/* The same if a function and its arguments may follow the options. */
lac_opts lac_opts_open_first(lua_State *L, lac_state *S, int idx, const char *const *names);
/* lua_settop(L, n) after a check that no argument follows the n-th. */
void lac_args_end(lua_State *L, lac_state *S, int n);
/* Pushes the option and returns its index, or returns 0 (and pushes nothing) when it is not
 * given. */
int lac_opt_push(const lac_opts *o, const char *name);
bool lac_opt_bool(const lac_opts *o, const char *name, bool fallback);
int64_t lac_opt_int(const lac_opts *o, const char *name, int64_t fallback);
double lac_opt_number(const lac_opts *o, const char *name, double fallback);
const char *lac_opt_string(const lac_opts *o, const char *name, const char *fallback);
bool lac_opt_dtype(const lac_opts *o, const char *name, ac_dtype *out);
/* fallback NULL: the default device, which is found (and a GPU opened) only if the option is not
 * given. */
ac_device *lac_opt_device(const lac_opts *o, const char *name, ac_device *fallback);
ac_generator *lac_opt_generator(const lac_opts *o, const char *name);
int lac_opt_shape(const lac_opts *o, const char *name, int64_t *shape); /* -1: not given */

#endif
