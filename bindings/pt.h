/* What lac_pt.c gives to lac_file.c: accel.load of a file of torch.save. */
#ifndef LAC_PT_H
#define LAC_PT_H
#include "core/state.h"

/* Pushes the tree with its tensors on d, or nil, message, code; returns how many values those are. */
int lac_pt_load(lua_State *L, lac_state *S, const char *path, ac_device *d);

#endif
