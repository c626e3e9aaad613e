/* Files that are being written, between lac_writer.c and lac_file.c. */
#ifndef LAC_WRITER_H
#define LAC_WRITER_H
#include "bindings/core/lac.h"
#include "file/set.h"

/* The open set of files at idx. NULL for nil or none. Raises for anything else, and for a closed
 * set. */
aci_set *lac_check_set(lua_State *L, lac_state *S, int idx, const char *name);
/* The open file of accel.util.writer at idx. Raises for anything else, and for a closed file. */
aci_atomic_file *lac_check_file(lua_State *L, lac_state *S, int idx);
/* Permissions by the option private of the table at idx: 0600, or 0 for the usual ones. */
unsigned lac_private_mode(lua_State *L, lac_state *S, int idx);

#endif
