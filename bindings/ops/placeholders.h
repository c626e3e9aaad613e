/* Dry runs, in which tensors on meta stand for a rank's own (accel.cli.dry_run_rank). Functions
 * that read values or write files ask after their checks of arguments, so that a dry run takes the
 * forms that a real run takes. */
#ifndef LAC_PLACEHOLDERS_H
#define LAC_PLACEHOLDERS_H

#include "bindings/core/lac.h"

/* Whether this state plays a dry run. */
bool lac_placeholders(lua_State *L);

/* Calls the dry run's save(path, tensors) instead with the values at these places, and pushes its
 * results. Returns their number. */
int lac_placeholders_save(lua_State *L, int path, int tensors);

#endif
