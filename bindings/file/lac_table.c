/* Tables: accel.file.core.open_table(path [, {limit =}]), Arrow or Parquet by content.
 *
 *   t:info()              format, rows, batches (rows of each), columns (name, type, nullable),
 *                         metadata
 *   t:batch(k [, names])  rows k (from 1): a batch with the methods rows(), row(i), column(name),
 *                         tensor(name), offsets(name)
 *   t:close()
 *
 * Values: nulls are absent (nil) in rows and structs, and accel.json.null in lists. Integers that Lua
 * lacks, decimals, and maps come as text, text, and pairs. A file that fails returns nil, message,
 * code. */
#include <string.h>

#include "bindings/file/table.h"

#define TABLE "accel.file.table"
#define BATCH "accel.file.batch"

static int open_table(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_path_arg(L, S, "open_table");
  const uint64_t limit = lac_limit_opt(L, S, 2);
  aci_table **t = lua_newuserdatauv(L, sizeof *t, 0);
  *t = NULL;
  luaL_setmetatable(L, TABLE);
  ac_err e;
  return aci_table_open(path, (size_t)limit, t, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

static int close_table(lua_State *L) {
  aci_table **t = luaL_checkudata(L, 1, TABLE);
  aci_table_release(*t);
  *t = NULL;
  return 0;
}

static aci_table *check_table(lua_State *L, lac_state *S) {
  aci_table **t = luaL_checkudata(L, 1, TABLE);
  if (*t == NULL) lac_error(L, S, AC_RELEASED, "the table is closed");
  return *t;
}

typedef struct text {
  aci_strbuf b;
} text;

static int text_gc(lua_State *L) {
  aci_strbuf_fini(&((text *)lua_touserdata(L, 1))->b);
  return 0;
}

/* Names of types live in memory of C: the userdata frees it whatever raises. */
static void push_columns(lua_State *L, lac_state *S, const aci_type *t) {
  text *x = lua_newuserdatauv(L, sizeof *x, 0);
  memset(x, 0, sizeof *x);
  luaL_setmetatable(L, "accel.file.table.text");
  lua_createtable(L, t->n_children, 0);
  for (int i = 0; i < t->n_children; i++) {
    const aci_type *c = &t->child[i];
    x->b.len = 0;
    aci_type_describe(c, &x->b);
    if (x->b.failed) lac_error(L, S, AC_OOM, "no memory for the types of a table");
    lua_createtable(L, 0, 4);
    lua_pushstring(L, c->name);
    lua_setfield(L, -2, "name");
    lua_pushlstring(L, x->b.s, x->b.len);
    lua_setfield(L, -2, "type");
    lua_pushboolean(L, c->nullable);
    lua_setfield(L, -2, "nullable");
    lua_rawseti(L, -2, i + 1);
  }
  lua_remove(L, -2);
}

static int table_info(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_table *t = check_table(L, S);
  lua_createtable(L, 0, 5);
  lua_pushstring(L, t->ops->format);
  lua_setfield(L, -2, "format");
  lua_pushinteger(L, t->rows);
  lua_setfield(L, -2, "rows");
  lua_createtable(L, (int)t->n_batches, 0);
  for (int64_t i = 0; i < t->n_batches; i++) {
    lua_pushinteger(L, t->batch_rows[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "batches");
  push_columns(L, S, &t->schema);
  lua_setfield(L, -2, "columns");
  lua_createtable(L, 0, t->n_meta);
  for (int i = 0; i < t->n_meta; i++) {
    lua_pushlstring(L, t->meta[i].key, t->meta[i].n_key);
    lua_pushlstring(L, t->meta[i].value, t->meta[i].n_value);
    lua_rawset(L, -3);
  }
  lua_setfield(L, -2, "metadata");
  return 1;
}

/* The flags of wanted columns, in a userdata, from a list of names. */
static bool *wanted_of(lua_State *L, lac_state *S, const aci_table *t, int idx) {
  if (lua_isnoneornil(L, idx)) return NULL;
  luaL_checktype(L, idx, LUA_TTABLE);
  bool *wanted = lua_newuserdatauv(L, (size_t)t->schema.n_children + 1, 0);
  memset(wanted, 0, (size_t)t->schema.n_children + 1);
  for (lua_Integer i = 1; lua_rawgeti(L, idx, i) != LUA_TNIL; i++, lua_pop(L, 1)) {
    const char *name = lua_tostring(L, -1);
    bool found = false;
    for (int k = 0; name != NULL && k < t->schema.n_children; k++)
      if (strcmp(t->schema.child[k].name, name) == 0) found = wanted[k] = true;
    if (!found)
      lac_error(L, S, AC_INVALID, "%s has no column '%s'", t->path, name != NULL ? name : "?");
  }
  lua_pop(L, 1);
  return wanted;
}

static int table_batch(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_table *t = check_table(L, S);
  const int64_t k = lac_check_int(L, S, 2, "k");
  if (k < 1 || k > t->n_batches)
    return lac_argerror(L, S, AC_INDEX, NULL, 2, "k", "must be 1 to %lld, got %lld",
                        (long long)t->n_batches, (long long)k);
  const bool *wanted = wanted_of(L, S, t, 3);
  aci_batch **b = lua_newuserdatauv(L, sizeof *b, 0);
  *b = NULL;
  luaL_setmetatable(L, BATCH);
  ac_err e;
  return aci_table_read(t, k - 1, wanted, b, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

/* ---- batches ---- */

static int close_batch(lua_State *L) {
  aci_batch **b = luaL_checkudata(L, 1, BATCH);
  aci_batch_release(*b);
  *b = NULL;
  return 0;
}

static aci_batch *check_batch(lua_State *L, lac_state *S) {
  aci_batch **b = luaL_checkudata(L, 1, BATCH);
  if (*b == NULL) lac_error(L, S, AC_RELEASED, "the rows are closed");
  return *b;
}

static int batch_rows(lua_State *L) {
  lua_pushinteger(L, check_batch(L, lac_get(L))->rows);
  return 1;
}

static int64_t check_row(lua_State *L, lac_state *S, const aci_batch *b) {
  const int64_t i = lac_check_int(L, S, 2, "i");
  if (i < 1 || i > b->rows)
    lac_argerror(L, S, AC_INDEX, NULL, 2, "i", "must be 1 to %lld, got %lld", (long long)b->rows,
                 (long long)i);
  return i - 1;
}

/* batch:row(i [, nulls]) -> values by name. nulls: null is accel.json.null everywhere. */
static int batch_row(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_batch *b = check_batch(L, S);
  const int64_t i = check_row(L, S, b);
  const bool nulls = lua_toboolean(L, 3);
  lua_createtable(L, 0, b->n_columns);
  for (int k = 0; k < b->n_columns; k++) {
    if (b->columns[k].type == NULL) continue;
    lua_pushstring(L, b->columns[k].type->name);
    lac_push_cell(L, S, &b->columns[k], i, nulls, nulls);
    lua_rawset(L, -3);
  }
  return 1;
}

static const aci_column *check_column(lua_State *L, lac_state *S, const aci_batch *b) {
  const aci_type *schema = &b->table->schema;
  if (lua_isinteger(L, 2)) {
    const lua_Integer k = lua_tointeger(L, 2);
    if (k >= 1 && k <= b->n_columns && b->columns[k - 1].type != NULL) return &b->columns[k - 1];
  }
  const char *name = lac_check_string(L, S, 2, "name", NULL);
  for (int i = 0; i < b->n_columns; i++)
    if (strcmp(schema->child[i].name, name) == 0 && b->columns[i].type != NULL)
      return &b->columns[i];
  lac_error(L, S, AC_INVALID, "no column '%s' was read", name);
  return NULL;
}

/* batch:column(name [, nulls]) -> a list. Null is accel.json.null. A name, or a position. */
static int batch_column(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_batch *b = check_batch(L, S);
  const aci_column *c = check_column(L, S, b);
  const bool nulls = lua_toboolean(L, 3);
  lua_createtable(L, c->n < 1 << 24 ? (int)b->rows : 0, 0);
  for (int64_t i = 0; i < b->rows; i++) {
    lac_push_cell(L, S, c, i, true, nulls);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

static int batch_tensor(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_batch *b = check_batch(L, S);
  return lac_column_tensor(L, S, b, check_column(L, S, b));
}

static int batch_offsets(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_batch *b = check_batch(L, S);
  return lac_column_offsets(L, S, b, check_column(L, S, b));
}

LAC_OPEN("accel.file.core", table) {
  static const luaL_Reg funcs[] = {{"open_table", open_table}, {NULL, NULL}};
  static const luaL_Reg none[] = {{NULL, NULL}};
  static const luaL_Reg text_metas[] = {{"__gc", text_gc}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", close_table}, {"__close", close_table}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"info", table_info}, {"batch", table_batch}, {"close", close_table}, {NULL, NULL}};
  static const luaL_Reg batch_metas[] = {
      {"__gc", close_batch}, {"__close", close_batch}, {"__len", batch_rows}, {NULL, NULL}};
  static const luaL_Reg batch_methods[] = {{"rows", batch_rows},
                                           {"row", batch_row},
                                           {"column", batch_column},
                                           {"tensor", batch_tensor},
                                           {"offsets", batch_offsets},
                                           {"close", close_batch},
                                           {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, "accel.file.table.text", text_metas, none);
  lac_new_class(L, S, TABLE, metas, methods);
  lac_new_class(L, S, BATCH, batch_metas, batch_methods);
}
