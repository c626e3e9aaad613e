/* The table of device providers (accel/device.h): providers in this build's folders, in modules,
 * and those that programs register.
 *
 * It is of the process, since kinds number kernels in tables that tensors of several contexts meet.
 * Rows are only added: a reader that saw a count may read every row below it without the lock. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/base_impl.h"
#include "device/device_impl.h"

/* generated: cpu, meta, then the others by name. NULL ends it */
extern const ac_device_provider *const aci_builtin_devices[];

static const ac_device_provider *table[AC_DEV_KINDS];
static _Atomic int n_kinds;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ac_status check(const ac_device_provider *p, ac_err *e) {
  if (p->struct_size != sizeof *p)
    return AC_FAIL(
        e, INVALID,
        "a device provider was built for another version of accel; build it anew with the headers of this one");
  const size_t n = strlen(p->name);
  if (n == 0 || n > 8 || strspn(p->name, "abcdefghijklmnopqrstuvwxyz0123456789_") != n ||
      p->name[0] < 'a')
    return AC_FAIL(e, INVALID,
                   "'%.40s' is not a name of a device: 1 to 8 of a-z, 0-9 and _, a letter first",
                   p->name);
  if (p->n_flags > p->n_params)
    return AC_FAIL(e, INVALID, "device %s: more flags than parameters", p->name);
  for (int i = 0; i < p->n_params; i++) {
    const char *row = p->params[i].name;
    bool own = strlen(row) > n + 1 && row[n] == '_';
    for (size_t k = 0; own && k < n; k++)
      own =
          row[k] == (p->name[k] >= 'a' && p->name[k] <= 'z' ? p->name[k] - 'a' + 'A' : p->name[k]);
    if (!own)
      return AC_FAIL(e, INVALID, "device %s: parameter %s does not begin with its name in capitals",
                     p->name, row);
    if (i < p->n_flags &&
        (p->params[i].type == AC_PARAM_STR || p->params[i].type == AC_PARAM_FLOAT))
      return AC_FAIL(e, INVALID, "device %s: flag %s is not a bool, int or size", p->name, row);
  }
  return AC_OK;
}

/* Under the lock. */
static ac_status add(const ac_device_provider *p, ac_device_kind *kind, ac_err *e) {
  const int n = atomic_load_explicit(&n_kinds, memory_order_relaxed),
            same = aci_device_kind_named(p->name, strlen(p->name));
  *kind = (ac_device_kind)same;
  if (same >= 0)
    return table[same] == p ? AC_OK : AC_FAIL(e, STATE, "the device %s already exists", p->name);
  if (n == AC_DEV_KINDS) return AC_FAIL(e, STATE, "more than %d kinds of devices", AC_DEV_KINDS);
  AC_TRY(aci_params_declare(p->params, p->n_params, e));
  table[n] = p;
  *kind = (ac_device_kind)n;
  atomic_store_explicit(&n_kinds, n + 1, memory_order_release);
  return AC_OK;
}

/* When the library is loaded: names of parameters are known before there is a context. */
__attribute__((constructor)) static void add_builtin(void) {
  ac_err e;
  ac_device_kind kind;
  for (int i = 0; aci_builtin_devices[i] != NULL; i++) {
    const bool added = check(aci_builtin_devices[i], &e) == AC_OK &&
                       add(aci_builtin_devices[i], &kind, &e) == AC_OK;
    if (!AC_HOLDS(added)) return;
  }
}

ac_status ac_device_register(const ac_device_provider *p, ac_device_kind *kind, ac_err *e) {
  AC_TRY(check(p, e));
  if (p->open == NULL) return AC_FAIL(e, INVALID, "device %s: its provider opens nothing", p->name);
  pthread_mutex_lock(&lock);
  const ac_status st = add(p, kind, e);
  pthread_mutex_unlock(&lock);
  return st;
}

int ac_device_n_providers(void) { return atomic_load_explicit(&n_kinds, memory_order_acquire); }

const ac_device_provider *ac_device_provider_at(int kind) {
  return kind >= 0 && kind < ac_device_n_providers() ? table[kind] : NULL;
}

int aci_device_kind_named(const char *name, size_t n) {
  for (int i = 0, all = ac_device_n_providers(); i < all; i++)
    if (strlen(table[i]->name) == n && memcmp(table[i]->name, name, n) == 0) return i;
  return -1;
}

void aci_device_flag_name(const ac_device_provider *p, int i, char *name, size_t n) {
  snprintf(name, n, "%s", p->params[i].name + strlen(p->name) + 1);
  for (; *name != '\0'; name++)
    if (*name >= 'A' && *name <= 'Z') *name = (char)(*name - 'A' + 'a');
}

/* ---- modules ---- */
static ac_status load(const char *file, ac_err *e) {
  const ac_device_provider *(*get)(void);
  ac_device_kind kind;
  aci_module_publish();
  void *h = aci_module_open(file);
  if (h == NULL) return AC_FAIL(e, DEVICE, "ACCEL_DEVICE_MODULES: %s", dlerror());
  void *symbol = dlsym(h, AC_DEVICE_SYMBOL);
  if (symbol == NULL)
    return AC_FAIL(e, DEVICE, "ACCEL_DEVICE_MODULES: %s is not a device module: it has no %s", file,
                   AC_DEVICE_SYMBOL);
  memcpy(&get, &symbol, sizeof get);
  const ac_device_provider *p = get();
  ac_err why = {.msg = "its " AC_DEVICE_SYMBOL " gives nothing"};
  const ac_status st = p != NULL ? ac_device_register(p, &kind, &why) : AC_DEVICE;
  return st == AC_OK
             ? AC_OK
             : ac_err_set(e, st, __FILE__, __LINE__, "ACCEL_DEVICE_MODULES: %s: %s", file, why.msg);
}

ac_status ac_device_modules_load(const ac_params *p, ac_err *e) {
  for (const char *at = ac_params_str(p, "DEVICE_MODULES"); *at != '\0';) {
    const size_t n = strcspn(at, ":");
    char file[4096];
    if (n >= sizeof file)
      return AC_FAIL(e, DEVICE, "ACCEL_DEVICE_MODULES: a path of %zu characters", n);
    memcpy(file, at, n);
    file[n] = '\0';
    if (n > 0) AC_TRY(load(file, e));
    at += n + (at[n] == ':');
  }
  return AC_OK;
}

/* ---- for people ---- */
int ac_device_state(int kind, const ac_params *params, char *text, size_t n) {
  const ac_device_provider *p = ac_device_provider_at(kind);
  char line[200] = "";
  if (n > 0) text[0] = '\0';
  if (p == NULL || n == 0) return 0;
  const int count = p->probe != NULL ? p->probe(params, line, sizeof line) : 1;
  const char *libraries = p->libraries != NULL ? p->libraries() : NULL;
  size_t at = 0;
  if (libraries != NULL) at = (size_t)snprintf(text, n, "%s", libraries);
  if (count == 0 && at < n) snprintf(text + at, n - at, "%s%s", at > 0 ? "; " : "", line);
  for (int i = 0; i < count && at < n; i++) {
    char index[16] = "";
    line[0] = '\0';
    if (p->describe != NULL) p->describe(i, line, sizeof line);
    if (!p->single) snprintf(index, sizeof index, ":%d", i);
    at += (size_t)snprintf(text + at, n - at, "%s%s%s%s%s", at > 0 ? "; " : "", p->name, index,
                           line[0] != '\0' ? " " : "", line);
  }
  return count;
}
