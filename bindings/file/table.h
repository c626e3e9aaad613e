/* Values of table columns for Lua: table_cell.c. Called by lac_table.c. */
#ifndef LAC_FILE_TABLE_H
#define LAC_FILE_TABLE_H
#include "bindings/file/open.h"
#include "file/table/load.h"

/* Pushes row i. keep: null is accel.json.null, otherwise nil. nulls: the same in structs below. */
void lac_push_cell(lua_State *L, lac_state *S, const aci_column *c, int64_t i, bool keep,
                   bool nulls);
/* Pushes the values of a column of numbers, or of lists of numbers, as a tensor in the batch's memory. */
int lac_column_tensor(lua_State *L, lac_state *S, aci_batch *b, const aci_column *c);
/* Pushes the places where the lists of a column begin and end, i64 [rows + 1], from 0. */
int lac_column_offsets(lua_State *L, lac_state *S, aci_batch *b, const aci_column *c);

#endif
