/* The context: modes, generators, the table of ops, the step boundary. Made by the host, handed to
 * every call. Its devices are in devices.c. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_impl.h"
#include "base/struct_size.h"
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

/* own: the table keeps a copy of the descriptor, which came from a program with older headers. */
static ac_status table_add(ac_ctx *c, const ac_op_desc *d, bool inplace, bool own, ac_err *e) {
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
  ac_op *op = calloc(1, sizeof *op + (own ? sizeof *d : 0));
  if (op == NULL) return AC_FAIL(e, OOM, "no memory for op %s", d->name);
  op->desc = own ? memcpy(op + 1, d, sizeof *d) : d;
  op->inplace = inplace;
  op->rng_arg = -1;
  aci_op_kernels(c, op);
  memcpy(op->name, d->name, n);
  if (inplace) op->name[n] = '_';
  c->ops[c->n_ops++] = op;
  return table_insert(c, c->n_ops - 1, e);
}

/* Takes back the op that was added last: no other entry was placed because of it. */
static void table_drop(ac_ctx *c) {
  ac_op *op = c->ops[c->n_ops - 1];
  uint32_t p = hash_name(op->name, strlen(op->name)) & c->op_hash_mask;
  while (c->op_hash[p] != (uint32_t)c->n_ops && c->op_hash[p] != 0) p = (p + 1) & c->op_hash_mask;
  c->op_hash[p] = 0;
  free(op->sig);
  free(op);
  c->n_ops--;
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

static ac_op *find(const ac_ctx *c, const char *name) {
  uint32_t p = hash_name(name, strlen(name)) & c->op_hash_mask;
  for (; c->op_hash[p]; p = (p + 1) & c->op_hash_mask)
    if (strcmp(c->ops[c->op_hash[p] - 1]->name, name) == 0) return c->ops[c->op_hash[p] - 1];
  return NULL;
}

/* Whether a word of n bytes is among these names, separated by blanks. */
static bool has_word(const char *names, const char *word, size_t n) {
  for (const char *at = names; n > 0 && (at = strstr(at, word)) != NULL; at++)
    if ((at == names || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
  return false;
}

/* The op of which this is another name (.alias). They are looked up one after the other: only the
 * first use of a name comes here. */
static ac_op *find_alias(const ac_ctx *c, const char *name) {
  char word[sizeof c->ops[0]->name];
  const size_t n = strlen(name);
  if (n >= sizeof word) return NULL;
  for (int i = 0; i < c->n_ops; i++) {
    const ac_op *op = c->ops[i];
    if (op->desc->alias == NULL) continue;
    const size_t m = op->inplace && n > 0 && name[n - 1] == '_' ? n - 1 : n;
    if (op->inplace && m == n) continue;
    memcpy(word, name, m);
    word[m] = '\0';
    if (has_word(op->desc->alias, word, m)) return c->ops[i];
  }
  return NULL;
}

const ac_op *ac_op_find(ac_ctx *c, const char *name) {
  const ac_op *op = find(c, name);
  return op != NULL ? op : find_alias(c, name);
}

const ac_op *aci_op_base(const ac_ctx *c, const ac_op *op) { return find(c, op->desc->name); }

/* Checks a descriptor that a program made. Fills *taken with its copy of today's size. */
static ac_status check_desc(const ac_op_desc *d, ac_op_desc *taken, ac_err *e) {
  AC_TRY(aci_struct_take(taken, sizeof *taken, d, "ac_op_desc", e));
  if (taken->name == NULL || taken->sig == NULL)
    return AC_FAIL(e, INVALID, "an op needs a name and a signature");
  aci_sig *s = malloc(sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for op %s", taken->name);
  ac_status st = aci_sig_parse(taken->sig, s, e);
  bool same = st == AC_OK && strcmp(s->name, taken->name) == 0;
  free(s);
  AC_TRY(st);
  if (!same)
    return AC_FAIL(e, INVALID, "op %s: its signature names another op: %s", taken->name,
                   taken->sig);
  return AC_OK;
}

static ac_status register_in(ac_ctx *c, const ac_op_desc *d, ac_err *e) {
  ac_op_desc taken = {0};
  AC_TRY(check_desc(d, &taken, e));
  const bool own = d->struct_size != sizeof *d; /* of older headers: the table keeps a copy */
  if (own) d = &taken;
  if (ac_op_find(c, d->name) != NULL)
    return AC_FAIL(e, STATE, "op %s is already registered", d->name);
  const int first = c->n_ops;
  ac_status st = table_add(c, d, false, own, e);
  if (st == AC_OK && d->inplace) st = table_add(c, d, true, own, e);
  for (int i = first; i < c->n_ops; i++) c->ops[i]->plain_args = true;
  for (int i = first; i < c->n_ops && st == AC_OK && c->op_added != NULL; i++)
    st = c->op_added(c->op_added_user, c->ops[i], e);
  while (st != AC_OK && c->n_ops > first) table_drop(c);
  return st;
}

/* Ops of every context that is opened later (ac_op_register without a context). Process-wide,
 * because there is no context yet. */
typedef struct common_op {
  struct common_op *next;
  const ac_op_desc *desc;
} common_op;
static common_op *common_ops;
static pthread_mutex_t common_lock = PTHREAD_MUTEX_INITIALIZER;

static ac_status register_common(const ac_op_desc *d, ac_err *e) {
  ac_op_desc taken = {0};
  AC_TRY(check_desc(d, &taken, e));
  for (int i = 0; i < aci_n_builtin_ops; i++)
    if (strcmp(aci_builtin_ops[i]->name, d->name) == 0)
      return AC_FAIL(e, STATE, "op %s is already registered", d->name);
  common_op *op = calloc(1, sizeof *op);
  if (op == NULL) return AC_FAIL(e, OOM, "no memory for op %s", d->name);
  op->desc = d;
  pthread_mutex_lock(&common_lock);
  common_op **at = &common_ops;
  while (*at != NULL && strcmp((*at)->desc->name, d->name) != 0) at = &(*at)->next;
  const bool first = *at == NULL;
  if (first) *at = op;
  pthread_mutex_unlock(&common_lock);
  if (first) return AC_OK;
  free(op);
  return AC_FAIL(e, STATE, "op %s is already registered", d->name);
}

static ac_status take_common(ac_ctx *c, ac_err *e) {
  ac_status st = AC_OK;
  pthread_mutex_lock(&common_lock);
  for (const common_op *op = common_ops; op != NULL && st == AC_OK; op = op->next)
    st = register_in(c, op->desc, e);
  pthread_mutex_unlock(&common_lock);
  return st;
}

ac_status ac_op_register(ac_ctx *c, const ac_op_desc *d, ac_err *e) {
  if (d == NULL) return AC_FAIL(e, INVALID, "ac_op_register: the descriptor is NULL");
  return c != NULL ? register_in(c, d, e) : register_common(d, e);
}

ac_status ac_ctx_new(const ac_ctx_options *o, ac_ctx **out, ac_err *e) {
  ac_status st = AC_OK;
  ac_ctx_options taken = AC_CTX_OPTIONS_INIT;
  *out = NULL;
  if (o != NULL) AC_TRY(aci_struct_take(&taken, sizeof taken, o, "ac_ctx_options", e));
  o = &taken;
  ac_ctx *c = calloc(1, sizeof *c);
  if (c == NULL) return AC_FAIL(e, OOM, "no memory for a context");
  c->grad_enabled = true;
  AC_GOTO(fail, st, ac_params_new(&c->params, e));
  int n_threads = o->n_threads;
  if (n_threads <= 0) n_threads = (int)ac_params_int(c->params, "NUM_THREADS");
  AC_GOTO(fail, st, ac_team_new(n_threads, &c->team, e));
  AC_GOTO(fail, st, aci_ctx_open_devices(c, o, e));
  uint64_t seed = o->seed;
  if (seed == 0) seed = (uint64_t)ac_params_int(c->params, "SEED");
  ac_generator_seed(&c->gen, seed);
  c->check_nan = ac_params_int(c->params, "CHECK_NAN") != 0;
  for (int i = 0; i < aci_n_builtin_ops; i++)
    AC_GOTO(fail, st, table_add(c, aci_builtin_ops[i], false, false, e));
  for (int i = 0; i < aci_n_builtin_inplace; i++)
    AC_GOTO(fail, st, table_add(c, aci_builtin_ops[aci_builtin_inplace[i]], true, false, e));
  AC_GOTO(fail, st, take_common(c, e));
  c->local_rank = o->local_rank;
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
