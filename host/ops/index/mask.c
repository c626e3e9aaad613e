/* Masks as runs of bytes: see mask.h. */
#include "ops/index/mask.h"

#include "device/cpu/isa.h"

ac_status aci_broadcast_data(ac_frame *f, const ac_tensor *t, int ndim, const int64_t *shape,
                             const void **data, ac_block **block, ac_err *e) {
  const ac_dtype dt = (ac_dtype)t->dtype;
  const int lead = ndim - t->ndim;
  aci_range src = {.ptr = aci_data(t), .dtype = dt}, dst = {.dtype = dt};
  int64_t n = 1;
  *block = NULL;
  for (int d = 0; d < ndim; d++) {
    n *= shape[d];
    src.stride[d] = d < lead || t->shape[d - lead] != shape[d] ? 0 : t->stride[d - lead];
  }
  *data = src.ptr;
  if (n == 0 || (n == t->numel && aci_is_contiguous(t))) return AC_OK;
  AC_TRY(
      ac_block_alloc(f->device, (size_t)n * aci_dsize(dt), AC_MEM_ACTIVATION, f->stream, block, e));
  dst.ptr = ac_block_ptr(*block);
  aci_contiguous_strides(ndim, shape, dst.stride);
  aci_range_copy_cpu(f->team, ndim, shape, &dst, &src);
  *data = dst.ptr;
  return AC_OK;
}

typedef struct count_job {
  const uint8_t *mask;
  int64_t *first;
} count_job;

AC_ISA_FN(count_bytes, (const uint8_t *restrict m, int64_t n, int64_t *restrict out), (m, n, out)) {
  int64_t sum = 0;
  for (int64_t b = 0; b < n; b += 255) { /* sums of bytes stay bytes */
    int64_t end = n - b < 255 ? n : b + 255;
    uint8_t part[32] = {0};
    int64_t i = b;
    for (; i + 32 <= end; i += 32)
      for (int k = 0; k < 32; k++) part[k] = (uint8_t)(part[k] + (m[i + k] != 0));
    for (int k = 0; k < 32; k++) sum += part[k];
    for (; i < end; i++) sum += m[i] != 0;
  }
  *out = sum;
}

static void count_range(void *arg, int64_t begin, int64_t end) {
  const count_job *j = arg;
  count_bytes(j->mask + begin, end - begin, &j->first[begin / ACI_MASK_CHUNK]);
}

int64_t aci_mask_count(ac_team *team, const uint8_t *mask, int64_t n, int64_t *first) {
  count_job j = {mask, first};
  int64_t total = 0, chunks = aci_mask_chunks(n);
  ac_parallel_for(team, n, ACI_MASK_CHUNK, count_range, &j);
  for (int64_t c = 0; c < chunks; c++) {
    int64_t own = first[c];
    first[c] = total;
    total += own;
  }
  first[chunks] = total;
  return total;
}
