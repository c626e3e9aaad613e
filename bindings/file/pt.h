/* Functions of lac_pt.c for lac_file.c (accel.load) and lac_pt_reader.c (one tensor at a time). */
#ifndef LAC_PT_H
#define LAC_PT_H
#include "accel/file.h"
#include "bindings/core/state.h"

/* The class that closes a file of torch.save. Its userdata holds this. */
#define LAC_PT "accel.pt"
typedef struct lac_pt_holder {
  ac_pt *f;
} lac_pt_holder;

/* Pushes the tree with its tensors on d, or nil, message, code. Returns the number of values. */
int lac_pt_load(lua_State *L, lac_state *S, const char *path, ac_device *d);
/* Pushes a u8 tensor of storage i on d, just read. False: *e is filled and the value on top is
 * undefined. */
bool lac_pt_push_storage(lua_State *L, lac_state *S, ac_pt *f, int i, ac_device *d, ac_err *e);

#endif
