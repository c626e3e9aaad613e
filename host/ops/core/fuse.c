/* Calls that wait: see fuse.h. Reductions are in fuse_reduce.c, the pass over memory in
 * fuse_pass.c. */
#include <stdlib.h>

#include "ops/core/fuse_code.h"
#include "ops/core/fuse_impl.h"
#include "ops/map/map.h"

static aci_fuse_node *node_of(const ac_storage *s) { return aci_fuse_node_of(s); }

static void unref(aci_fuse *z) {
  if (--z->refs == 0) free(z);
}

static void release_operands(aci_fuse_node *n) {
  for (int k = 0; k < n->n_in; k++) {
    ac_storage *s = n->in[k].storage;
    n->in[k].storage = NULL;
    ac_storage_release(s);
  }
}

static void unlink_node(aci_fuse_node *n) {
  aci_fuse *z = n->owner;
  if (n->newer != NULL) n->newer->older = n->older;
  else z->newest = n->older;
  if (n->older != NULL) n->older->newer = n->newer;
  n->older = n->newer = NULL;
  z->n.waiting--;
}

static void drop(aci_fuse_node *n) {
  if (n == NULL) return; /* promised, and its call failed */
  aci_fuse *z = n->owner;
  if (!n->lost) unlink_node(n);
  aci_fuse_node_free(n);
  unref(z);
}

/* ---- computing ---- */
static bool joins(aci_fuse_pass *p, const aci_fuse_node *n) {
  if (p->n == ACI_FUSE_MOST || n->kind == ACI_FUSE_WALK) return false;
  if (n->kind == ACI_FUSE_MAP) return n->numel == p->numel;
  if (n->rows * n->cols != p->numel || (p->cols != 0 && p->cols != n->cols)) return false;
  p->cols = n->cols;
  return true;
}

static bool collect(aci_fuse_node *n, aci_fuse_pass *p) {
  if (n->at >= 0) return true;
  for (int k = 0; k < n->n_in; k++) {
    aci_fuse_node *child = n->in[k].storage != NULL ? node_of(n->in[k].storage) : NULL;
    if (child != NULL && !collect(child, p)) return false;
  }
  if (!joins(p, n)) return false;
  n->at = p->n;
  n->shared = false;
  p->node[p->n++] = n;
  return true;
}

bool aci_fuse_collect(aci_fuse_node *n, aci_fuse_pass *p) {
  if (!collect(n, p)) return false;
  for (aci_fuse_node *w = n->owner->newest; w != NULL; w = w->older)
    for (int k = 0; w->at < 0 && !w->walking && k < w->n_in; k++) {
      aci_fuse_node *read = w->in[k].storage != NULL ? node_of(w->in[k].storage) : NULL;
      if (read != NULL && read->at >= 0) read->shared = true;
    }
  return true;
}

void aci_fuse_forget(aci_fuse_pass *p) {
  for (int i = 0; i < p->n; i++) p->node[i]->at = -1;
  p->n = 0;
  p->cols = 0;
}

void aci_fuse_done(aci_fuse *z, aci_fuse_node *const *node, int n) {
  aci_fuse_node *done[ACI_FUSE_MOST];
  int n_done = 0;
  for (int i = 0; i < n; i++) {
    node[i]->passed = true;
    if (!node[i]->write) continue;
    done[n_done++] = node[i];
    unlink_node(node[i]);
    node[i]->out->provider = NULL;
    node[i]->out->impl = NULL;
  }
  z->n.written += n_done;
  for (int i = 0; i < n_done; i++) { /* this may free nodes that were not written */
    aci_fuse_node_free(done[i]);
    unref(z);
  }
}

/* A reduction that waits for n's elements and takes them from a pass. */
static aci_fuse_node *walk_of(const aci_fuse_node *n) {
  for (aci_fuse_node *w = n->owner->newest; w != NULL && n->kind == ACI_FUSE_MAP; w = w->older)
    if (w->kind == ACI_FUSE_WALK && !w->walking && w->in[0].storage == n->out) return w;
  return NULL;
}

static ac_status compute(aci_fuse_node *n, ac_err *e) {
  aci_fuse *z = n->owner;
  aci_fuse_pass p = {.numel = n->kind == ACI_FUSE_MAP ? n->numel : n->rows * n->cols};
  if (n->lost)
    return AC_FAIL(
        e, STATE,
        "a tensor that a compiled function neither returned nor used up was read after it; return it from the function, "
        "or call that without accel.compile");
  if (z->ctx == NULL) return AC_FAIL(e, STATE, "accel is closed");
  if (n->kind == ACI_FUSE_WALK) return aci_fuse_walk(n, e);
  aci_fuse_node *walk = walk_of(n);
  if (walk != NULL) { /* it adds n's elements up as they are made */
    ac_storage *s = n->out;
    ac_storage_retain(s);
    n->keep = true;
    const ac_status st = aci_fuse_walk(walk, e);
    const bool there = node_of(s) == NULL;
    ac_storage_release(s);
    if (st != AC_OK || there) return st;
  }
  if (!aci_fuse_collect(n, &p) || !aci_fuse_lay_out(&p, n)) {
    aci_fuse_forget(&p);
    for (int k = 0; k < n->n_in; k++) { /* a long chain in parts. n itself fits a pass */
      aci_fuse_node *child = n->in[k].storage != NULL ? node_of(n->in[k].storage) : NULL;
      if (child != NULL) AC_TRY(aci_fuse_compute_node(child, e));
    }
    if (!aci_fuse_collect(n, &p) || !aci_fuse_lay_out(&p, n))
      return AC_FAIL(e, INTERNAL, "a call alone does not fit a pass");
  }
  ac_frame f = {.ctx = z->ctx, .team = z->ctx->team, .device = n->out->device};
  const aci_fuse_device *driver =
      f.device->kind == AC_DEV_CPU ? NULL : aci_fuse_device_of(z, f.device);
  bool generated = false;
  aci_fuse_locate(&p);
  ac_status st = AC_OK;
  if (driver != NULL) {
    st = aci_fuse_device_run(z, driver, &p, &f, &generated, e);
  } else {
    aci_fuse_codes_find(z->codes, &p);
    if ((st = aci_fuse_allocate_pass(&p, false, true, e)) == AC_OK &&
        (st = aci_fuse_run(&p, &f, e)) != AC_OK)
      aci_fuse_give_back(&p);
  }
  aci_fuse_node *node[ACI_FUSE_MOST];
  const int n_nodes = p.n;
  memcpy(node, p.node, sizeof node);
  aci_fuse_forget(&p);
  if (st != AC_OK) return st;
  z->n.generated += generated || p.code != NULL;
  z->n.passes++;
  aci_fuse_done(z, node, n_nodes);
  return AC_OK;
}

/* A call inside backward cannot be repeated for want of memory: the pass can. */
ac_status aci_fuse_compute_node(aci_fuse_node *n, ac_err *e) {
  ac_ctx *c = n->owner->ctx;
  if (c == NULL || c->in_backward == 0 || c->on_oom == NULL) return compute(n, e);
  ac_storage *s = n->out;
  ac_storage_retain(s);
  ac_status st = compute(n, e);
  if (st == AC_OOM && c->on_oom(c->oom_user)) st = node_of(s) != NULL ? compute(n, e) : AC_OK;
  ac_storage_release(s);
  return st;
}

static ac_status acquire(ac_storage *s, void **ptr, ac_err *e) {
  if (s->impl != NULL) AC_TRY(aci_fuse_compute_node(s->impl, e));
  *ptr = s->ptr;
  return AC_OK;
}
static void release(ac_storage *s, bool written) { (void)s, (void)written; }
static void free_waiting(ac_storage *s) { drop(s->impl); }
const ac_provider aci_fuse_waiting = {sizeof aci_fuse_waiting, "waiting", acquire, release,
                                      free_waiting};

/* Computes the waiting results that read s, because its values are about to change. */
static ac_status before_write(aci_fuse *z, const ac_storage *s, ac_err *e) {
  for (aci_fuse_node *n = z->newest; n != NULL;) {
    bool reads = false;
    for (int k = 0; k < n->n_in; k++) reads |= n->in[k].storage == s;
    if (!reads) {
      n = n->older;
      continue;
    }
    AC_TRY(aci_fuse_compute_node(n, e));
    n = z->newest; /* others may be gone */
  }
  return AC_OK;
}

static ac_status compute_kept(aci_fuse *z, bool all, ac_err *e);
static ac_status compute_between_calls(aci_fuse *z, bool all, ac_err *e);

static void before(void *user, const ac_frame *f) {
  aci_fuse *z = user;
  z->op = f->op;
  z->result = f->n_out == 1 ? f->out[0] : NULL;
}
static void after(void *user, const ac_frame *f, ac_status st) { (void)user, (void)f, (void)st; }

aci_fuse *aci_fuse_of(const ac_ctx *c) {
  return c->fuse != NULL && c->fuse->depth > 0 ? c->fuse : NULL;
}

ac_status aci_fuse_before_call(const ac_frame *f, ac_err *e) {
  aci_fuse *z = aci_fuse_of(f->ctx);
  if (z == NULL || z->newest == NULL) return AC_OK;
  /* gradients are also written, and exchanged, outside of calls: nothing may wait for their old
   * values */
  if (f->ctx->in_backward != z->backward) AC_TRY(compute_kept(z, true, e));
  if (f->op->mutates == 0) return AC_OK;
  for (int i = 0; i < f->n_args; i++) {
    const ac_value *v = &f->args[i];
    if (!(f->op->mutates >> i & 1)) continue;
    const int n = v->kind == AC_T_TENSOR ? 1 : v->kind == AC_T_TENSORS ? v->n : 0;
    for (int j = 0; j < n; j++)
      AC_TRY(before_write(z, (v->kind == AC_T_TENSOR ? v->tensor : v->tensors[j])->storage, e));
  }
  return AC_OK;
}

/* ---- regions ---- */
ac_status aci_fuse_open(ac_ctx *c, aci_fuse **out, ac_err *e) {
  *out = calloc(1, sizeof **out);
  if (*out == NULL) return AC_FAIL(e, OOM, "no memory for chains of maps");
  **out = (aci_fuse){.ctx = c, .refs = 1, .codes = aci_fuse_codes_new(c->params)};
  c->fuse = *out;
  return AC_OK;
}

void aci_fuse_close(aci_fuse *z) {
  if (z->depth > 0) aci_ctx_remove_observer(z->ctx, z);
  aci_fuse_codes_free(z->codes);
  z->codes = NULL;
  z->ctx->fuse = NULL;
  z->ctx = NULL;
  unref(z);
}

void aci_fuse_enter(aci_fuse *z) {
  ac_err e;
  /* no room: nothing waits */
  if (z->depth == 0 && aci_ctx_add_observer(z->ctx, (aci_observer){before, after, z}, &e) != AC_OK)
    return;
  if (z->depth++ == 0 && z->ctx->in_backward == 0 && ++z->region == 0) z->region = 1;
}

ac_status aci_fuse_leave(aci_fuse *z, bool all, ac_err *e) {
  if (z->depth == 0 || --z->depth > 0) return AC_OK;
  const ac_status st = compute_between_calls(z, all, e);
  /* garbage, as far as one can tell: operands need not wait for the collector */
  while (z->newest != NULL) {
    aci_fuse_node *n = z->newest;
    unlink_node(n);
    n->lost = true;
    release_operands(n);
  }
  aci_ctx_remove_observer(z->ctx, z);
  return st;
}

aci_fuse_counts aci_fuse_count(const aci_fuse *z) { return z->n; }

ac_status aci_fuse_settle(ac_ctx *c, const ac_tensor *t, ac_err *e) {
  aci_fuse *z = aci_fuse_of(c);
  if (z == NULL || z->newest == NULL || t->storage == NULL) return AC_OK;
  if (node_of(t->storage) != NULL) AC_TRY(aci_fuse_compute_node(t->storage->impl, e));
  return before_write(z, t->storage, e);
}

void aci_fuse_want(ac_ctx *c, const ac_tensor *t) {
  if (aci_fuse_of(c) != NULL && t->storage != NULL && node_of(t->storage) != NULL)
    node_of(t->storage)->keep = true;
}

/* The newest first: on the way to it lie others. */
static ac_status compute_kept(aci_fuse *z, bool all, ac_err *e) {
  for (aci_fuse_node *n = z->newest; n != NULL;) {
    if (!all && !n->keep) {
      n = n->older;
      continue;
    }
    AC_TRY(aci_fuse_compute_node(n, e));
    n = z->newest;
  }
  return AC_OK;
}

static ac_status compute_between_calls(aci_fuse *z, bool all, ac_err *e) {
  const ac_ctx *c = z->ctx;
  ac_status st = compute_kept(z, all, e);
  if (st == AC_OOM && c->in_backward == 0 && c->on_oom != NULL && c->on_oom(c->oom_user))
    st = compute_kept(z, all, e);
  return st;
}

ac_status aci_fuse_compute(ac_ctx *c, ac_err *e) {
  aci_fuse *z = aci_fuse_of(c);
  return z == NULL ? AC_OK : compute_between_calls(z, false, e);
}

/* ---- backward ---- */
ac_status aci_fuse_begin_backward(aci_fuse *z, int *before, ac_err *e) {
  AC_TRY(compute_kept(z, true, e));
  aci_fuse_enter(z);
  *before = z->backward;
  z->backward = z->ctx->in_backward;
  return AC_OK;
}

ac_status aci_fuse_end_backward(aci_fuse *z, int before, ac_err *e) {
  ac_status st = compute_kept(z, true, e);
  z->backward = before;
  const ac_status left = aci_fuse_leave(z, false, st == AC_OK ? e : NULL);
  return st == AC_OK ? left : st;
}

ac_status aci_fuse_compute_all(aci_fuse *z, ac_err *e) { return compute_kept(z, true, e); }

uint32_t aci_fuse_region(const ac_ctx *c) { return aci_fuse_of(c) != NULL ? c->fuse->region : 0; }

bool aci_fuse_waits(const ac_tensor *t) { return node_of(t->storage) != NULL; }

/* ---- nodes ---- */
void aci_fuse_node_free(aci_fuse_node *n) {
  release_operands(n);
  free(n->plan);
  free(n);
}

void aci_fuse_wait(aci_fuse_node *n) {
  aci_fuse *z = n->owner;
  n->older = z->newest;
  if (z->newest != NULL) z->newest->newer = n;
  z->newest = n;
  z->refs++;
  z->n.waited++;
  z->n.waiting++;
  n->out->provider = &aci_fuse_waiting;
  n->out->impl = n;
}

bool aci_fuse_can_wait(const aci_fuse *z, const ac_frame *f, const ac_tensor *o) {
  const ac_storage *s = o->storage; /* none so far, promised, or with memory of its own */
  return z->op == f->op && z->result == o && f->ctx->in_backward == z->backward &&
         aci_fuse_takes(f) && (o->dtype == AC_F32 || o->dtype == AC_BF16 || o->dtype == AC_F16) &&
         aci_is_contiguous(o) && o->offset == 0 &&
         (s == NULL || (s->provider == NULL ? s->block != NULL
                                            : s->provider == &aci_fuse_waiting && s->impl == NULL));
}

bool aci_fuse_leads_to_gradient(const ac_frame *f) {
  if (!f->ctx->grad_enabled) return false;
  for (int i = 0; i < f->n_args; i++)
    if (f->args[i].kind == AC_T_TENSOR && aci_requires_grad(f->args[i].tensor)) return true;
  return false;
}

void aci_fuse_give_operand(const ac_frame *f, aci_fuse_node *n, int k, aci_fuse_node *child) {
  ac_storage *s = f->args[k].tensor->storage;
  if (child != NULL && child->depth >= n->depth) n->depth = child->depth + 1;
  /* for the gradient of another operand */
  if (child != NULL && (f->desc->save & AC_SAVE_IN(k)) != 0 && aci_fuse_leads_to_gradient(f))
    child->keep = true;
  n->in[k].storage = s;
  ac_storage_retain(s);
}

ac_status aci_fuse_settle_operands(const ac_frame *f, ac_err *e) {
  for (int i = 0; i < f->n_args; i++)
    if (f->args[i].kind == AC_T_TENSOR && node_of(f->args[i].tensor->storage) != NULL)
      AC_TRY(aci_fuse_compute_node(f->args[i].tensor->storage->impl, e));
  return AC_OK;
}

/* ---- calls ---- */
static bool takes(aci_fuse *z, const ac_frame *f) {
  const ac_op_desc *d = f->desc;
  const ac_device_kind kind = f->device->kind;
  const bool map = d->data != NULL && (d->cpu == aci_map_cpu || d->any_device);
  if (kind == AC_DEV_CPU) return map || d->data == &aci_fuse_reduces;
  return map && f->op->kernel[kind] == d->cpu && f->stream == NULL &&
         aci_fuse_device_of(z, f->device) != NULL;
}

bool aci_fuse_takes(const ac_frame *f) {
  aci_fuse *z = aci_fuse_of(f->ctx);
  if (z == NULL || f->op->mutates != 0 || f->inplace || !takes(z, f)) return false;
  for (int i = 0; i < f->n_args; i++) {
    if (f->args[i].kind == AC_T_TENSORS) return false;
    if (f->args[i].kind != AC_T_TENSOR) continue;
    const ac_storage *s = f->args[i].tensor->storage;
    if (s->provider != NULL && s->provider != &aci_fuse_waiting) return false;
  }
  return true;
}

/* A node that has one value a row, and t is all of them. */
static bool is_values(const aci_fuse_node *n, const ac_tensor *t) {
  return n != NULL && !n->lost && (n->kind == ACI_FUSE_REDUCED || n->kind == ACI_FUSE_ROW_MAP) &&
         t->offset == 0 && aci_is_contiguous(t) && t->numel == n->numel &&
         (ac_dtype)t->dtype == n->dt && n->depth < ACI_FUSE_DEPTH;
}

/* A pure map of rows' values, if one of them waits: its rows. */
static const aci_fuse_node *values_of(const ac_frame *f, const ac_tensor *o) {
  for (int i = 0; i < f->n_args; i++) {
    if (f->args[i].kind != AC_T_TENSOR) continue;
    const aci_fuse_node *n = node_of(f->args[i].tensor->storage);
    if (is_values(n, f->args[i].tensor) && n->numel == o->numel) return n;
  }
  return NULL;
}

/* Whether the waiting operand, laid out according to `to`, takes part in n's pass. */
static bool joins_pass(const aci_fuse_node *n, const aci_fuse_node *child,
                       const aci_fuse_operand *to, const aci_map_plan *plan, const ac_tensor *t) {
  if (n->kind == ACI_FUSE_ROW_MAP)
    return is_values(child, t) && to->linear && child->rows == n->rows && child->cols == n->cols;
  if (is_values(child, t))
    return plan->ndim == 2 && to->row == 1 && to->step == 0 && child->rows == plan->shape[0] &&
           child->cols == plan->shape[1];
  return child->kind == ACI_FUSE_MAP && !child->lost && to->linear && t->offset == 0 &&
         child->numel == n->numel && child->dt == (ac_dtype)t->dtype &&
         child->depth < ACI_FUSE_DEPTH;
}

/* Operands as in the plan. Those that wait and do not go with the result are computed first, or
 * report that they are lost. */
static ac_status take_operands(ac_frame *f, const aci_map_plan *plan, aci_fuse_node *n, ac_err *e) {
  n->n_in = plan->n_in;
  for (int k = 0; k < plan->n_in; k++) {
    const aci_map_operand *p = &plan->in[k];
    aci_fuse_operand *to = &n->in[k];
    to->number = plan->number[k].f32;
    if (p->number) continue;
    const ac_tensor *t = f->args[k].tensor;
    to->begin = t->offset * (int64_t)aci_dsize(p->dt);
    to->dt = p->dt;
    to->row = plan->ndim == 2 ? p->stride[0] : 0;
    to->step = p->stride[plan->ndim - 1];
    n->inner = plan->shape[plan->ndim - 1];
    to->linear = to->step == 1 && (plan->ndim == 1 || to->row == n->inner);
    aci_fuse_node *child = node_of(t->storage);
    if (child != NULL && !joins_pass(n, child, to, plan, t)) {
      AC_TRY(aci_fuse_compute_node(child, e));
      child = NULL;
    }
    aci_fuse_give_operand(f, n, k, child);
  }
  return AC_OK;
}

ac_status aci_fuse_map(ac_frame *f, const aci_map *m, bool *waits, ac_err *e) {
  aci_fuse *z = aci_fuse_of(f->ctx);
  ac_tensor *o = f->out[0];
  *waits = false;
  if (z == NULL) return AC_OK;
  aci_map_plan plan;
  aci_fuse_node *n = NULL;
  const aci_fuse_node *values = NULL;
  if (m->f32 != NULL && aci_fuse_can_wait(z, f, o) &&
      ((values = values_of(f, o)) != NULL || o->numel >= aci_fuse_fewest(f->device))) {
    const aci_map_loop *loop = aci_map_plan_make(f, m, &plan);
    /* without memory: at once */
    if (plan.ct == ACI_C_F32 && plan.ndim <= 2) n = calloc(1, sizeof *n);
    if (n != NULL) {
      *n = (aci_fuse_node){.owner = z,
                           .out = o->storage,
                           .loop = loop->run,
                           .which = loop,
                           .heavy = f->desc->flops_per_element,
                           .numel = o->numel,
                           .inner = o->numel,
                           .dt = (ac_dtype)o->dtype,
                           .at = -1};
      n->keep = (f->desc->save & AC_SAVE_OUT(0)) != 0 && aci_fuse_leads_to_gradient(f);
      if (values != NULL) {
        n->kind = ACI_FUSE_ROW_MAP;
        n->rows = values->rows;
        n->cols = values->cols;
      }
      memcpy(n->p, plan.p.f32, sizeof n->p);
      const ac_status st = take_operands(f, &plan, n, e);
      if (st != AC_OK) {
        aci_fuse_node_free(n);
        return st;
      }
      aci_fuse_wait(n);
      *waits = true;
      return AC_OK;
    }
  }
  AC_TRY(aci_fuse_allocate(o->storage, e));
  return aci_fuse_settle_operands(f, e);
}
