/* Reductions that wait: see fuse.h. */
#include <stdlib.h>

#include "ops/core/fuse_impl.h"

const int aci_fuse_reduces = 0;

static bool is_float(int dt) { return dt == AC_F32 || dt == AC_BF16 || dt == AC_F16; }

/* Rows that lie one after the other, and fit a pass. */
static bool by_rows(const aci_reduce_plan *p) {
  return p->n_red == 1 && p->red_stride[0] == 1 && p->n_reduced >= ACI_FUSE_COLS_LEAST &&
         p->n_reduced <= ACI_FUSE_COLS_MOST && p->n_out > 1 && p->n_keep == 1 &&
         p->keep_stride[0] == p->n_reduced;
}

/* Whether the kernel asks for runs of elements that are worth a pass each: whole lists, or pieces
 * of rows. */
static bool by_runs(const aci_reduce_plan *p) {
  const int k = p->n_keep - 1;
  if (p->n_red == 1 && p->red_stride[0] == 1) return p->n_reduced >= ACI_FUSE_COLS_LEAST;
  return p->keep_stride[k] == 1 && p->keep_shape[k] >= ACI_FUSE_COLS_LEAST &&
         p->red_stride[p->n_red - 1] != 1;
}

/* The node of x if all of it is wanted, element by element. */
static aci_fuse_node *whole(const ac_tensor *x) {
  aci_fuse_node *n = aci_fuse_node_of(x->storage);
  const bool is = n != NULL && !n->lost && n->kind == ACI_FUSE_MAP && x->offset == 0 &&
                  n->numel == x->numel && n->dt == (ac_dtype)x->dtype && n->depth < ACI_FUSE_DEPTH;
  return is ? n : NULL;
}

static aci_fuse_node *make(aci_fuse *z, const ac_frame *f, const ac_tensor *x,
                           const aci_reduce_plan *p, const aci_fuse_reduction *how,
                           const ac_tensor *o) {
  aci_fuse_node *child = whole(x);
  if (how->row == NULL || p->ct != ACI_C_F32 || x != f->args[0].tensor || !is_float(x->dtype) ||
      x->numel < ACI_FUSE_FEWEST || !aci_is_contiguous(x) || !aci_fuse_can_wait(z, f, o))
    return NULL;
  const bool rows = by_rows(p) && (child != NULL || aci_fuse_node_of(x->storage) == NULL);
  if (!rows && (child == NULL || !by_runs(p))) return NULL;
  aci_fuse_node *n = calloc(1, sizeof *n);
  if (n == NULL) return NULL;
  *n = (aci_fuse_node){.owner = z,
                       .out = o->storage,
                       .kind = rows ? ACI_FUSE_REDUCED : ACI_FUSE_WALK,
                       .n_in = 1,
                       .numel = o->numel,
                       .inner = x->numel,
                       .rows = p->n_out,
                       .cols = p->n_reduced,
                       .how = *how,
                       .dt = (ac_dtype)o->dtype,
                       .at = -1,
                       .slot = -1};
  if (!rows && (n->plan = malloc(sizeof *n->plan)) == NULL) {
    free(n);
    return NULL;
  }
  if (!rows) *n->plan = *p;
  n->keep = (f->desc->save & AC_SAVE_OUT(0)) != 0 && aci_fuse_leads_to_gradient(f);
  n->in[0] = (aci_fuse_operand){.begin = x->offset * (int64_t)aci_dsize((ac_dtype)x->dtype),
                                .dt = (ac_dtype)x->dtype,
                                .linear = true,
                                .step = 1};
  aci_fuse_give_operand(f, n, 0, child);
  return n;
}

ac_status aci_fuse_reduce(ac_frame *f, const ac_tensor *x, const aci_reduce_plan *p,
                          const aci_fuse_reduction *how, ac_tensor *out, ac_err *e) {
  aci_fuse *z =
      f->ctx->n_observers == 0 || f->device->kind != AC_DEV_CPU ? NULL : aci_fuse_of(f->ctx);
  if (z == NULL) return how->walk(f, p, how, out, e);
  aci_fuse_node *n = make(z, f, x, p, how, out);
  if (n != NULL) {
    aci_fuse_wait(n);
    return AC_OK;
  }
  AC_TRY(aci_fuse_settle_operands(f, e));
  aci_reduce_plan there = *p; /* made before its operand had memory */
  there.ptr = aci_data(x);
  return how->walk(f, &there, how, out, e);
}

static ac_status walk(aci_fuse_node *n, ac_err *e) {
  aci_fuse *z = n->owner;
  aci_fuse_node *child = aci_fuse_node_of(n->in[0].storage);
  aci_reduce_plan plan = *n->plan;
  aci_fuse_pass p = {.taken = child};
  if (child != NULL) {
    p.numel = child->numel;
    n->walking = true;
    if (aci_fuse_collect(child, &p) && p.cols == 0 && aci_fuse_lay_out(&p, NULL)) {
      aci_fuse_locate(&p);
      aci_fuse_codes_find(z->codes, &p);
      /* its operands are read in no order that is known here */
      const ac_status st = aci_fuse_allocate_pass(&p, false, false, e);
      if (st != AC_OK) {
        aci_fuse_forget(&p);
        n->walking = false;
        return st;
      }
      plan.source = aci_fuse_fill;
      plan.from = &p;
    } else { /* more than a pass, or rows of one: it is computed as for any reader */
      aci_fuse_forget(&p);
      const ac_status st = aci_fuse_compute_node(child, e);
      n->walking = false;
      AC_TRY(st);
    }
    n->walking = false;
  }
  if (plan.source == NULL) plan.ptr = (const char *)n->in[0].storage->ptr + n->in[0].begin;
  ac_frame f = {.ctx = z->ctx, .team = z->ctx->team, .device = n->out->device};
  const ac_tensor out = {
      .dtype = (uint8_t)n->dt, .numel = n->numel, .storage = n->out, .device = n->out->device};
  const ac_status st = n->how.walk(&f, &plan, &n->how, (ac_tensor *)(uintptr_t)&out, e);
  aci_fuse_node *node[ACI_FUSE_MOST + 1];
  int n_nodes = p.n;
  memcpy(node, p.node, sizeof p.node);
  aci_fuse_forget(&p);
  if (st != AC_OK) return st;
  node[n_nodes++] = n;
  n->write = true;
  z->n.generated += p.code != NULL;
  z->n.passes++;
  aci_fuse_done(z, node, n_nodes);
  return AC_OK;
}

ac_status aci_fuse_walk(aci_fuse_node *n, ac_err *e) {
  /* computing n's operand may free memory, including n if nobody else holds it */
  ac_storage *s = n->out;
  ac_storage_retain(s);
  const ac_status st = walk(n, e);
  ac_storage_release(s);
  return st;
}
