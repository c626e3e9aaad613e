/* accel.yaml.decode(text): the document as tables that keep the written text and its position. The
 * reader decides types: the schema of configurations (accel.config) defines the meaning of `on` or
 * `010`. */
#include "base/yaml.h"
#include "bindings/core/lac.h"

static const char key_doc;

static int doc_gc(lua_State *L) {
  aci_yaml_doc **d = lua_touserdata(L, 1);
  aci_yaml_free(*d);
  *d = NULL;
  return 0;
}

static void set_int(lua_State *L, const char *name, int v) {
  lua_pushinteger(L, v);
  lua_setfield(L, -2, name);
}

/* Pushes the node's table. An alias makes one of its own. Depth is bounded: 64 levels of text,
 * aliases name finished nodes only, and their contents count against 100000 nodes. */
static void push_node(lua_State *L, const aci_yaml_doc *d, const aci_yaml *nodes, uint32_t at) {
  static const char *const kinds[] = {"scalar", "list", "map"}, *const styles[] = {
                                                                    "plain", "quoted", "block"};
  const aci_yaml *v = &nodes[at];
  const int line = v->line, column = v->column;
  while (v->type == ACI_YAML_ALIAS) v = &nodes[v->text];
  luaL_checkstack(L, 8, "yaml");
  lua_createtable(L, v->type == ACI_YAML_SCALAR ? 0 : (int)v->len, 6);
  lua_pushstring(L, kinds[v->type]);
  lua_setfield(L, -2, "kind");
  set_int(L, "line", line);
  set_int(L, "column", column);
  if (v->tag != NULL) lua_pushstring(L, v->tag), lua_setfield(L, -2, "tag");
  if (v->type == ACI_YAML_SCALAR) {
    lua_pushlstring(L, aci_yaml_text(d, v), v->len);
    lua_setfield(L, -2, "text");
    lua_pushstring(L, styles[v->style]);
    lua_setfield(L, -2, "style");
    return;
  }
  lua_Integer i = 0;
  for (const aci_yaml *m = v + 1, *end = v + v->span; m < end; m += m->span) {
    if (v->type == ACI_YAML_LIST) {
      push_node(L, d, nodes, (uint32_t)(m - nodes));
    } else {
      lua_createtable(L, 0, 4);
      lua_pushlstring(L, aci_yaml_text(d, m), m->len);
      lua_setfield(L, -2, "key");
      set_int(L, "line", m->line);
      set_int(L, "column", m->column);
      m += m->span;
      push_node(L, d, nodes, (uint32_t)(m - nodes));
      lua_setfield(L, -2, "value");
    }
    lua_rawseti(L, -2, ++i);
  }
}

/* yaml.decode(text [, {max_nodes =}]) -> the root's table, nil for a document without one, or nil,
 * message, code */
static int decode(lua_State *L) {
  static const char *const names[] = {"max_nodes", NULL};
  lac_state *S = lac_get(L);
  size_t n;
  const char *text = lac_check_string(L, S, 1, "text", &n);
  lac_opts o = lac_opts_open(L, S, 2, names);
  const int64_t most = lac_opt_int(&o, "max_nodes", ACI_YAML_MAX_NODES);
  if (most < 1 || most > ACI_YAML_MAX_NODES)
    return lac_argerror(L, S, AC_INVALID, "decode", 0, "max_nodes", "lies in 1 .. %d",
                        ACI_YAML_MAX_NODES);
  aci_yaml_doc **d = lua_newuserdatauv(L, sizeof *d, 0);
  *d = NULL;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_doc);
  lua_setmetatable(L, -2);
  lua_toclose(L, -1);
  ac_err e;
  if (aci_yaml_parse(text, n, (uint32_t)most, d, &e) != AC_OK) return lac_fail(L, &e);
  uint32_t count;
  const aci_yaml *nodes = aci_yaml_nodes(*d, &count);
  if (count == 0) lua_pushnil(L);
  else push_node(L, *d, nodes, 0);
  return 1;
}

/* yaml.available() -> true, or false, message */
static int available(lua_State *L) {
  ac_err e;
  const bool there = aci_yaml_available(&e);
  lua_pushboolean(L, there);
  if (there) return 1;
  lua_pushstring(L, e.msg);
  return 2;
}

LAC_OPEN("accel", yaml) {
  static const luaL_Reg funcs[] = {{"decode", decode}, {"available", available}, {NULL, NULL}};
  lua_newtable(L);
  lua_pushcfunction(L, doc_gc);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "__gc");
  lua_setfield(L, -2, "__close");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_doc);
  lua_newtable(L);
  lac_setfuncs(L, S, funcs);
  lua_setfield(L, -2, "yaml");
}
