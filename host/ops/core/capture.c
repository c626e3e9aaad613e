/* Recorded steps: see capture.h. The device records the step and runs it again (capture_begin and
 * the other capture functions of ac_device_vtable). */
#include "ops/core/capture.h"

#include <stdio.h>
#include <stdlib.h>

#include "device/pool.h"
#include "ops/core/fuse.h"

typedef struct held {
  ac_storage *s; /* retained */
  bool written;
} held;

typedef struct leaf_grad {
  ac_tensor *leaf, *before, *after; /* retained. NULL: no gradient */
  bool filled_before, filled_after; /* of a slot that has the gradient instead */
  bool added;                       /* to the gradient that it had before */
} leaf_grad;

struct aci_capture {
  ac_ctx *ctx;
  ac_device *dev; /* retained */
  aci_device_capture state;
  aci_tracer tracer;
  bool running, recorded, replayed;
  aci_capture_mode mode;
  /* on the device: increments of RNG counters, before and after a step boundary inside the step */
  ac_block *words;
  ac_device_graph *graph;
  /* counters at its begin and end, and at the begin of the replay under way */
  ac_generator begin, end, now;
  int steps;
  held *held; /* open addressing by storage */
  uint32_t mask, n_held;
  leaf_grad *leaf;
  int n_leaves, cap_leaves;
};

static const ac_device_vtable *vt_of(const aci_capture *k) { return k->dev->vt; }

void aci_capture_note(const aci_capture *k, const char *why) {
  if (k->running) (void)aci_capture_refuse(k->dev, why, NULL);
}
static void note_op(const aci_capture *k, const char *op, const char *what) {
  char text[160];
  snprintf(text, sizeof text, "%.60s %s", op, what);
  aci_capture_note(k, text);
}

/* ---- storages ---- */
static held *slot_of(const aci_capture *k, const ac_storage *s) {
  uint32_t p = (uint32_t)(((uintptr_t)s >> 4) * 2654435761u) & k->mask;
  while (k->held[p].s != NULL && k->held[p].s != s) p = (p + 1) & k->mask;
  return &k->held[p];
}

static bool room(aci_capture *k) {
  if (k->held != NULL && k->n_held * 2 <= k->mask) return true;
  aci_capture bigger = *k;
  bigger.mask = k->held == NULL ? 1023 : k->mask * 2 + 1;
  bigger.held = calloc((size_t)bigger.mask + 1, sizeof *bigger.held);
  if (bigger.held == NULL) return false;
  for (uint32_t i = 0; k->held != NULL && i <= k->mask; i++)
    if (k->held[i].s != NULL) *slot_of(&bigger, k->held[i].s) = k->held[i];
  free(k->held);
  k->held = bigger.held;
  k->mask = bigger.mask;
  return true;
}

/* Its own memory is kept for it. Other memory could meanwhile be reused for another tensor. */
static void hold(aci_capture *k, const ac_tensor *t, bool written) {
  ac_storage *s = t->storage;
  if (aci_fuse_waits(t)) return; /* a result of this run, whose memory will be the run's own */
  if (s->provider != NULL) {
    aci_capture_note(k, "tensors are elsewhere between their uses (offload, ZeRO stage 3)");
    return;
  }
  if (s->block != NULL && aci_pool_is_diverted(k->dev, s->block)) return;
  if (!room(k)) {
    aci_capture_note(k, "there was no memory for the list of its tensors");
    return;
  }
  held *h = slot_of(k, s);
  if (h->s == NULL) {
    ac_storage_retain(s);
    h->s = s;
    k->n_held++;
  }
  h->written |= written;
}

static void let_go(aci_capture *k) {
  for (uint32_t i = 0; k->held != NULL && i <= k->mask; i++)
    if (k->held[i].s != NULL) ac_storage_release(k->held[i].s);
  free(k->held);
  k->held = NULL;
  k->mask = k->n_held = 0;
}

/* Casts and packed copies that are valid now would not be made again by a replay. */
static void raise_versions(const aci_capture *k) {
  for (uint32_t i = 0; k->held != NULL && i <= k->mask; i++)
    if (k->held[i].s != NULL && k->held[i].written)
      atomic_fetch_add_explicit(&k->held[i].s->version, 1, memory_order_relaxed);
}

/* ---- calls ---- */
static void before(void *user, const ac_frame *f) {
  aci_capture *k = user;
  const ac_op *op = f->op;
  if (op->is_view) return;
  if (!aci_same_device(f->device, k->dev)) {
    if (f->device->kind != AC_DEV_META)
      note_op(k, op->name,
              f->device->kind == AC_DEV_CPU ? "runs on the cpu" : "runs on another device");
    return;
  }
  if (f->stream != NULL) note_op(k, op->name, "runs on a stream of its own");
  if (op->rng_arg >= 0) {
    const ac_value *g = &f->args[op->rng_arg];
    if (g->kind == AC_T_GENERATOR && g->generator != NULL && !g->generator->fixed)
      note_op(k, op->name, "draws from a generator of its own, whose counter is the host's");
  }
  for (int i = 0; i < f->n_args; i++) {
    const ac_value *v = &f->args[i];
    const bool written = op->mutates >> i & 1;
    if (v->kind == AC_T_TENSOR) hold(k, v->tensor, written);
    else if (v->kind == AC_T_TENSORS)
      for (int j = 0; j < v->n; j++) hold(k, v->tensors[j], written);
  }
}
static void after(void *user, const ac_frame *f, ac_status st) { (void)user, (void)f, (void)st; }

/* ---- gradients ---- */
static bool filled(const ac_tensor *t) {
  return t->grad_slot != NULL && t->grad_slot->view != NULL && t->grad_slot->filled;
}

static void on_leaf(void *user, const ac_tensor *leaf) {
  aci_capture *k = user;
  if (leaf->grad_slot != NULL && leaf->grad_slot->view != NULL)
    hold(k, leaf->grad_slot->view, true);
  for (int i = 0; i < k->n_leaves; i++) {
    if (k->leaf[i].leaf != leaf) continue;
    k->leaf[i].added |= k->leaf[i].before != NULL && leaf->grad == k->leaf[i].before;
    return;
  }
  if (k->mode == AC_CAPTURE_RECORD) {
    aci_capture_note(k, "other parameters get gradients than in the call before");
    return;
  }
  if (k->n_leaves == k->cap_leaves) {
    const int cap = k->cap_leaves == 0 ? 64 : 2 * k->cap_leaves;
    leaf_grad *more = realloc(k->leaf, (size_t)cap * sizeof *more);
    if (more == NULL) {
      aci_capture_note(k, "there was no memory for the list of its parameters");
      return;
    }
    k->leaf = more;
    k->cap_leaves = cap;
  }
  ac_tensor *t = (ac_tensor *)(uintptr_t)leaf;
  ac_tensor_retain(t);
  k->leaf[k->n_leaves++] = (leaf_grad){.leaf = t};
}
static void on_backward(void *user, bool begins) { (void)user, (void)begins; }
static void on_node(void *user, const char *name, bool begins) {
  (void)user, (void)name, (void)begins;
}

static void put(ac_tensor **slot, ac_tensor *t) {
  if (t != NULL) ac_tensor_retain(t);
  ac_tensor_release(*slot);
  *slot = t;
}
static void look_at_gradients(aci_capture *k, bool at_end) {
  for (int i = 0; i < k->n_leaves; i++) {
    leaf_grad *l = &k->leaf[i];
    put(at_end ? &l->after : &l->before, l->leaf->grad);
    *(at_end ? &l->filled_after : &l->filled_before) = filled(l->leaf);
    if (!at_end) l->added = false;
  }
}
static void give_gradients(aci_capture *k, bool after_it) {
  for (int i = 0; i < k->n_leaves; i++) {
    leaf_grad *l = &k->leaf[i];
    put(&l->leaf->grad, after_it ? l->after : l->before);
    if (l->leaf->grad_slot != NULL)
      l->leaf->grad_slot->filled = after_it ? l->filled_after : l->filled_before;
  }
}
static void drop_gradients(aci_capture *k) {
  for (int i = 0; i < k->n_leaves; i++) {
    put(&k->leaf[i].before, NULL);
    put(&k->leaf[i].after, NULL);
  }
}

/* ---- counters ---- */
static ac_status on_step(void *user, ac_err *e) {
  aci_capture *k = user;
  (void)e;
  if (!k->running) return AC_OK;
  k->steps++;
  if (k->mode == AC_CAPTURE_RECORD) k->ctx->replayed = (const uint64_t *)k->words->ptr + 1;
  return AC_OK;
}
static void remove_step_hook(aci_capture *k) {
  ac_ctx *c = k->ctx;
  int n = 0;
  for (int i = 0; i < c->n_step_hooks; i++)
    if (c->step_hook[i].user != k) c->step_hook[n++] = c->step_hook[i];
  c->n_step_hooks = n;
}

/* ---- life ---- */
ac_status aci_capture_open(ac_ctx *c, ac_device *d, aci_capture **out, ac_err *e) {
  *out = NULL;
  if (d->vt->capture_begin == NULL) return AC_FAIL(e, UNSUPPORTED, "%s records no steps", d->name);
  aci_capture *k = calloc(1, sizeof *k);
  if (k == NULL) return AC_FAIL(e, OOM, "no memory for a recorded step");
  const ac_status st =
      ac_block_alloc(d, 2 * sizeof(uint64_t), AC_MEM_PARAMETER, NULL, &k->words, e);
  if (st != AC_OK) {
    free(k);
    return st;
  }
  k->ctx = c;
  k->dev = d;
  ac_device_retain(d);
  k->tracer = (aci_tracer){on_backward, on_node, on_leaf, k};
  *out = k;
  return AC_OK;
}

static void drop_graph(aci_capture *k) {
  if (k->graph != NULL) vt_of(k)->graph_free(k->dev, k->graph);
  k->graph = NULL;
  k->recorded = k->replayed = false;
}

void aci_capture_close(aci_capture *k) {
  if (k == NULL) return;
  if (k->running) (void)aci_capture_end(k, false, NULL);
  drop_graph(k);
  let_go(k);
  drop_gradients(k);
  for (int i = 0; i < k->n_leaves; i++) ac_tensor_release(k->leaf[i].leaf);
  free(k->leaf);
  ac_block_free(k->words);
  aci_pool_undivert(k->dev, k);
  ac_device_release(k->dev);
  free(k);
}

/* Results of compiled functions that wait are computed on the side of a begin, an end or a replay
 * on which they were made. */
static ac_status compute_waiting(const aci_capture *k, ac_err *e) {
  aci_fuse *z = aci_fuse_of(k->ctx);
  return z == NULL ? AC_OK : aci_fuse_compute_all(z, e);
}

ac_status aci_capture_begin(aci_capture *k, aci_capture_mode mode, ac_err *e) {
  ac_ctx *c = k->ctx;
  if (k->dev->capture != NULL || k->running)
    return AC_FAIL(e, STATE, "%s: a step is being recorded already", k->dev->name);
  AC_TRY(compute_waiting(k, e));
  AC_TRY(aci_ctx_add_observer(c, (aci_observer){before, after, k}, e));
  ac_status st = aci_ctx_add_step_hook(c, (aci_step_hook){on_step, k}, e);
  if (st == AC_OK && mode == AC_CAPTURE_RECORD) {
    drop_graph(k);
    raise_versions(k); /* of the storages that the watched run wrote */
  }
  let_go(k);
  if (st == AC_OK) {
    look_at_gradients(k, false);
    k->begin = c->gen;
    k->steps = 0;
    k->mode = mode;
    k->state = (aci_device_capture){.recording = mode == AC_CAPTURE_RECORD};
    aci_pool_divert(k->dev, k);
    if (mode == AC_CAPTURE_RECORD) st = vt_of(k)->capture_begin(k->dev, e);
    if (st != AC_OK) aci_pool_divert(k->dev, NULL);
  }
  if (st != AC_OK) {
    aci_ctx_remove_observer(c, k);
    remove_step_hook(k);
    return st;
  }
  k->running = true;
  k->dev->capture = &k->state;
  if (mode == AC_CAPTURE_RECORD) c->replayed = k->words->ptr;
  if (c->tracer == NULL) c->tracer = &k->tracer;
  else aci_capture_note(k, "the profiler records");
  return AC_OK;
}

ac_status aci_capture_end(aci_capture *k, bool keep, ac_err *e) {
  ac_ctx *c = k->ctx;
  ac_status st = AC_OK;
  if (!k->running) return AC_FAIL(e, STATE, "no step is being recorded");
  if (keep && compute_waiting(k, NULL) != AC_OK)
    aci_capture_note(k, "results of a compiled function could not be computed");
  k->running = false;
  if (c->tracer == &k->tracer) c->tracer = NULL;
  c->replayed = NULL;
  aci_ctx_remove_observer(c, k);
  remove_step_hook(k);
  k->dev->capture = NULL;
  aci_pool_divert(k->dev, NULL);
  if (k->mode == AC_CAPTURE_WATCH) return AC_OK;
  const bool good = keep && k->state.why[0] == '\0';
  st = vt_of(k)->capture_end(k->dev, good ? &k->graph : NULL, e);
  k->end = c->gen;
  if (good && st == AC_OK) {
    k->recorded = true;
    look_at_gradients(k, true);
    return AC_OK;
  }
  give_gradients(k, false);
  c->gen = k->begin;
  c->step -= (uint64_t)k->steps;
  return keep && good ? st : AC_OK;
}

bool aci_capture_wrote(const aci_capture *k, const ac_tensor *t) {
  return k->held != NULL && slot_of(k, t->storage)->written;
}
const char *aci_capture_why(const aci_capture *k) { return k->state.why; }
int aci_capture_leaves(const aci_capture *k) { return k->n_leaves; }
int aci_capture_steps(const aci_capture *k) { return k->steps; }

/* ---- replays ---- */
const char *aci_capture_differs(const aci_capture *k) {
  const ac_generator *now = &k->ctx->gen, *then = &k->begin;
  if (!k->recorded) return "nothing is recorded";
  if (now->seed != then->seed || now->stream != then->stream) return "the seed";
  if (now->drawn != then->drawn || now->row0 != then->row0 ||
      memcmp(now->range, then->range, sizeof now->range) != 0)
    return "the micro-batch that random numbers are drawn for";
  for (int i = 0; i < k->n_leaves; i++) {
    const leaf_grad *l = &k->leaf[i];
    const bool other =
        l->before == NULL ? l->leaf->grad != NULL : l->added && l->leaf->grad != l->before;
    if (other || filled(l->leaf) != l->filled_before)
      return "the gradients that are there before it";
  }
  return NULL;
}

ac_status aci_capture_replay(aci_capture *k, ac_err *e) {
  ac_ctx *c = k->ctx;
  const ac_device_vtable *vt = vt_of(k);
  if (!k->recorded) return AC_FAIL(e, STATE, "no step was recorded");
  AC_TRY(compute_waiting(k, e));
  k->now = k->replayed ? c->gen : k->begin;
  const uint64_t step = (uint64_t)(k->now.step - k->begin.step) << 32;
  const uint64_t words[2] = {step + k->now.ordinal - k->begin.ordinal, step};
  AC_TRY(vt->upload(k->dev, NULL, k->words->ptr, words, sizeof words, e));
  AC_TRY(vt->graph_launch(k->dev, k->graph, e));
  raise_versions(k);
  if (k->replayed) give_gradients(k, true);
  return AC_OK;
}

void aci_capture_settle(aci_capture *k) {
  ac_generator *g = &k->ctx->gen;
  if (k->replayed) {
    g->ordinal = k->steps > 0 ? k->end.ordinal : k->now.ordinal + k->end.ordinal - k->begin.ordinal;
    g->drawn = k->end.drawn;
    g->row0 = k->end.row0;
  }
  k->replayed = true;
}
