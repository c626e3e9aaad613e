/* Lists of tensors on CUDA: tables of pointers for kernels, and copies of non-contiguous tensors.
 * See lists.cuh. */
#include "ops/optim/lists.cuh"

#include "ops/index/range.cuh"

enum { ALIGN = 256 };
static size_t rounded(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

/* Bytes of the copy of a tensor, 0: it needs none. */
static size_t copy_bytes(const ac_tensor *t) {
  return aci_is_contiguous(t) ? 0 : rounded((size_t)t->numel * aci_dsize((ac_dtype)t->dtype));
}

static ac_status copy(const aci_lists *l, const ac_tensor *t, size_t at, bool back, ac_err *e) {
  aci_range run = {}, own = {};
  run.ptr = (char *)l->room->ptr + l->front + at;
  own.ptr = aci_data(t);
  run.dtype = own.dtype = (ac_dtype)t->dtype;
  int64_t step = 1;
  for (int d = t->ndim - 1; d >= 0; step *= t->shape[d--]) {
    run.stride[d] = step;
    own.stride[d] = t->stride[d];
  }
  return aci_cuda_copy_range(l->f, t->ndim, t->shape, back ? &own : &run, back ? &run : &own, e);
}

/* Tensor by tensor, list by list: the order in which copies lie. */
static ac_status copy_all(const aci_lists *l, unsigned mask, bool back, ac_err *e) {
  size_t at = 0;
  for (int i = 0; i < l->n; i++)
    for (int k = 0; k < l->n_lists; k++) {
      const size_t bytes = l->list[k] != NULL ? copy_bytes(l->list[k][i]) : 0;
      if (bytes > 0 && (mask >> k & 1)) AC_TRY(copy(l, l->list[k][i], at, back, e));
      at += bytes;
    }
  return AC_OK;
}

ac_status aci_lists_open(aci_lists *l, size_t front, ac_err *e) {
  size_t bytes = 0;
  l->front = rounded(front);
  l->room = NULL;
  for (int i = 0; i < l->n; i++)
    for (int k = 0; k < l->n_lists; k++)
      if (l->list[k] != NULL) bytes += copy_bytes(l->list[k][i]);
  if (l->front + bytes == 0) return AC_OK;
  AC_TRY(
      ac_block_alloc(l->f->device, l->front + bytes, AC_MEM_ACTIVATION, l->f->stream, &l->room, e));
  const ac_status st = bytes > 0 ? copy_all(l, ~0u, false, e) : AC_OK;
  if (st == AC_OK) return AC_OK;
  ac_block_free(l->room);
  l->room = NULL;
  return st;
}

ac_status aci_lists_back(const aci_lists *l, unsigned writes, ac_err *e) {
  return copy_all(l, writes, true, e);
}

void *aci_lists_data(const aci_lists *l, int k, int i, size_t *at) {
  const ac_tensor *x = l->list[k][i];
  const size_t bytes = copy_bytes(x), here = *at;
  *at += bytes;
  return bytes > 0 ? (char *)l->room->ptr + l->front + here : aci_data(x);
}

void aci_lists_batch(const aci_lists *l, int *i, size_t *at, aci_list_batch *b) {
  memset(b, 0, sizeof *b);
  for (; *i < l->n && b->tensors < ACI_LIST_MOST; ++*i) {
    bool wide = false;
    for (int k = 0; k < l->n_lists; k++)
      wide = wide || (l->list[k] != NULL && l->list[k][*i]->dtype == AC_F64);
    if (b->tensors > 0 && wide != b->wide) break; /* one width a launch */
    b->wide = wide;
    const int t = b->tensors++;
    b->fours[t] = true;
    for (int k = 0; k < l->n_lists; k++) {
      if (l->list[k] == NULL) continue;
      b->ptr[k][t] = aci_lists_data(l, k, *i, at);
      b->dt[k][t] = l->list[k][*i]->dtype;
      b->fours[t] =
          b->fours[t] && (uintptr_t)b->ptr[k][t] % (4 * aci_dsize((ac_dtype)b->dt[k][t])) == 0;
    }
    b->n[t] = l->list[0][*i]->numel;
    b->scale[t] = l->scale != NULL ? l->scale[*i] : 1;
    b->first_piece[t + 1] =
        b->first_piece[t] + (int)((b->n[t] + ACI_LIST_PIECE - 1) / ACI_LIST_PIECE);
  }
}
