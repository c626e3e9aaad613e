/* Facts about this build and this machine: accel.params() and accel.features(), for accel-run env
 * and bug reports. */
#include <dlfcn.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/base_impl.h"
#include "base/hmac.h"
#include "base/library.h"
#include "comm/mpi/mpi.h"
#include "bindings/core/lac.h"
#include "device/cpu/arm.h"
#include "device/cpu/isa.h"
#include "device/cpu/onednn.h"

static void set_string(lua_State *L, const char *key, const char *value) {
  lua_pushstring(L, value);
  lua_setfield(L, -2, key);
}

static void push_param(lua_State *L, const ac_params *p, const ac_param_info *i) {
  if (strcmp(i->name, "JOB_SECRET") == 0) { /* whoever reads a bug report must not learn it */
    lua_pushstring(L, ac_params_is_set(p, i->name) ? "(hidden)" : "");
    return;
  }
  switch (i->type) {
    case AC_PARAM_STR: lua_pushstring(L, ac_params_str(p, i->name)); break;
    case AC_PARAM_BOOL: lua_pushboolean(L, ac_params_int(p, i->name) != 0); break;
    case AC_PARAM_FLOAT: lua_pushnumber(L, ac_params_float(p, i->name)); break;
    default: lua_pushinteger(L, ac_params_int(p, i->name));
  }
}

/* accel.params(): list of {name, type, default, allowed, help, value, set}, then the ACCEL_*
 * variables that mean nothing: {unknown} */
static int params(lua_State *L) {
  static const char *const types[] = {"int", "bool", "size", "string", "float"};
  const ac_params *p = ac_ctx_params(lac_get(L)->ctx);
  int n = ac_params_count();
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    const ac_param_info *info = ac_params_info(i);
    lua_createtable(L, 0, 7);
    lua_pushfstring(L, "ACCEL_%s", info->name);
    lua_setfield(L, -2, "name");
    set_string(L, "type", types[info->type]);
    set_string(L, "default", info->fallback);
    set_string(L, "allowed", info->allowed);
    set_string(L, "help", info->help);
    push_param(L, p, info);
    lua_setfield(L, -2, "value");
    lua_pushboolean(L, ac_params_is_set(p, info->name));
    lua_setfield(L, -2, "set");
    lua_rawseti(L, -2, i + 1);
  }
  const char *unknown[32], *names[64];
  int n_unknown = ac_params_unknown(unknown, 32), n_names = n < 64 ? n : 64;
  for (int i = 0; i < n_names; i++) names[i] = ac_params_info(i)->name;
  lua_createtable(L, n_unknown, 0);
  for (int i = 0; i < n_unknown && i < 32; i++) {
    const char *bare = strncmp(unknown[i], "ACCEL_", 6) == 0 ? unknown[i] + 6 : unknown[i];
    const char *near = ac_nearest(bare, names, n_names);
    lua_createtable(L, 0, 2);
    set_string(L, "name", unknown[i]);
    if (near != NULL) lua_pushfstring(L, "ACCEL_%s", near), lua_setfield(L, -2, "nearest");
    lua_rawseti(L, -2, i + 1);
  }
  return 2;
}

/* Version of libcrypto, or NULL. */
static const char *crypto_version(void) {
  const char *version;
  return aci_hmac_library(&version, NULL) == AC_OK ? version : NULL;
}

/* Version of the oneDNN that accel_onednn.so uses, or NULL. */
static const char *onednn_version(void) {
  void *m = aci_module_open("accel_onednn.so");
  if (m == NULL) return NULL;
  void *symbol = dlsym(m, ACI_ONEDNN_SYMBOL);
  aci_onednn_open_fn open;
  memcpy(&open, &symbol, sizeof open);
  const aci_onednn_api *api = symbol != NULL ? open() : NULL;
  return api != NULL && api->version == ACI_ONEDNN_API_VERSION ? api->library : NULL;
}

static void add(lua_State *L, bool has, const char *name) {
  if (!has) return;
  lua_pushstring(L, name);
  lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
}

/* accel.libraries(): one row per library of base/libraries.txt: {name =, version = or absent = the
 * message}. It loads all of them. */
static int libraries(lua_State *L) {
  lua_newtable(L);
  for (const aci_library *l = aci_libraries; l->name != NULL; l++) {
    char version[64];
    ac_err e = {0};
    const bool here = aci_library_version(l, version, sizeof version, &e) == AC_OK;
    lua_createtable(L, 0, 2);
    set_string(L, "name", l->name);
    set_string(L, here ? "version" : "absent", here ? version : e.msg);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  }
  return 1;
}

/* accel.features(): {isa =, cpu = {"avx2", ...}, cpus =, memory =, onednn = version or nil, mpi =
 * version or nil, devices = {cpu = {count = 1, state = "cpu"}, ...}: the devices of each kind, or
 * the missing part} */
static int features(lua_State *L) {
  lac_get(L);
  lua_createtable(L, 0, 9);
  set_string(L, "isa", aci_cpu_isa_name(aci_cpu_isa()));
  set_string(L, "compiler", __VERSION__);
  lua_pushinteger(L, aci_host_cpus());
  lua_setfield(L, -2, "cpus");
  lua_pushinteger(L, (lua_Integer)aci_host_memory());
  lua_setfield(L, -2, "memory");
  set_string(L, "onednn", onednn_version());
  set_string(L, "mpi", aci_mpi_library());
  set_string(L, "libcrypto", crypto_version());
  lua_newtable(L);
  for (int i = 0; i < ac_device_n_providers(); i++) {
    char state[600];
    lua_createtable(L, 0, 2);
    lua_pushinteger(L, ac_device_state(i, ac_ctx_params(lac_get(L)->ctx), state, sizeof state));
    lua_setfield(L, -2, "count");
    set_string(L, "state", state);
    lua_setfield(L, -2, ac_device_provider_at(i)->name);
  }
  lua_setfield(L, -2, "devices");
  lua_newtable(L);
#if defined(__x86_64__)
  __builtin_cpu_init();
  add(L, __builtin_cpu_supports("avx2"), "avx2");
  add(L, __builtin_cpu_supports("fma"), "fma");
  add(L, __builtin_cpu_supports("avx512f"), "avx512f");
  add(L, __builtin_cpu_supports("avx512bw"), "avx512bw");
  add(L, __builtin_cpu_supports("avx512vnni"), "avx512vnni");
  add(L, __builtin_cpu_supports("avx512bf16"), "avx512bf16");
  unsigned eax = 7, ebx, ecx = 0, edx;
  __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  add(L, edx >> 22 & 1, "amx-bf16");
  add(L, edx >> 24 & 1, "amx-tile");
#elif defined(__aarch64__)
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  add(L, (first & HWCAP_ASIMD) != 0, "neon");
  add(L, (first & HWCAP_CRC32) != 0, "crc32");
  add(L, (first & HWCAP_ASIMDHP) != 0, "fp16");
  add(L, (first & HWCAP_ASIMDDP) != 0, "dotprod");
  add(L, (first & HWCAP_SVE) != 0, "sve");
  add(L, (second & HWCAP2_I8MM) != 0, "i8mm");
  add(L, (second & HWCAP2_BF16) != 0, "bf16");
#endif
  lua_setfield(L, -2, "cpu");
  return 1;
}

LAC_OPEN("accel", info) {
  static const luaL_Reg funcs[] = {
      {"params", params}, {"features", features}, {"libraries", libraries}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
