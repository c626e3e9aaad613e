/* Arguments of hand-written functions: check.c. `name` is the parameter's. */
#ifndef LAC_CHECK_H
#define LAC_CHECK_H
#include "bindings/core/box.h"
#include "bindings/core/raise.h"

lac_box *lac_check_box(lua_State *L, lac_state *S, int idx, const char *name);
ac_tensor *lac_check_tensor(lua_State *L, lac_state *S, int idx, const char *name);
int64_t lac_check_int(lua_State *L, lac_state *S, int idx, const char *name);
double lac_check_number(lua_State *L, lac_state *S, int idx, const char *name);
bool lac_check_bool(lua_State *L, lac_state *S, int idx, const char *name);
const char *lac_check_string(lua_State *L, lac_state *S, int idx, const char *name, size_t *len);
/* A string that names a file or folder: as the program of the host wants it, if it limits paths. */
const char *lac_check_path(lua_State *L, lac_state *S, int idx, const char *name, size_t *len);
ac_dtype lac_check_dtype(lua_State *L, lac_state *S, int idx, const char *name);
ac_device *lac_check_device(lua_State *L, lac_state *S, int idx, const char *name);
ac_generator *lac_check_generator(lua_State *L, lac_state *S, int idx, const char *name);
void lac_check_function(lua_State *L, lac_state *S, int idx, const char *name);
/* Raises if arguments follow number `last` (nil counts as none): no argument is dropped
 * silently. */
void lac_check_last(lua_State *L, lac_state *S, int last);
/* Extents from a table at idx or from numbers at idx, idx+1, ... up to last. Returns ndim and the
 * index after the last one read. */
int lac_check_shape(lua_State *L, lac_state *S, int idx, int last, const char *name, int64_t *shape,
                    int *next);
/* 1-based position among n (negative from the end) -> 0-based. INDEX error otherwise. */
int64_t lac_check_pos(lua_State *L, lac_state *S, int idx, int64_t n, const char *name);
/* Is the value at idx a table of options (string keys) and not a list? */
bool lac_is_opts(lua_State *L, int idx);
bool lac_is_scalar(lua_State *L, int idx, ac_scalar *out); /* number or boolean */

/* One tensor or a list of them at idx -> *n retained references in a userdata that is pushed.
 * Release them with lac_list_release. */
typedef struct lac_list {
  int n;
  ac_tensor *t[]; /* entries may be NULL if nils are allowed */
} lac_list;
lac_list *lac_check_list(lua_State *L, lac_state *S, int idx, const char *name, bool nils);
/* empty, pushed. The caller must stay within cap */
lac_list *lac_list_new(lua_State *L, size_t cap);
void lac_list_release(lac_list *l);

#endif
