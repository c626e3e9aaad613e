/* Declarations shared by lac_ckpt.c (saves) and lac_ckpt_read.c (opened checkpoints, folders): both
 * halves of the module accel.ckpt.core. */
#ifndef LAC_CKPT_H
#define LAC_CKPT_H
#include "bindings/core/lac.h"

/* The strings of the list at idx, in memory that stays on the stack. *n: their number. */
const char **lac_ckpt_strings(lua_State *L, lac_state *S, int idx, const char *name, int *n);

/* open, scan and prune into the table at the top of the stack, and the class of opened
 * checkpoints. */
void lac_ckpt_read_functions(lua_State *L, lac_state *S);

#endif
