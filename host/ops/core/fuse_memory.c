/* Memory of waiting results (fuse.h). A storage has none until a pass writes it. Intermediate
 * results of a pass never have any. If an operand has no reader after the pass and has the result's
 * layout, the result takes its memory: every element is read before it is written. So a chain never
 * takes more memory than its results and the tensors that gradients read. */
#include "ops/core/fuse_impl.h"

bool aci_fuse_promise(const ac_frame *f, ac_tensor *t) {
  const aci_fuse *z = aci_fuse_of(f->ctx);
  ac_err e;
  if (z == NULL || f->n_out != 1 || f->desc->data == &aci_fuse_reduces || t->layout != NULL ||
      t->numel < aci_fuse_fewest(f->device) ||
      (t->dtype != AC_F32 && t->dtype != AC_BF16 && t->dtype != AC_F16) || !aci_is_contiguous(t) ||
      !aci_fuse_can_wait(z, f, t))
    return false;
  return ac_storage_provided(f->device, (size_t)t->numel * aci_dsize((ac_dtype)t->dtype),
                             &aci_fuse_waiting, NULL, &t->storage, &e) == AC_OK;
}

/* The storage has a block, which holds the device from now on. */
static void take_block(ac_storage *s, ac_block *b) {
  s->block = b;
  s->ptr = ac_block_ptr(b);
  ac_device_release(s->device);
}

ac_status aci_fuse_allocate(ac_storage *s, ac_err *e) {
  ac_block *b = NULL;
  if (s->block != NULL || s->provider != &aci_fuse_waiting) return AC_OK;
  AC_TRY(ac_block_alloc(s->device, s->bytes, AC_MEM_ACTIVATION, NULL, &b, e));
  take_block(s, b);
  if (s->impl == NULL) s->provider = NULL; /* it does not wait */
  return AC_OK;
}

void aci_fuse_locate(aci_fuse_pass *p) {
  for (int i = 0; i < p->n; i++)
    for (int k = 0; k < p->node[i]->n_in; k++) {
      aci_fuse_operand *o = &p->node[i]->in[k];
      if (o->storage != NULL && p->from[i][k] == NULL)
        o->ptr = (const char *)o->storage->ptr + o->begin;
    }
}

/* ---- taking ---- */
/* How many operands of nodes that are freed after the pass have s, and the last node that reads it.
 * *alike: all read it with the result's layout. */
static int readers(const aci_fuse_pass *p, const bool *ends, const ac_storage *s, int *last,
                   bool *alike) {
  int n = 0;
  *alike = true;
  for (int i = 0; i < p->n; i++)
    for (int k = 0; k < p->node[i]->n_in; k++) {
      const aci_fuse_operand *o = &p->node[i]->in[k];
      if (o->storage != s) continue;
      *alike &= o->linear && o->begin == 0 && p->node[i]->kind != ACI_FUSE_ROW_MAP;
      n += ends[i];
      *last = i;
    }
  return n;
}

/* The operand of node `at`, or of one before it, whose memory it may have. */
static ac_storage *find_operand(const aci_fuse_pass *p, const bool *ends, int at) {
  const aci_fuse_node *n = p->node[at];
  for (int i = 0; i <= at; i++)
    for (int k = 0; k < p->node[i]->n_in; k++) {
      const aci_fuse_operand *o = &p->node[i]->in[k];
      ac_storage *s = o->storage;
      int last = 0;
      bool alike;
      if (s == NULL || p->from[i][k] != NULL || o->dt != n->dt) continue;
      if (s->block == NULL || s->provider != NULL || s->layout != NULL || s->free_fn != NULL ||
          s->bytes != n->out->bytes)
        continue;
      const int n_ends = readers(p, ends, s, &last, &alike);
      if (alike && last <= at && atomic_load_explicit(&s->ref, memory_order_acquire) == n_ends)
        return s;
    }
  return NULL;
}

static void move_block(ac_storage *from, ac_storage *to) {
  to->block = from->block;
  to->ptr = from->ptr;
  from->block = NULL;
  from->ptr = NULL; /* the reference to the device that `to` had is from's now */
}

ac_status aci_fuse_allocate_pass(aci_fuse_pass *p, bool all, bool take, ac_err *e) {
  /* freed after the pass: written, or with no reader but those that are */
  bool ends[ACI_FUSE_MOST];
  for (int i = p->n - 1; i >= 0; i--) {
    aci_fuse_node *n = p->node[i];
    int last;
    bool alike;
    ends[i] = false;
    ends[i] = n->write || atomic_load_explicit(&n->out->ref, memory_order_acquire) ==
                              readers(p, ends, n->out, &last, &alike);
    n->memory_of = NULL;
  }
  for (int i = 0; i < p->n; i++) {
    aci_fuse_node *n = p->node[i];
    if ((!n->write && !all) || n->out->block != NULL) continue;
    ac_storage *s = take && n->write && n->kind == ACI_FUSE_MAP ? find_operand(p, ends, i) : NULL;
    const ac_status st = s == NULL ? aci_fuse_allocate(n->out, e) : AC_OK;
    if (s != NULL) {
      move_block(s, n->out);
      n->memory_of = s;
    }
    if (st != AC_OK) {
      aci_fuse_give_back(p);
      return st;
    }
  }
  for (int i = 0; i < p->n; i++) /* results are read there */
    for (int k = 0; k < p->node[i]->n_in; k++)
      if (p->from[i][k] != NULL) p->node[i]->in[k].ptr = p->from[i][k]->out->ptr;
  return AC_OK;
}

void aci_fuse_give_back(aci_fuse_pass *p) {
  for (int i = 0; i < p->n; i++) {
    if (p->node[i]->memory_of != NULL) move_block(p->node[i]->out, p->node[i]->memory_of);
    p->node[i]->memory_of = NULL;
  }
}
