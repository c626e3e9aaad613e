/* Recompute: regions of the forward that drop their saved tensors and compute them again in
 * backward. Used by accel.checkpoint (bindings/autograd/lac_saved.c).
 *
 * In the forward every saved tensor of the region becomes a number. The first number that backward
 * asks for makes the region run again. Its saved tensors, in the same order, fill the slots, and
 * each leaves with the node that needs it. Regions nest: the hooks of the outer region keep the
 * arguments of an inner one, and compute them again when the inner one is to run. Nodes made by the
 * second run also know their tensors by number, so the part of that graph that Lua still holds
 * keeps no bytes alive. */
#include <stdlib.h>
#include <string.h>

#include "autograd/saved.h"

typedef struct slot {
  aci_packed meta;
  ac_tensor *got;
  bool alive; /* some node still needs it */
} slot;

struct ac_recompute {
  int ref;  /* slots, entered regions, the maker */
  int live; /* of these: holders that may still ask for a tensor */
  ac_ctx *ctx;
  ac_recompute_spec spec;
  int n_args;
  aci_saved *args;
  int n, cap;
  slot *slots;
  int next, last; /* of the second run: slots filled, and the last one that is needed */
  int open;       /* the forward is in the region */
  bool replaying, stopped;
  ac_saved_hooks forward, again;
};

/* A node's handle of a saved tensor: its number in the region. t: the tensor itself, if it came in
 * the second run and its slot was not waiting for it. */
typedef struct holder {
  ac_recompute *r;
  int i;
  bool again;
  ac_tensor *t;
} holder;

static void unref(ac_recompute *r) {
  if (--r->ref > 0) return;
  for (int i = 0; i < r->n; i++) ac_tensor_release(r->slots[i].got);
  free(r->slots);
  free(r);
}

static void drop_args(ac_recompute *r) {
  aci_saved *args = r->args;
  const int n = r->n_args;
  r->args = NULL;
  r->n_args = 0;
  for (int i = 0; i < n && args != NULL; i++) aci_saved_drop(&args[i]);
  free(args);
}

/* No holder can ask any more: the data for the second run is freed at once, not with the last
 * shell. */
static void unlive(ac_recompute *r) {
  if (--r->live > 0) return;
  drop_args(r);
  if (r->spec.free != NULL) r->spec.free(r->spec.user);
  r->spec.free = NULL;
}

static ac_status hold(ac_recompute *r, int i, bool again, ac_tensor *t, void **packed, ac_err *e) {
  holder *h = malloc(sizeof *h);
  if (h == NULL) return AC_FAIL(e, OOM, "no memory for a saved tensor");
  *h = (holder){.r = r, .i = i, .again = again, .t = t};
  if (t != NULL) ac_tensor_retain(t);
  r->ref++;
  *packed = h;
  return AC_OK;
}

static void free_holder(void *packed) {
  holder *h = packed;
  ac_recompute *r = h->r;
  ac_tensor_release(h->t);
  if (!h->again) {
    slot *p = &r->slots[h->i];
    ac_tensor *got = p->got;
    p->got = NULL;
    p->alive = false;
    ac_tensor_release(got);
    unlive(r);
  }
  free(h);
  unref(r);
}

static ac_status pack_forward(void *user, ac_tensor *t, void **packed, ac_err *e) {
  ac_recompute *r = user;
  if (r->n == r->cap) {
    const int cap = r->cap == 0 ? 32 : r->cap * 2;
    slot *p = realloc(r->slots, (size_t)cap * sizeof *p);
    if (p == NULL) return AC_FAIL(e, OOM, "no memory for saved tensors");
    r->slots = p;
    r->cap = cap;
  }
  AC_TRY(hold(r, r->n, false, NULL, packed, e));
  slot *p = &r->slots[r->n++];
  *p = (slot){.alive = true, .meta = {.device = t->device, .dtype = t->dtype, .ndim = t->ndim}};
  memcpy(p->meta.shape, t->shape, 8 * (size_t)t->ndim);
  r->live++;
  return AC_OK;
}

static ac_status stop(ac_recompute *r, ac_err *e) {
  r->stopped = true;
  if (r->spec.stop != NULL) r->spec.stop(r->spec.user);
  return AC_FAIL(e, CALLBACK,
                 "stopped: the recomputation is complete; pass this error on to the checkpoint");
}

static ac_status pack_again(void *user, ac_tensor *t, void **packed, ac_err *e) {
  ac_recompute *r = user;
  const bool early = r->spec.early_stop || r->open > 0;
  char a[128], b[160];
  const int i = r->next++;
  if (early && i > r->last) return stop(r, e); /* the first failure was caught by the callback */
  if (i >= r->n) {
    if (r->spec.check)
      return AC_FAIL(
          e, STATE,
          "checkpoint: during recomputation the function saved more tensors than the %d of its "
          "forward; it must do "
          "the same every time it is called",
          r->n);
    return hold(r, i, true, t, packed, e);
  }
  slot *p = &r->slots[i];
  if (r->spec.check && !aci_packed_fits(&p->meta, t))
    return AC_FAIL(
        e, STATE,
        "checkpoint: during recomputation saved tensor %d of %d is %s; in the forward it was %s: the "
        "function must do "
        "the same every time it is called",
        i + 1, r->n, aci_tensor_str(t, a, sizeof a), aci_packed_str(&p->meta, b, sizeof b));
  const bool wanted = p->alive && p->got == NULL;
  if (wanted) ac_tensor_retain(p->got = t);
  if (early && i == r->last) return stop(r, e);
  return hold(r, i, true, wanted ? NULL : t, packed, e);
}

static ac_status replay(ac_recompute *r, ac_err *e) {
  ac_status st = AC_OK;
  const int n_args = r->n_args;
  ac_tensor **args = calloc((size_t)n_args + 1, sizeof *args);
  if (args == NULL) return AC_FAIL(e, OOM, "no memory for the arguments of a checkpoint");
  r->replaying = true;
  r->live++;
  for (int i = 0; i < n_args && st == AC_OK; i++)
    st = aci_saved_get(r->ctx, &r->args[i], "checkpoint: argument", i, &args[i], e);
  if (st == AC_OK) {
    r->next = 0;
    r->stopped = false;
    for (r->last = r->n - 1; r->last > 0 && !r->slots[r->last].alive;) r->last--;
    const bool grad = ac_ctx_set_grad_enabled(r->ctx, true);
    st = r->spec.run(r->spec.user, r, n_args, args, e);
    ac_ctx_set_grad_enabled(r->ctx, grad);
    if (r->stopped) st = AC_OK;
    else if (st == AC_OK && r->next < r->n && r->spec.check)
      st = AC_FAIL(
          e, STATE,
          "checkpoint: during recomputation the function saved %d tensors, in the forward %d: it must do "
          "the same every "
          "time it is called",
          r->next, r->n);
  }
  for (int i = 0; i < n_args; i++) ac_tensor_release(args[i]);
  free(args);
  for (int i = 0; i < r->n && st != AC_OK; i++) {
    ac_tensor *got = r->slots[i].got;
    r->slots[i].got = NULL;
    ac_tensor_release(got);
  }
  r->replaying = false;
  unlive(r);
  return st;
}

static ac_status unpack(void *packed, ac_tensor **out, ac_err *e) {
  holder *h = packed;
  ac_recompute *r = h->r;
  if (h->t != NULL) {
    ac_tensor_retain(*out = h->t);
    return AC_OK;
  }
  if (h->again && !r->replaying)
    return AC_FAIL(e, GRAD,
                   "a tensor from the recomputation of a checkpoint has no gradients of its own");
  r->ref++;
  ac_status st = AC_OK;
  if (r->slots[h->i].got == NULL)
    st = r->replaying ? AC_FAIL(e, STATE,
                                "checkpoint: the recomputation needs a tensor that it is computing")
                      : replay(r, e);
  slot *p = &r->slots[h->i];
  if (st == AC_OK && p->got == NULL)
    st = AC_FAIL(e, STATE,
                 "checkpoint: during recomputation the function did not save tensor %d of %d",
                 h->i + 1, r->n);
  if (st == AC_OK) {
    *out = p->got;
    if (r->replaying || r->open > 0) ac_tensor_retain(*out);
    else
      p->got = NULL; /* it leaves with the node that asked. A second backward computes it again */
  }
  unref(r);
  return st;
}

ac_status ac_recompute_new(ac_ctx *c, const ac_recompute_spec *spec, int n_args,
                           ac_tensor *const *args, ac_recompute **out, ac_err *e) {
  *out = NULL;
  if (spec->struct_size != sizeof *spec)
    return AC_FAIL(e, UNSUPPORTED, "ac_recompute_spec of another version");
  ac_recompute *r = calloc(1, sizeof *r);
  if (r != NULL) r->args = calloc((size_t)n_args + 1, sizeof *r->args);
  if (r == NULL || r->args == NULL) {
    free(r);
    return AC_FAIL(e, OOM, "no memory for a checkpoint");
  }
  *r = (ac_recompute){.ref = 1, .live = 1, .ctx = c, .args = r->args};
  r->forward = (ac_saved_hooks){.struct_size = sizeof r->forward,
                                .skip_leaves = true,
                                .pack = pack_forward,
                                .unpack = unpack,
                                .free_packed = free_holder,
                                .user = r};
  r->again = r->forward;
  r->again.pack = pack_again;
  ac_status st = AC_OK;
  for (int i = 0; i < n_args && st == AC_OK; i++) {
    r->n_args = i + 1;
    st = aci_save(c, args[i], false, &r->args[i], e);
  }
  if (st != AC_OK) {
    drop_args(r);
    unref(r);
    return st;
  }
  r->spec = *spec;
  *out = r;
  return AC_OK;
}

void ac_recompute_release(ac_recompute *r) {
  if (r == NULL) return;
  unlive(r);
  unref(r);
}

void ac_recompute_enter(ac_recompute *r) {
  r->ref++;
  if (!r->replaying) r->open++, r->live++;
  ac_saved_hooks_push(r->ctx, r->replaying ? &r->again : &r->forward);
}

void ac_recompute_leave(ac_recompute *r) {
  if (!r->replaying) r->open--;
  ac_saved_hooks_pop(r->ctx, r->replaying ? &r->again : &r->forward);
  if (!r->replaying) unlive(r);
  unref(r);
}

bool ac_recompute_stopped(const ac_recompute *r) { return r->stopped; }
