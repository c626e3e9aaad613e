/* Autocast: fills the context's cast slot, which ac_call asks before the shape rule. Ops that write
 * in place are left alone, as in PyTorch: a write to a cast would not reach the original. */
#include <stdlib.h>

#include "accel/ops.h"
#include "accel/precision.h"
#include "ops/core/ctx_impl.h"
#include "ops/matmul/product.h"
#include "ops_x.h"

/* Casts of leaves made in this region: parameters are cast once, however often they are used. A
 * cast made under no_grad has no history and serves only there. */
typedef struct cached {
  ac_tensor *leaf, *cast; /* both retained. cast NULL: an op rounded the leaf itself */
  uint32_t version;       /* of the leaf's storage when it was cast */
  ac_dtype dtype;
  bool recorded;
} cached;

typedef struct autocast {
  int depth;
  bool cache;
  cached *slot; /* open addressing by leaf */
  uint32_t mask, n;
} autocast;

static void clear(autocast *a) {
  for (uint32_t i = 0; a->slot != NULL && i <= a->mask; i++) {
    ac_tensor_release(a->slot[i].cast);
    ac_tensor_release(a->slot[i].leaf);
  }
  free(a->slot);
  a->slot = NULL;
  a->mask = a->n = 0;
}

static cached *find(autocast *a, const ac_tensor *leaf, ac_dtype dt) {
  uint32_t p = (uint32_t)(((uintptr_t)leaf >> 4) * 2654435761u) & a->mask;
  while (a->slot[p].leaf != NULL && !(a->slot[p].leaf == leaf && a->slot[p].dtype == dt))
    p = (p + 1) & a->mask;
  return &a->slot[p];
}

static bool room(autocast *a) {
  if (a->slot != NULL && a->n * 2 <= a->mask) return true;
  uint32_t cap = a->slot == NULL ? 256 : (a->mask + 1) * 2;
  autocast b = {.slot = calloc(cap, sizeof(cached)), .mask = cap - 1};
  if (b.slot == NULL) return false;
  for (uint32_t i = 0; a->slot != NULL && i <= a->mask; i++)
    if (a->slot[i].leaf != NULL) *find(&b, a->slot[i].leaf, a->slot[i].dtype) = a->slot[i];
  free(a->slot);
  a->slot = b.slot;
  a->mask = b.mask;
  return true;
}

static ac_tensor *cast_one(ac_ctx *c, autocast *a, ac_tensor *t, ac_dtype dt, ac_expr *x) {
  bool keep =
      a->cache && aci_is_leaf(t) && aci_requires_grad(t) && !(t->flags & ACI_T_VIEW) && room(a);
  if (!keep) return x_cast(x, t, dt);
  cached *s = find(a, t, dt);
  uint32_t version = ac_storage_version(t->storage);
  if (s->cast != NULL && s->version == version && (s->recorded || !c->grad_enabled)) return s->cast;
  ac_tensor *y = x_cast(x, t, dt);
  if (y == NULL) return NULL;
  ac_tensor_retain(y);
  if (s->leaf == NULL) {
    ac_tensor_retain(t);
    a->n++;
  } else {
    ac_tensor_release(s->cast);
  }
  *s = (cached){t, y, version, dt, c->grad_enabled};
  return y;
}

static bool is_f32(ac_dtype d) { return d == AC_F32; }
static bool is_half(ac_dtype d) { return d == AC_F16 || d == AC_BF16; }

/* The dtype for the tensors of this op. AC_DTYPE_COUNT: leave them. */
static ac_dtype target(const ac_ctx *c, const ac_op *op, const ac_value *args) {
  if (op->desc->autocast == AC_CAST_LOWER) return c->autocast_dtype;
  if (op->desc->autocast == AC_CAST_F32) return AC_F32;
  bool f32 = false, half = false;
  for (int i = 0; i < op->n_params; i++) {
    int n = args[i].kind == AC_T_TENSOR ? 1 : args[i].kind == AC_T_TENSORS ? args[i].n : 0;
    for (int j = 0; j < n; j++) {
      ac_dtype d =
          (ac_dtype)(args[i].kind == AC_T_TENSOR ? args[i].tensor : args[i].tensors[j])->dtype;
      f32 |= is_f32(d);
      half |= is_half(d);
    }
  }
  return f32 && half ? AC_F32 : AC_DTYPE_COUNT;
}

static bool eligible(const ac_tensor *t, ac_dtype to) {
  ac_dtype d = (ac_dtype)t->dtype;
  return d != to && (is_f32(d) || is_half(d)); /* f64 and integers are left alone, as in PyTorch */
}

/* From here on a product reads each element of a weight about once. */
enum { MANY_ROWS = 64 };

/* The dtype of the activations that are multiplied with a weight. */
static int64_t rows_of(const ac_op *op, const ac_value *args) {
  int64_t most = 0;
  for (int i = 0; i < op->n_params; i++) {
    const ac_tensor *t = args[i].kind == AC_T_TENSOR ? args[i].tensor : NULL;
    if (t == NULL || (op->desc->weights >> i & 1) || t->ndim < 2 || t->numel == 0) continue;
    const int64_t rows = t->numel / t->shape[t->ndim - 1];
    if (rows > most) most = rows;
  }
  return most;
}

/* Trainable weights go into a product uncast if it rounds them as it reads: no copies that last
 * until backward, and gradients that are never rounded. A weight that is used again in the region,
 * as by a recurrent cell, gets a copy, which is faster to read. Exception: under saved-tensor
 * hooks, because recompute must meet the same tensors again. */
static bool rounded_by_op(const ac_ctx *c, autocast *a, const ac_op *op, const ac_value *args,
                          int i, ac_dtype to) {
  ac_tensor *w = args[i].tensor;
  if (!(op->desc->weights >> i & 1) || to != AC_BF16 || w->dtype != AC_F32) return false;
  if (!c->grad_enabled || !aci_is_leaf(w) || !aci_requires_grad(w)) return false;
  if (!aci_product_rounds(c, w->device) || rows_of(op, args) < MANY_ROWS) return false;
  if (!a->cache || c->saved_hooks != NULL || !room(a)) return true;
  cached *s = find(a, w, to);
  const uint32_t version = ac_storage_version(w->storage);
  if (s->leaf != NULL && s->version == version) return false;
  if (s->leaf == NULL) {
    ac_tensor_retain(w);
    a->n++;
  }
  ac_tensor_release(s->cast);
  *s = (cached){w, NULL, version, to, false};
  return true;
}

static ac_status cast(ac_ctx *c, const ac_op *op, ac_value *args, ac_expr *x, ac_err *e) {
  autocast *a = c->autocast;
  if (op->desc->autocast == AC_CAST_NONE || op->mutates != 0) return AC_OK;
  ac_dtype to = target(c, op, args);
  if (to == AC_DTYPE_COUNT) return AC_OK;
  c->autocast_on = false; /* the casts themselves are not cast */
  for (int i = 0; i < op->n_params && x->st == AC_OK; i++) {
    if (args[i].kind == AC_T_TENSOR && eligible(args[i].tensor, to) &&
        !rounded_by_op(c, a, op, args, i, to))
      args[i].tensor = cast_one(c, a, args[i].tensor, to, x);
    if (args[i].kind == AC_T_TENSORS) {
      int n = args[i].n;
      bool any = false;
      for (int j = 0; j < n; j++) any |= eligible(args[i].tensors[j], to);
      if (!any) continue;
      ac_tensor **list = aci_expr_list(x, n); /* lives as long as the call */
      if (list == NULL) {
        x->st = AC_FAIL(e, OOM, "no memory for a list of %d tensors", n);
        break;
      }
      for (int j = 0; j < n; j++) {
        ac_tensor *t = args[i].tensors[j];
        list[j] = eligible(t, to) ? cast_one(c, a, t, to, x) : t;
      }
      args[i].tensors = list;
    }
  }
  c->autocast_on = true;
  return x->st;
}

static void drop(ac_ctx *c) {
  if (c->autocast != NULL) clear(c->autocast);
  free(c->autocast);
  c->autocast = NULL;
}

ac_status ac_autocast_begin(ac_ctx *c, bool enabled, ac_dtype dtype, bool cache,
                            ac_autocast_state *outer, ac_err *e) {
  if (enabled && dtype != AC_BF16 && dtype != AC_F16)
    return AC_FAIL(e, DTYPE, "autocast lowers to bf16 or f16, not %s", ac_dtype_name(dtype));
  autocast *a = c->autocast;
  if (a == NULL) {
    a = calloc(1, sizeof *a);
    if (a == NULL) return AC_FAIL(e, OOM, "no memory for autocast");
    c->autocast_dtype = AC_BF16;
    a->cache = true;
    c->autocast = a;
    c->autocast_free = drop;
    c->cast = cast;
  }
  *outer = (ac_autocast_state){c->autocast_on, c->autocast_dtype, a->cache};
  a->depth++;
  c->autocast_on = enabled;
  if (enabled) c->autocast_dtype = dtype;
  a->cache = cache;
  return AC_OK;
}

void ac_autocast_end(ac_ctx *c, const ac_autocast_state *outer) {
  autocast *a = c->autocast;
  c->autocast_on = outer->on;
  c->autocast_dtype = outer->dtype;
  a->cache = outer->cache;
  if (--a->depth == 0) clear(a);
}

bool ac_autocast_enabled(const ac_ctx *c) { return c->autocast_on; }
ac_dtype ac_autocast_dtype(const ac_ctx *c) {
  return c->autocast != NULL ? c->autocast_dtype : AC_BF16;
}
