/* Max pools: rows of windows at a time. The positions of the largest elements are found again in
 * the backward pass, which costs one more look at x and saves a tensor of indices. Called through
 * pool.h. */
#include <math.h>

#include "device/cpu/isa.h"
#include "ops/conv/pool.h"
#include "ops/index/index.h"
#include "ops/reduce/slots.h"

enum { LANES = 16 };

typedef struct max_pool_job max_pool_job;
/* Largest elements of output row o: m in the compute type, which cols (a row of the input) helps
 * with. */
typedef void (*values_fn)(const max_pool_job *j, const void *plane, int64_t o, void *m, void *cols);
/* The same and their positions in the plane, as integers of the compute type's width. m and
 * position have room for `padded`. */
typedef void (*positions_fn)(const max_pool_job *j, const void *plane, int64_t o, void *m,
                             void *position, void *rows);

struct max_pool_job {
  const aci_pool *p;
  const ac_tensor *x, *t; /* t: dy, or the tensor to take from */
  ac_tensor *y, *indices;
  values_fn values;
  positions_fn positions;
  aci_slots slots;
  int64_t plane_n, cb;
  bool plain;                   /* tensors hold the compute type */
  int64_t padded;               /* positions of a row, rounded up to LANES */
  int64_t residues, sorted_len; /* of a row that is sorted by residue, and the values for each */
  /* fixed windows: per tap of the width the positions [lo, hi) that have it inside. Per position
   * the first tap inside */
  const int64_t *lo, *hi, *first;
};

/* Larger elements and NaN replace the current one, so that the first of equals stays. */
#define WINS(v, m) (((v) > (m)) | ((v) != (v)))

#define NAME f32
#define T float
#define I int32_t
#include "ops/conv/pool_max_rows.h"

#define NAME f64
#define T double
#define I int64_t
#include "ops/conv/pool_max_rows.h"

/* ---- pieces: planes [begin, end) ---- */
typedef struct space {
  int slot;
  /* two planes, two rows of the output, rows of the input */
  char *plane, *other, *m, *position, *cols;
} space;

static space space_take(max_pool_job *j) {
  space s = {.slot = aci_slots_take(&j->slots)};
  s.plane = aci_slots_at(&j->slots, s.slot);
  s.other = s.plane + j->plane_n * j->cb;
  s.m = s.other + j->plane_n * j->cb;
  s.position = s.m + j->padded * j->cb;
  s.cols = s.position + j->padded * j->cb;
  return s;
}

/* n elements of t from `begin` on: in place, or copied to buf. */
static const void *load(const max_pool_job *j, const ac_tensor *t, int64_t begin, int64_t n,
                        char *buf) {
  if (j->plain && aci_is_contiguous(t)) return (const char *)aci_data(t) + begin * j->cb;
  aci_elems_load(t, j->p->ct, begin, n, buf);
  return buf;
}
/* The place for n elements of y: in y, or in buf. */
static char *plane_buffer(const max_pool_job *j, int64_t begin, char *buf) {
  return j->plain ? (char *)aci_data(j->y) + begin * j->cb : buf;
}
static void store(const max_pool_job *j, int64_t begin, int64_t n, const char *buf) {
  if (!j->plain) aci_elems_store(j->y, j->p->ct, begin, n, buf);
}

static void forward_piece(void *arg, int64_t begin, int64_t end) {
  max_pool_job *j = arg;
  const aci_pool *p = j->p;
  const int64_t width = p->out[1];
  space s = space_take(j);
  for (int64_t c = begin; c < end; c++) {
    const void *plane = load(j, j->x, c * j->plane_n, j->plane_n, s.plane);
    for (int64_t o = 0; o < p->out[0]; o++) {
      const int64_t at = (c * p->out[0] + o) * width;
      if (j->values != NULL) {
        char *m = plane_buffer(j, at, s.m);
        j->values(j, plane, o, m, s.cols);
        store(j, at, width, m);
      } else {
        j->positions(j, plane, o, s.m, s.position, s.cols);
        aci_elems_store(j->y, p->ct, at, width, s.m);
      }
      if (j->indices == NULL) continue;
      if (p->ct == ACI_C_F64) f64_widen((int64_t *)aci_data(j->indices) + at, s.position, width);
      else f32_widen((int64_t *)aci_data(j->indices) + at, s.position, width);
    }
  }
  aci_slots_give(&j->slots, s.slot);
}

static void backward_piece(void *arg, int64_t begin, int64_t end) {
  max_pool_job *j = arg;
  const aci_pool *p = j->p;
  const int64_t width = p->out[1];
  space s = space_take(j);
  for (int64_t c = begin; c < end; c++) {
    const void *plane = load(j, j->x, c * j->plane_n, j->plane_n, s.plane);
    char *dx = plane_buffer(j, c * j->plane_n, s.other);
    memset(dx, 0, (size_t)(j->plane_n * j->cb));
    for (int64_t o = 0; o < p->out[0]; o++) {
      j->positions(j, plane, o, s.m, s.position, s.cols);
      const void *dy = load(j, j->t, (c * p->out[0] + o) * width, width, s.m);
      if (p->ct == ACI_C_F64) f64_scatter(dx, dy, s.position, width);
      else f32_scatter(dx, dy, s.position, width);
    }
    store(j, c * j->plane_n, j->plane_n, dx);
  }
  aci_slots_give(&j->slots, s.slot);
}

static void take_piece(void *arg, int64_t begin, int64_t end) {
  max_pool_job *j = arg;
  const aci_pool *p = j->p;
  const int64_t width = p->out[1];
  space s = space_take(j);
  for (int64_t c = begin; c < end; c++) {
    const void *plane = load(j, j->x, c * j->plane_n, j->plane_n, s.plane);
    const void *t = load(j, j->t, c * j->plane_n, j->plane_n, s.other);
    for (int64_t o = 0; o < p->out[0]; o++) {
      const int64_t at = (c * p->out[0] + o) * width;
      j->positions(j, plane, o, s.m, s.position, s.cols);
      char *m = plane_buffer(j, at, s.m);
      if (p->ct == ACI_C_F64) f64_pick(m, t, s.position, width);
      else f32_pick(m, t, s.position, width);
      store(j, at, width, m);
    }
  }
  aci_slots_give(&j->slots, s.slot);
}

/* ---- entry ---- */
/* Runs fn over all planes (one channel of one image each). Fixed windows get tables over the width:
 * per tap the range of results that have it inside, and per result its first tap inside. Scratch
 * per task: two planes, two rows of results, one row of the input. */
static ac_status over_planes(ac_frame *f, max_pool_job *j, ac_range_fn fn, ac_err *e) {
  const aci_pool *p = j->p;
  const bool wide = p->ct == ACI_C_F64;
  ac_block *block = NULL;
  if (p->planes == 0) return AC_OK;
  j->plane_n = p->in[0] * p->in[1];
  if (!wide && j->plane_n > INT32_MAX)
    return AC_FAIL(e, UNSUPPORTED, "planes of more than %d elements need f64, these have %lld",
                   INT32_MAX, (long long)j->plane_n);
  j->cb = (int64_t)aci_ctype_bytes(p->ct);
  j->plain = p->dtype == AC_F32 || p->dtype == AC_F64;
  j->padded = (p->out[1] + LANES - 1) / LANES * LANES;
  const int64_t span = p->dil[1] * (p->k[1] - 1), step = p->stride[1];
  j->residues = span + 1 < step ? span + 1 : step;
  j->sorted_len = j->padded + span / step;
  j->positions =
      p->adaptive ? (wide ? f64_adaptive : f32_adaptive) : (wide ? f64_positions : f32_positions);
  if (!p->adaptive && j->indices == NULL) j->values = wide ? f64_values : f32_values;
  if (!p->adaptive) {
    AC_TRY(ac_block_alloc(f->device, (size_t)(2 * p->k[1] + p->out[1]) * 8, AC_MEM_ACTIVATION,
                          f->stream, &block, e));
    int64_t *lo = ac_block_ptr(block), *hi = lo + p->k[1], *first = hi + p->k[1];
    for (int64_t q = 0; q < p->k[1]; q++) {
      const int64_t off = q * p->dil[1] - p->pad[1], s = p->stride[1];
      lo[q] = off >= 0 ? 0 : (-off + s - 1) / s;
      hi[q] = off >= p->in[1] ? 0 : (p->in[1] - 1 - off) / s + 1;
      if (hi[q] > p->out[1]) hi[q] = p->out[1];
    }
    for (int64_t i = 0; i < p->out[1]; i++) {
      const int64_t start = i * p->stride[1] - p->pad[1];
      first[i] = start >= 0 ? start : start + (-start + p->dil[1] - 1) / p->dil[1] * p->dil[1];
    }
    j->lo = lo;
    j->hi = hi;
    j->first = first;
  }
  const int64_t work = p->out[0] * p->out[1] * (p->adaptive ? 4 : p->k[0] * p->k[1]) + j->plane_n;
  const int64_t rows =
      p->in[1] > j->residues * j->sorted_len ? p->in[1] : j->residues * j->sorted_len;
  size_t bytes = (size_t)(2 * j->plane_n + 2 * j->padded + rows) * (size_t)j->cb;
  ac_status st = aci_slots_open(&j->slots, f, p->planes, bytes, e);
  if (st == AC_OK) {
    ac_parallel_for(f->team, p->planes, work >= 1 << 15 ? 1 : (1 << 15) / (work + 1) + 1, fn, j);
    aci_slots_close(&j->slots);
  }
  ac_block_free(block);
  return st;
}

ac_status aci_pool_max(ac_frame *f, const aci_pool *p, const ac_tensor *x, ac_tensor *values,
                       ac_tensor *indices, ac_err *e) {
  max_pool_job j = {.p = p, .x = x, .y = values, .indices = indices};
  return values->numel == 0 ? AC_OK : over_planes(f, &j, forward_piece, e);
}

ac_status aci_pool_max_backward(ac_frame *f, const aci_pool *p, const ac_tensor *dy,
                                const ac_tensor *x, ac_tensor *dx, ac_err *e) {
  max_pool_job j = {.p = p, .x = x, .t = dy, .y = dx};
  return dx->numel == 0 ? AC_OK : over_planes(f, &j, backward_piece, e);
}

ac_status aci_pool_max_take(ac_frame *f, const aci_pool *p, const ac_tensor *t, const ac_tensor *x,
                            ac_tensor *y, ac_err *e) {
  max_pool_job j = {.p = p, .x = x, .t = t, .y = y};
  return y->numel == 0 ? AC_OK : over_planes(f, &j, take_piece, e);
}
