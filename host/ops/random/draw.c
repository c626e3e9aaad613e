/* The words of a draw and their way into a tensor: see draw.h. */
#include "ops/random/draw.h"

#include "device/cpu/isa.h"

enum { DRAW_GRAIN = 16 * ACI_DRAW_ROW };

AC_ISA_FN(words, (uint64_t key, uint64_t call, uint64_t first, int64_t n, uint32_t *restrict w),
          (key, call, first, n, w)) {
  for (int64_t i = 0; i < n; i++) {
    aci_u32x4 r = aci_philox(key, first + (uint64_t)i, call);
    w[4 * i] = r.v[0];
    w[4 * i + 1] = r.v[1];
    w[4 * i + 2] = r.v[2];
    w[4 * i + 3] = r.v[3];
  }
}

void aci_draw_words(const aci_draw *d, uint64_t first, int64_t n, uint32_t *w) {
  words(d->key, d->call, first, n, w);
}

ac_status aci_draw_ranges(const ac_generator *rng_counter, int ndim, int64_t *first,
                          int64_t *extent, ac_err *e) {
  if (ndim > 0) first[0] += rng_counter->row0;
  for (int i = 0; i < AC_DRAW_RANGES && rng_counter->range[i].dim != 0; i++) {
    const ac_draw_range *r = &rng_counter->range[i];
    const int d = r->dim - 1;
    if (d >= ndim)
      return AC_FAIL(e, SHAPE, "a random range of dim %d, but there are %d dims", r->dim, ndim);
    if (r->at < 0 || extent[d] > r->of - r->at)
      return AC_FAIL(e, SHAPE,
                     "positions %lld .. %lld of dim %d do not lie in the %lld of the whole",
                     (long long)r->at, (long long)(r->at + extent[d]), r->dim, (long long)r->of);
    first[d] += r->at;
    extent[d] = r->of;
  }
  return AC_OK;
}

typedef struct draw_job {
  const ac_tensor *x;
  aci_draw draw;
  aci_ctype ct;
  int per_block;
  aci_draw_fn fn;
  const void *params;
} draw_job;

static void fill_range(void *arg, int64_t begin, int64_t end) {
  const draw_job *j = arg;
  _Alignas(64) uint32_t w[ACI_DRAW_ROW * 2];
  _Alignas(64) char row[ACI_DRAW_ROW * 8];
  for (int64_t b = begin; b < end; b += ACI_DRAW_ROW) { /* b is a multiple of per_block */
    int64_t m = end - b < ACI_DRAW_ROW ? end - b : ACI_DRAW_ROW,
            blocks = (m + j->per_block - 1) / j->per_block;
    aci_draw_words(&j->draw, (uint64_t)(b / j->per_block), blocks, w);
    j->fn(blocks * j->per_block, w, j->params, row);
    aci_elems_store(j->x, j->ct, b, m, row);
  }
}

void aci_draw_fill(ac_frame *f, const ac_tensor *x, aci_ctype ct, int per_block, aci_draw_fn fn,
                   const void *params) {
  draw_job j = {x, aci_draw_of(&f->rng_counter), ct, per_block, fn, params};
  if (x->numel == 0) return;
  if (x->numel <= DRAW_GRAIN) fill_range(&j, 0, x->numel);
  else ac_parallel_for(f->team, x->numel, DRAW_GRAIN, fill_range, &j);
}

void aci_draw_no_grad(ac_grad *g) { (void)g; }
