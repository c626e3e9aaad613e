/* The context: modes, generators, the table of ops, the step boundary. Made by the host, handed to
 * every call. Its devices are in devices.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_impl.h"
#include "ops/core/ctx_impl.h"

static uint32_t hash_name(const char *s, size_t n) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
  return h;
}

static ac_status table_insert(ac_ctx *c, int index, ac_err *e) {
  if (c->op_hash == NULL || (uint32_t)c->n_ops * 2 > c->op_hash_mask) {
    uint32_t cap = c->op_hash == NULL ? 1024 : (c->op_hash_mask + 1) * 2;
    uint32_t *h = calloc(cap, sizeof *h);
    if (h == NULL) return AC_FAIL(e, OOM, "no memory for the table of ops");
    free(c->op_hash);
    c->op_hash = h;
    c->op_hash_mask = cap - 1;
    for (int i = 0; i < index; i++) {
      uint32_t p = hash_name(c->ops[i]->name, strlen(c->ops[i]->name)) & c->op_hash_mask;
      while (c->op_hash[p]) p = (p + 1) & c->op_hash_mask;
      c->op_hash[p] = (uint32_t)i + 1;
    }
  }
  uint32_t p = hash_name(c->ops[index]->name, strlen(c->ops[index]->name)) & c->op_hash_mask;
  while (c->op_hash[p]) p = (p + 1) & c->op_hash_mask;
  c->op_hash[p] = (uint32_t)index + 1;
  return AC_OK;
}

static ac_status table_add(ac_ctx *c, const ac_op_desc *d, bool inplace, ac_err *e) {
  if (c->n_ops == c->cap_ops) {
    int cap = c->cap_ops ? c->cap_ops * 2 : 512;
    ac_op **v = realloc(c->ops, (size_t)cap * sizeof *v);
    if (v == NULL) return AC_FAIL(e, OOM, "no memory for the table of ops");
    c->ops = v;
    c->cap_ops = cap;
  }
  const size_t n = strlen(d->name);
  enum { ROOM = sizeof c->ops[0]->name - 2 };
  if (n >= ROOM)
    return AC_FAIL(e, INVALID, "the name of op %.60s... is longer than %d bytes", d->name, ROOM);
  ac_op *op = calloc(1, sizeof *op);
  if (op == NULL) return AC_FAIL(e, OOM, "no memory for op %s", d->name);
  op->desc = d;
  op->inplace = inplace;
  op->rng_arg = -1;
  aci_op_kernels(c, op);
  memcpy(op->name, d->name, n);
  if (inplace) op->name[n] = '_';
  c->ops[c->n_ops++] = op;
  return table_insert(c, c->n_ops - 1, e);
}

static ac_status parse(ac_op *op, ac_err *e) {
  aci_sig *s = calloc(1, sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for the signature of %s", op->name);
  const ac_status st = aci_sig_parse(op->desc->sig, s, e); /* its text was checked before */
  if (st != AC_OK) {
    free(s);
    return st;
  }
  if (op->inplace) {
    s->param[0].mutates = true;
    memcpy(s->name, op->name, sizeof s->name);
    if (s->param[0].type == AC_T_OPERAND) s->param[0].type = AC_T_TENSOR;
  }
  op->n_params = (uint8_t)s->n_params;
  op->n_results = (uint8_t)s->n_results;
  op->dynamic = s->dynamic;
  op->is_view = s->n_results > 0 && s->result[0].view_of >= 0;
  for (int i = 0; i < s->n_params; i++) {
    ac_type t = s->param[i].type;
    if (s->param[i].mutates) op->mutates |= 1u << i;
    if (s->param[i].has_default && !s->param[i].optional) op->defaults |= 1u << i;
    if (t == AC_T_TENSOR || t == AC_T_TENSORS || t == AC_T_OPERAND) op->tensor_args |= 1u << i;
    if (!s->param[i].has_default && !s->param[i].optional) op->needed |= 1u << i;
    if (s->param[i].has_default && s->param[i].optional) op->fallbacks |= 1u << i;
    if (t == AC_T_TENSOR || t == AC_T_OPERAND) op->tensors |= 1u << i;
    op->takes_list |= t == AC_T_INTS || t == AC_T_DIMS || t == AC_T_SHAPE || t == AC_T_FLOATS ||
                      t == AC_T_TENSORS;
    if (t == AC_T_GENERATOR) op->rng_arg = (int8_t)i;
  }
  op->gives_list = s->n_results == 1 && s->result[0].type == AC_T_TENSORS;
  op->gives_self = s->n_results == 1 && s->param[0].mutates && s->param[0].type == AC_T_TENSOR;
  op->sig = s;
  op->parsed = true;
  return AC_OK;
}

ac_status aci_op_parse(const ac_op *op, ac_err *e) {
  return op->parsed ? AC_OK : parse((ac_op *)(uintptr_t)op, e);
}
const aci_sig *aci_op_sig(const ac_op *op) { return op->sig; }

ac_status aci_ctx_usable(ac_ctx *c, ac_err *e) {
  if (atomic_load(&aci_fault_pending) && c->fault.expr == NULL) aci_fault_claim(&c->fault);
  return c->fault.expr == NULL ? AC_OK : aci_fault_err(c->fault, e);
}

const ac_op *aci_ctx_builtin(const ac_ctx *c, int index) { return c->ops[index]; }
int aci_ctx_n_ops(const ac_ctx *c) { return c->n_ops; }
const ac_op *aci_ctx_op(const ac_ctx *c, int i) { return c->ops[i]; }
const char *ac_op_name(const ac_op *op) { return op->name; }

const ac_op *ac_op_find(ac_ctx *c, const char *name) {
  uint32_t p = hash_name(name, strlen(name)) & c->op_hash_mask;
  for (; c->op_hash[p]; p = (p + 1) & c->op_hash_mask)
    if (strcmp(c->ops[c->op_hash[p] - 1]->name, name) == 0) return c->ops[c->op_hash[p] - 1];
  return NULL;
}

ac_status ac_op_register(ac_ctx *c, const ac_op_desc *d, ac_err *e) {
  if (d->struct_size != sizeof(ac_op_desc))
    return AC_FAIL(
        e, UNSUPPORTED,
        "op %s was built against another version of accel/opdef.h (%zu bytes, expected %zu)",
        d->name, d->struct_size, sizeof(ac_op_desc));
  if (ac_op_find(c, d->name) != NULL)
    return AC_FAIL(e, STATE, "op %s is already registered", d->name);
  aci_sig *s = malloc(sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for op %s", d->name);
  ac_status st = aci_sig_parse(d->sig, s, e);
  bool same = st == AC_OK && strcmp(s->name, d->name) == 0;
  free(s);
  AC_TRY(st);
  if (!same)
    return AC_FAIL(e, INVALID, "op %s: its signature names another op: %s", d->name, d->sig);
  AC_TRY(table_add(c, d, false, e));
  return d->inplace ? table_add(c, d, true, e) : AC_OK;
}

ac_status ac_ctx_new(const ac_ctx_options *o, ac_ctx **out, ac_err *e) {
  ac_status st = AC_OK;
  ac_ctx *c = calloc(1, sizeof *c);
  *out = NULL;
  if (c == NULL) return AC_FAIL(e, OOM, "no memory for a context");
  c->grad_enabled = true;
  AC_GOTO(fail, st, ac_params_new(&c->params, e));
  int n_threads = o != NULL ? o->n_threads : 0;
  if (n_threads <= 0) n_threads = (int)ac_params_int(c->params, "NUM_THREADS");
  AC_GOTO(fail, st, ac_team_new(n_threads, &c->team, e));
  AC_GOTO(fail, st, aci_ctx_open_devices(c, o, e));
  uint64_t seed = o != NULL ? o->seed : 0;
  if (seed == 0) seed = (uint64_t)ac_params_int(c->params, "SEED");
  ac_generator_seed(&c->gen, seed);
  c->check_nan = ac_params_int(c->params, "CHECK_NAN") != 0;
  for (int i = 0; i < aci_n_builtin_ops; i++)
    AC_GOTO(fail, st, table_add(c, aci_builtin_ops[i], false, e));
  for (int i = 0; i < aci_n_builtin_inplace; i++)
    AC_GOTO(fail, st, table_add(c, aci_builtin_ops[aci_builtin_inplace[i]], true, e));
  c->local_rank = o != NULL ? o->local_rank : 0;
  AC_GOTO(fail, st, aci_ctx_choose_device(c, o, e));
  *out = c;
  return AC_OK;
fail:
  ac_ctx_free(c);
  return st;
}

void ac_ctx_free(ac_ctx *c) {
  if (c == NULL) return;
  if (c->autocast_free != NULL) c->autocast_free(c);
  for (int i = 0; i < c->n_ops; i++) {
    free(c->ops[i]->sig);
    free(c->ops[i]);
  }
  free(c->ops);
  free(c->op_hash);
  for (int i = 0; i < c->n_devices; i++) {
    /* storages may keep the device alive longer than the team */
    if (!c->devices_shared) c->device[i]->team = NULL;
    ac_device_release(c->device[i]);
  }
  for (int i = 0; i < AC_DEV_KINDS; i++) free(c->flags[i]);
  ac_team_free(c->team);
  ac_params_free(c->params);
  free(c);
}

ac_team *ac_ctx_team(ac_ctx *c) { return c->team; }
/* With the rows of devices that were registered since. An invalid value is reported when the device
 * is opened. */
const ac_params *ac_ctx_params(ac_ctx *c) {
  ac_err e;
  if (aci_params_extend(c->params, &e) != AC_OK) ac_log_write(AC_LOG_WARN, "params", "%s", e.msg);
  return c->params;
}
void ac_ctx_set_index_base(ac_ctx *c, int base) { c->index_base = base; }
bool ac_ctx_grad_enabled(const ac_ctx *c) { return c->grad_enabled; }
bool ac_ctx_set_grad_enabled(ac_ctx *c, bool on) {
  bool was = c->grad_enabled;
  c->grad_enabled = on;
  return was;
}

void ac_ctx_set_stream(ac_ctx *c, ac_stream *s) { c->stream = s; }

ac_generator *ac_ctx_generator(ac_ctx *c) { return &c->gen; }

void ac_generator_seed(ac_generator *g, uint64_t seed) { *g = (ac_generator){.seed = seed}; }

ac_generator ac_generator_draw(ac_generator *g) {
  ac_generator t = *g;
  if (!g->fixed) g->ordinal++;
  t.fixed = 1;
  return t;
}

void ac_generator_micro_batch(ac_generator *g, int64_t row0) {
  g->drawn += g->ordinal;
  g->ordinal = 0;
  g->row0 = row0;
}

ac_status ac_step(ac_ctx *c, ac_err *e) {
  c->step++;
  c->gen.step++;
  c->gen.ordinal = c->gen.drawn = 0;
  for (int i = 0; i < c->n_step_hooks; i++) AC_TRY(c->step_hook[i].fn(c->step_hook[i].user, e));
  return AC_OK;
}

ac_status aci_ctx_add_step_hook(ac_ctx *c, aci_step_hook h, ac_err *e) {
  if (c->n_step_hooks == ACI_MAX_STEP_HOOKS)
    return AC_FAIL(e, STATE, "more than %d step hooks", ACI_MAX_STEP_HOOKS);
  c->step_hook[c->n_step_hooks++] = h;
  return AC_OK;
}

ac_status aci_ctx_add_observer(ac_ctx *c, aci_observer o, ac_err *e) {
  if (c->n_observers == ACI_MAX_OBSERVERS)
    return AC_FAIL(e, STATE, "more than %d observers", ACI_MAX_OBSERVERS);
  c->observer[c->n_observers++] = o;
  return AC_OK;
}

void aci_ctx_remove_observer(ac_ctx *c, void *user) {
  int n = 0;
  for (int i = 0; i < c->n_observers; i++)
    if (c->observer[i].user != user) c->observer[n++] = c->observer[i];
  c->n_observers = n;
}
