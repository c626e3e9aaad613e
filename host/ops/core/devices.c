/* The devices of a context: the list, the default for new tensors, and the tables of each kind
 * (accel/device.h): kernels, drivers, flags.
 *
 * cpu and meta are opened with the context. Another kind is attached when its first device is
 * opened, or a tensor of one comes from another context: its kernels are then registered in the
 * table of ops. A context takes its own copy of a kind's flags when one is first read, by a script
 * or a kernel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_impl.h"
#include "device/pool.h"
#include "ops/core/ctx_impl.h"
#include "ops/map/map.h"

/* ---- tables of a kind ---- */
static void op_kernel(const ac_ctx *c, ac_op *op, int kind) {
  const ac_op_desc *d = op->desc;
  if (kind == AC_DEV_META) return; /* it computes nothing */
  if (kind == AC_DEV_CPU || d->by_vtable ||
      (c->drivers[kind] != NULL && (d->any_device || d->cpu == aci_map_cpu)))
    op->kernel[kind] = d->cpu;
}

void aci_op_kernels(const ac_ctx *c, ac_op *op) {
  for (int i = 0; i < AC_DEV_KINDS; i++) op_kernel(c, op, i);
}

/* Makes the flags of a kind, as its parameters say, unless the context has them. */
static ac_status make_flags(ac_ctx *c, int kind, ac_err *e) {
  const ac_device_provider *p = ac_device_provider_at(kind);
  if (c->flags[kind] != NULL) return AC_OK;
  AC_TRY(aci_params_extend(c->params, e));
  int64_t *v = calloc((size_t)p->n_flags + 1, sizeof *v);
  if (v == NULL) return AC_FAIL(e, OOM, "no memory for the flags of %s", p->name);
  for (int i = 0; i < p->n_flags; i++) v[i] = ac_params_int(c->params, p->params[i].name);
  c->flags[kind] = v;
  return AC_OK;
}

ac_status ac_kernel_register(ac_ctx *c, const char *name, ac_device_kind kind, ac_kernel kernel,
                             ac_err *e) {
  bool any = false;
  if (ac_device_provider_at((int)kind) == NULL)
    return AC_FAIL(e, INVALID, "no device of kind %d is registered", (int)kind);
  AC_TRY(make_flags(c, (int)kind, e));
  for (int i = 0; i < c->n_ops; i++)
    if (strcmp(c->ops[i]->desc->name, name) == 0) {
      c->ops[i]->kernel[kind] = kernel;
      any = true;
    }
  return any ? AC_OK : AC_FAIL(e, NOT_FOUND, "no op %s to register a kernel for", name);
}

static ac_status attach_kind(ac_ctx *c, int kind, ac_err *e) {
  const ac_device_provider *p = ac_device_provider_at(kind);
  if (c->attached >> kind & 1) return AC_OK;
  AC_TRY(make_flags(c, kind, e));
  if (p->drivers != NULL) {
    c->drivers[kind] = p->drivers();
    for (int i = 0; i < c->n_ops; i++) op_kernel(c, c->ops[i], kind);
  }
  ac_err why;
  for (const ac_device_kernel *k = p->kernels != NULL ? p->kernels() : NULL;
       k != NULL && k->op != NULL; k++)
    if (ac_kernel_register(c, k->op, (ac_device_kind)kind, k->run, &why) != AC_OK)
      ac_log_write(AC_LOG_WARN, p->name, "%s", why.msg);
  if (p->attach != NULL) p->attach(c);
  c->attached |= 1u << kind;
  return AC_OK;
}

ac_status aci_ctx_attach_device(ac_ctx *c, const ac_device *d, ac_err *e) {
  bool known = false;
  ac_device *own;
  if (c->attached >> d->kind & 1) return AC_OK;
  for (int i = 0; i < c->n_devices; i++) known |= c->device[i] == d;
  if (!known) AC_TRY(ac_ctx_device(c, d->name, &own, e));
  return attach_kind(c, d->kind, e);
}

/* ---- flags ---- */
/* "cuda", "tf32" -> the kind and the place of CUDA_TF32. INVALID names the nearest. */
static ac_status find_flag(const char *device, const char *flag, int *kind, int *at, ac_err *e) {
  const char *names[64];
  char text[64][24];
  *kind = aci_device_kind_named(device, strlen(device));
  const ac_device_provider *p = ac_device_provider_at(*kind);
  if (p == NULL) return AC_FAIL(e, DEVICE, "unknown kind of device '%.40s'", device);
  int n = 0;
  for (; n < p->n_flags && n < 64; n++) {
    aci_device_flag_name(p, n, text[n], sizeof text[n]);
    if (strcmp(text[n], flag) == 0) return *at = n, AC_OK;
    names[n] = text[n];
  }
  const char *near = ac_nearest(flag, names, n);
  return AC_FAIL(e, INVALID, "%s has no flag '%.40s'%s%s%s", device, flag,
                 near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

ac_status ac_ctx_device_flag(ac_ctx *c, const char *device, const char *flag, int64_t *value,
                             ac_err *e) {
  int kind, at;
  AC_TRY(find_flag(device, flag, &kind, &at, e));
  AC_TRY(make_flags(c, kind, e));
  *value = c->flags[kind][at];
  return AC_OK;
}

ac_status ac_ctx_set_device_flag(ac_ctx *c, const char *device, const char *flag, int64_t value,
                                 ac_err *e) {
  int kind, at;
  AC_TRY(find_flag(device, flag, &kind, &at, e));
  if (ac_device_provider_at(kind)->params[at].type == AC_PARAM_BOOL && value != 0 && value != 1)
    return AC_FAIL(e, INVALID, "flag '%s' of %s is true or false", flag, device);
  AC_TRY(make_flags(c, kind, e));
  c->flags[kind][at] = value;
  return AC_OK;
}

ac_status aci_ctx_flags_copy(const ac_ctx *c, int64_t *copy[AC_DEV_KINDS], ac_err *e) {
  for (int kind = 0; kind < AC_DEV_KINDS; kind++) {
    if (c->flags[kind] == NULL) continue;
    const size_t bytes =
        ((size_t)ac_device_provider_at(kind)->n_flags + 1) * sizeof *c->flags[kind];
    copy[kind] = malloc(bytes);
    if (copy[kind] == NULL)
      return AC_FAIL(e, OOM, "no memory for the flags of %s", ac_device_provider_at(kind)->name);
    memcpy(copy[kind], c->flags[kind], bytes);
  }
  return AC_OK;
}

void aci_ctx_flags_take(ac_ctx *c, int64_t *given[AC_DEV_KINDS]) {
  for (int kind = 0; kind < AC_DEV_KINDS; kind++) {
    if (given[kind] == NULL) continue;
    free(c->flags[kind]);
    c->flags[kind] = given[kind];
    given[kind] = NULL;
  }
}

int64_t ac_frame_flag(const ac_frame *f, int i) {
  const int kind = f->device->kind;
  if (f->ctx->flags[kind] != NULL) return f->ctx->flags[kind][i];
  /* nobody has asked for the kind's flags so far */
  return ac_params_int(f->ctx->params, ac_device_provider_at(kind)->params[i].name);
}

/* ---- which there are ---- */
ac_status aci_ctx_open_devices(ac_ctx *c, const ac_ctx_options *o, ac_err *e) {
  c->attached = 1u << AC_DEV_CPU | 1u << AC_DEV_META; /* their kernels are the descriptors' */
  AC_TRY(ac_device_modules_load(c->params, e));
  AC_TRY(aci_params_extend(c->params, e));
  if (o != NULL && o->n_devices > 0) {
    AC_CHECK(o->n_devices <= ACI_MAX_DEVICES, e);
    for (int i = 0; i < o->n_devices; i++) ac_device_retain(c->device[i] = o->devices[i]);
    c->n_devices = o->n_devices;
    c->devices_shared = true;
    return AC_OK;
  }
  size_t limit = o != NULL ? o->memory_limit : 0;
  if (limit == 0) limit = (size_t)ac_params_int(c->params, "MEM_LIMIT");
  AC_TRY(ac_device_open(ac_device_cpu_vtable(), 0, limit, c->team, &c->device[0], e));
  c->n_devices = 1;
  aci_pool_debug_set(c->device[0], ac_params_int(c->params, "POISON") != 0,
                     ac_params_int(c->params, "ALLOC_FAIL"));
  AC_TRY(ac_device_open(ac_device_meta_vtable(), 0, 0, c->team, &c->device[1], e));
  c->n_devices = 2;
  return AC_OK;
}

ac_status ac_ctx_add_device(ac_ctx *c, ac_device *d, ac_err *e) {
  for (int i = 0; i < c->n_devices; i++)
    if (strcmp(c->device[i]->name, d->name) == 0)
      return AC_FAIL(e, STATE, "the device %s already exists", d->name);
  if (c->n_devices == ACI_MAX_DEVICES)
    return AC_FAIL(e, STATE, "more than %d devices", ACI_MAX_DEVICES);
  AC_TRY(attach_kind(c, d->kind, e));
  c->device[c->n_devices++] = d;
  return AC_OK;
}

/* Device `index` of a kind that this context has not opened. */
static ac_status open_device(ac_ctx *c, int kind, int index, ac_device **out, ac_err *e) {
  const ac_device_provider *p = ac_device_provider_at(kind);
  char why[200] = "";
  AC_TRY(aci_params_extend(c->params, e));
  const int n = p->probe != NULL ? p->probe(c->params, why, sizeof why) : 1;
  if (n == 0) return AC_FAIL(e, DEVICE, "%s", why);
  if (index >= n)
    return AC_FAIL(e, DEVICE, "this process sees %d device%s of %s", n, n == 1 ? "" : "s", p->name);
  if (p->open == NULL) return AC_FAIL(e, DEVICE, "this context was made without it");
  ac_device *d = NULL;
  AC_TRY(p->open(c->params, index, c->team, &d, e));
  aci_pool_debug_set(d, ac_params_int(c->params, "POISON") != 0,
                     ac_params_int(c->params, "ALLOC_FAIL"));
  const ac_status st = ac_ctx_add_device(c, d, e);
  if (st == AC_OK) *out = d;
  else ac_device_release(d);
  return st;
}

ac_status aci_ctx_phantom(ac_ctx *c, int index, ac_device **out, ac_err *e) {
  char name[24];
  ac_err none;
  snprintf(name, sizeof name, "meta:%d", index);
  if (ac_ctx_device(c, name, out, &none) == AC_OK) return AC_OK;
  AC_TRY(ac_device_open(ac_device_phantom_vtable(), index, 0, c->team, out, e));
  const ac_status st = ac_ctx_add_device(c, *out, e);
  if (st != AC_OK) ac_device_release(*out);
  return st;
}

/* "cuda" is the first, "cuda:1" the second. AC_DEVICE, without a message, for names of unregistered
 * kinds. */
static ac_status parse_name(const char *name, int *kind, int *index, ac_err *e) {
  const size_t n = strcspn(name, ":");
  *kind = aci_device_kind_named(name, n);
  *index = 0;
  if (*kind < 0) return AC_DEVICE;
  if (name[n] == '\0') return AC_OK;
  const char *p = ac_device_provider_at(*kind)->name, *digits = name + n + 1;
  const size_t n_digits = strspn(digits, "0123456789");
  if (ac_device_provider_at(*kind)->single || n_digits == 0 || n_digits > 3 ||
      digits[n_digits] != '\0')
    return ac_device_provider_at(*kind)->single
               ? AC_FAIL(e, DEVICE, "there is one, \"%s\"", p)
               : AC_FAIL(e, DEVICE, "they are \"%s\" (the first) or \"%s:0\", \"%s:1\", ...", p, p,
                         p);
  *index = (int)strtol(digits, NULL, 10);
  return AC_OK;
}

ac_status ac_ctx_device(ac_ctx *c, const char *name, ac_device **out, ac_err *e) {
  ac_err why = {.msg = ""};
  int kind, index;
  for (int i = 0; i < c->n_devices; i++) /* also a further meta device, which no name opens */
    if (strcmp(c->device[i]->name, name) == 0) {
      *out = c->device[i];
      return AC_OK;
    }
  ac_status st = parse_name(name, &kind, &index, &why);
  for (int i = 0; st == AC_OK && i < c->n_devices; i++) {
    if (c->device[i]->kind != (ac_device_kind)kind || c->device[i]->index != index) continue;
    *out = c->device[i];
    return AC_OK;
  }
  if (st == AC_OK) st = open_device(c, kind, index, out, &why);
  if (st == AC_OK) return AC_OK;
  char list[256] = "";
  for (int i = 0; i < c->n_devices; i++) {
    const size_t n = strlen(list);
    snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", c->device[i]->name);
  }
  return AC_FAIL(e, DEVICE, "no device '%s' here%s%s; available: %s", name,
                 why.msg[0] != '\0' ? ": " : "", why.msg, list);
}

/* ---- the default device of new tensors ---- */
/* Of several devices of a kind the one of this local rank, round robin. *out stays unchanged when
 * there is none. */
static ac_status own_device(ac_ctx *c, int kind, ac_device **out, ac_err *e) {
  const ac_device_provider *p = ac_device_provider_at(kind);
  char name[24], why[200];
  const int n = p->probe != NULL ? p->probe(ac_ctx_params(c), why, sizeof why) : 1;
  snprintf(name, sizeof name, p->single ? "%s" : "%s:%d", p->name, n > 0 ? c->local_rank % n : 0);
  return ac_ctx_device(c, name, out, e);
}

ac_status aci_ctx_choose_device(ac_ctx *c, const ac_ctx_options *o, ac_err *e) {
  const char *name = o != NULL ? o->device : NULL, *said = ac_params_str(c->params, "DEVICE");
  const bool open = name == NULL || strcmp(name, "auto") == 0;
  for (int i = 0; i < c->n_devices; i++) AC_TRY(attach_kind(c, c->device[i]->kind, e));
  c->default_device = c->device[0];
  if (c->devices_shared) return AC_OK;
  if (open && strcmp(said, "auto") != 0) {
    name = said;
  } else if (open) {
    if (name != NULL) c->default_device = NULL;
    return AC_OK;
  }
  ac_err why;
  const int kind = aci_device_kind_named(name, strlen(name));
  const ac_status st = kind >= 0 ? own_device(c, kind, &c->default_device, &why)
                                 : ac_ctx_device(c, name, &c->default_device, &why);
  if (st == AC_OK) return AC_OK;
  return ac_err_set(e, st, __FILE__, __LINE__, "%s%s", name == said ? "ACCEL_DEVICE: " : "",
                    why.msg);
}

void ac_ctx_set_default_device(ac_ctx *c, ac_device *d) { c->default_device = d; }

/* The kind with the highest preference that has a device here, otherwise the CPU. */
static int preferred_kind(ac_ctx *c) {
  char why[200];
  const ac_params *params = ac_ctx_params(c);
  int best = AC_DEV_CPU;
  for (int i = 0; i < ac_device_n_providers(); i++) {
    const ac_device_provider *p = ac_device_provider_at(i);
    if (p->preference <= ac_device_provider_at(best)->preference ||
        (p->likely != NULL && !p->likely(params)))
      continue;
    if (p->probe == NULL || p->probe(params, why, sizeof why) > 0) best = i;
  }
  return best;
}

ac_device *ac_ctx_default_device(ac_ctx *c) {
  if (__builtin_expect(c->default_device != NULL, 1)) return c->default_device;
  ac_err e;
  const int kind = preferred_kind(c);
  c->default_device = c->device[0];
  if (kind != AC_DEV_CPU && own_device(c, kind, &c->default_device, &e) != AC_OK)
    ac_log_write(AC_LOG_WARN, ac_device_provider_at(kind)->name, "new tensors go to the CPU: %s",
                 e.msg);
  return c->default_device;
}
