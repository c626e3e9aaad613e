/* index_last: of several index tensors that name positions, which names are the last ones of their
   position. indices (shapes that broadcast to s), extents (of the dims they index) -> y (s), bool
   No gradient. See index_last.h. */
#include "ops/index/index_last.h"

#include "ops/index/advanced_index.h"

ac_tensor *aci_where_last(ac_expr *x, ac_tensor *d, ac_tensor *const *indices, int n,
                          const int64_t *extents, int inner) {
  int64_t s[AC_MAX_DIMS];
  ac_tensor *last = x_index_last(x, indices, n, extents, n);
  if (last == NULL) return NULL;
  const int nd = last->ndim;
  memcpy(s, last->shape, (size_t)nd * 8);
  for (int i = 0; i < inner; i++) s[nd + i] = 1;
  return x_where(x, x_reshape(x, last, s, nd + inner), T(d), F(0));
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_value *extents = &f->args[1];
  aci_advanced_index p;
  AC_TRY(aci_advanced_index_plan(f, 0, -1, extents->n, extents->ints, &p, e));
  return ac_frame_out(f, AC_BOOL, p.n_batch, p.batch, e);
}

/* y[b] = no later b has the same id. ids are below n_dst. */
static ac_status mark(ac_frame *f, uint8_t *y, const int64_t *ids, int64_t n, int64_t n_dst,
                      ac_err *e) {
  ac_block *block;
  if (n == 0) return AC_OK;
  AC_TRY(ac_block_alloc(f->device, (size_t)n_dst, AC_MEM_ACTIVATION, f->stream, &block, e));
  uint8_t *seen = ac_block_ptr(block);
  memset(seen, 0, (size_t)n_dst);
  for (int64_t b = n - 1; b >= 0; b--) {
    y[b] = !seen[ids[b]];
    seen[ids[b]] = 1;
  }
  ac_block_free(block);
  return AC_OK;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_value *extents = &f->args[1];
  int64_t weight[AC_MAX_DIMS];
  aci_advanced_index p;
  const int64_t *ids;
  ac_block *block;
  AC_TRY(aci_advanced_index_plan(f, 0, -1, extents->n, extents->ints, &p, e));
  aci_contiguous_strides(extents->n, extents->ints, weight);
  AC_TRY(aci_advanced_index_offsets(f, &p, 0, extents->ints, weight, &ids, &block, e));
  ac_status st = mark(f, aci_data(f->out[0]), ids, p.n, p.n_dst, e);
  ac_block_free(block);
  return st;
}

AC_OP(index_last, .sig = "index_last(indices: tensors, extents: ints) -> tensor", .shape = shape,
      .cpu = cpu, .nondiff = true, .hidden = true);
