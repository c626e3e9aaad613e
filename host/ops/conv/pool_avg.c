/* Averages over windows. Fixed windows add taps row by row. Adaptive ones add up the rows of a
 * window, then its columns. Called through pool.h. */
#include "device/cpu/isa.h"
#include "ops/conv/pool.h"
#include "ops/index/index.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/slots.h"

typedef struct avg_pool_job {
  const aci_pool *p;
  const ac_tensor *x;
  ac_tensor *y;
  aci_slots slots;
  int64_t plane_n, cb;
  bool whole;
  const int64_t *lo, *hi; /* fixed: per tap of the width the positions that have it inside */
  const double *count;    /* per position of a row: the width its window counts with */
} avg_pool_job;

#define SFX f32
#define T float
#define SUM aci_sum_f32
#include "ops/conv/pool_avg_rows.h"

#define SFX f64
#define T double
#define SUM aci_sum_f64
#include "ops/conv/pool_avg_rows.h"

/* Scratch of a piece: a plane, a row of windows, a row of sums. */
static void forward_piece(void *arg, int64_t begin, int64_t end) {
  avg_pool_job *j = arg;
  const aci_pool *p = j->p;
  const int slot = aci_slots_take(&j->slots);
  char *buf = aci_slots_at(&j->slots, slot), *row = buf + j->plane_n * j->cb,
       *sums = row + p->out[1] * j->cb;
  for (int64_t c = begin; c < end; c++) {
    const void *plane = buf;
    if (j->whole) plane = (const char *)aci_data(j->x) + c * j->plane_n * j->cb;
    else aci_elems_load(j->x, p->ct, c * j->plane_n, j->plane_n, buf);
    for (int64_t o = 0; o < p->out[0]; o++) {
      if (p->ct == ACI_C_F64) mean_f64(j, plane, o, (double *)(void *)row, (double *)(void *)sums);
      else mean_f32(j, plane, o, (float *)(void *)row, (float *)(void *)sums);
      aci_elems_store(j->y, p->ct, (c * p->out[0] + o) * p->out[1], p->out[1], row);
    }
  }
  aci_slots_give(&j->slots, slot);
}

static void backward_piece(void *arg, int64_t begin, int64_t end) {
  avg_pool_job *j = arg;
  const aci_pool *p = j->p;
  const int slot = aci_slots_take(&j->slots);
  char *buf = aci_slots_at(&j->slots, slot), *row = buf + j->plane_n * j->cb,
       *sums = row + p->out[1] * j->cb;
  for (int64_t c = begin; c < end; c++) {
    char *dx = j->whole ? (char *)aci_data(j->y) + c * j->plane_n * j->cb : buf;
    memset(dx, 0, (size_t)(j->plane_n * j->cb));
    for (int64_t o = 0; o < p->out[0]; o++) {
      aci_elems_load(j->x, p->ct, (c * p->out[0] + o) * p->out[1], p->out[1], row);
      if (p->ct == ACI_C_F64)
        back_f64(j, (double *)(void *)dx, o, (double *)(void *)row, (double *)(void *)sums);
      else back_f32(j, (float *)(void *)dx, o, (float *)(void *)row, (float *)(void *)sums);
    }
    if (!j->whole) aci_elems_store(j->y, p->ct, c * j->plane_n, j->plane_n, dx);
  }
  aci_slots_give(&j->slots, slot);
}

static ac_status over_planes(ac_frame *f, avg_pool_job *j, ac_range_fn fn, ac_err *e) {
  const aci_pool *p = j->p;
  const int64_t taps = p->adaptive ? 0 : p->k[1];
  ac_block *block = NULL;
  j->plane_n = p->in[0] * p->in[1];
  j->cb = (int64_t)aci_ctype_bytes(p->ct);
  AC_TRY(ac_block_alloc(f->device, (size_t)(2 * taps + p->out[1] + 1) * 8, AC_MEM_ACTIVATION,
                        f->stream, &block, e));
  int64_t *lo = ac_block_ptr(block), *hi = lo + taps;
  double *count = (double *)(hi + taps);
  for (int64_t q = 0; q < taps; q++) {
    const int64_t off = q - p->pad[1], s = p->stride[1];
    lo[q] = off >= 0 ? 0 : (-off + s - 1) / s;
    hi[q] = off >= p->in[1] ? 0 : (p->in[1] - 1 - off) / s + 1;
    if (hi[q] > p->out[1]) hi[q] = p->out[1];
  }
  for (int64_t i = 0; i < p->out[1]; i++)
    count[i] = p->divisor != 0 ? 1 : (double)aci_pool_extent(p, 1, i);
  j->lo = lo;
  j->hi = hi;
  j->count = count;
  const int64_t work = p->out[0] * p->out[1] * (p->adaptive ? 2 : p->k[0] * p->k[1]) + j->plane_n;
  ac_status st = aci_slots_open(&j->slots, f, p->planes,
                                (size_t)(j->plane_n + p->out[1] + p->in[1]) * (size_t)j->cb, e);
  if (st == AC_OK) {
    ac_parallel_for(f->team, p->planes, work >= 1 << 15 ? 1 : (1 << 15) / (work + 1) + 1, fn, j);
    aci_slots_close(&j->slots);
  }
  ac_block_free(block);
  return st;
}

static bool computed_as_stored(const aci_pool *p) {
  return p->dtype == AC_F32 || p->dtype == AC_F64;
}

ac_status aci_pool_avg(ac_frame *f, const aci_pool *p, const ac_tensor *x, ac_tensor *y,
                       ac_err *e) {
  avg_pool_job j = {.p = p, .x = x, .y = y, .whole = computed_as_stored(p) && aci_is_contiguous(x)};
  return y->numel == 0 ? AC_OK : over_planes(f, &j, forward_piece, e);
}

ac_status aci_pool_avg_backward(ac_frame *f, const aci_pool *p, const ac_tensor *dy, ac_tensor *dx,
                                ac_err *e) {
  avg_pool_job j = {.p = p, .x = dy, .y = dx, .whole = computed_as_stored(p)};
  return dx->numel == 0 ? AC_OK : over_planes(f, &j, backward_piece, e);
}
