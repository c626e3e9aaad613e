/* Keys of t[key], parsed: lac_index.c lists the forms of a key. */
#ifndef LAC_KEY_H
#define LAC_KEY_H
#include "bindings/core/lac.h"

#define LAC_NEWAXIS "newaxis" /* the value of accel.newaxis */

enum { LAC_KEY_ENTRIES = 2 * AC_MAX_DIMS, LAC_KEY_DIMS = LAC_KEY_ENTRIES + AC_MAX_DIMS };

/* A key taken apart. */
typedef struct lac_key {
  int n_spec, n_view; /* the part without tensors as a spec, and the rank of its view */
  bool whole;         /* that view is all of t, in its shape */
  int n_parts;
  struct {
    ac_tensor *t;
    int dim; /* of the view: the first one that it addresses */
  } part[AC_MAX_DIMS];
  int64_t spec[3 * LAC_KEY_DIMS], view[LAC_KEY_DIMS]; /* view: its shape */
} lac_key;

/* Parses the key at 2, a table or a tensor. t is the indexed tensor. Raises if it does not fit.
 * Allocates nothing, so that no finalizer runs meanwhile. */
void lac_key_parse(lua_State *L, lac_state *S, const ac_tensor *t, lac_key *k);
/* Is the key at 2 a tensor, or a table that may hold one? */
bool lac_key_has_tensors(lua_State *L);
/* The number at idx as a position in dim d of t, 0-based. */
int64_t lac_key_position(lua_State *L, lac_state *S, const ac_tensor *t, int d, int idx);
/* Raises: the value at idx is not a key. */
int lac_key_bad(lua_State *L, lac_state *S, int idx);

/* ---- lac_index.c ---- */
/* t[key] and t[key] = value of the running metamethod, for keys other than names. */
int lac_index_get(lua_State *L, lac_state *S);
int lac_index_set(lua_State *L, lac_state *S);

#endif
