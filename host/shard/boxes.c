/* Ranges of row-major tensors as boxes: a rank holds a range of a parameter's elements, and files
 * name boxes.
 *
 * A range that begins in the middle of a row needs the rest of that row first, then whole rows,
 * then the beginning of the last one. The same holds in every dim, which makes at most ndim - 1
 * heads, one middle and ndim - 1 tails. */
#include <string.h>

#include "shard/shard.h"

/* Steps: how many elements one index of dim d spans. */
static void spans(int ndim, const int64_t *shape, int64_t *step) {
  int64_t n = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    step[d] = n;
    n *= shape[d];
  }
}

/* The largest box that begins at element `from` and ends at `to` or before: whole indices of dim d,
 * the outermost dim that fits and at whose border `from` stands. */
static void next_box(int ndim, const int64_t *shape, const int64_t *step, int64_t from, int64_t to,
                     aci_box *b) {
  int d = ndim - 1;
  while (d > 0 && from % step[d - 1] == 0 && to - from >= step[d - 1]) d--;
  int64_t rest = from;
  for (int k = 0; k < ndim; k++) {
    b->offset[k] = rest / step[k];
    rest %= step[k];
    b->shape[k] = k < d ? 1 : shape[k];
  }
  const int64_t most = shape[d] - b->offset[d], fit = (to - from) / step[d];
  b->shape[d] = most < fit ? most : fit;
  b->count = b->shape[d] * step[d];
}

int aci_boxes(int ndim, const int64_t *shape, int64_t from, int64_t count,
              aci_box out[ACI_MAX_BOXES]) {
  int64_t step[AC_MAX_DIMS];
  if (count <= 0) return 0;
  if (ndim == 0) {
    out[0] = (aci_box){.at = 0, .count = 1};
    return 1;
  }
  spans(ndim, shape, step);
  int n = 0;
  for (int64_t at = from; at < from + count; at += out[n++].count) {
    memset(&out[n], 0, sizeof out[n]);
    next_box(ndim, shape, step, at, from + count, &out[n]);
    out[n].at = at - from;
  }
  return n;
}
