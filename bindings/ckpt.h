/* What lac_ckpt.c (saves) and lac_ckpt_read.c (opened checkpoints, folders) share: both halves of the module accel.ckpt.core. */
#ifndef LAC_CKPT_H
#define LAC_CKPT_H
#include "core/lac.h"

/* open, scan and prune into the table at the top of the stack, and the class of opened checkpoints. */
void lac_ckpt_read_functions(lua_State *L, lac_state *S);

#endif
