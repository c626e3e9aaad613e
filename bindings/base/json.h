/* Functions of lac_json.c for other files. */
#ifndef LAC_JSON_H
#define LAC_JSON_H
#include "bindings/core/state.h"

void lac_push_json_array(lua_State *L); /* pushes the metatable that marks arrays */

#endif
