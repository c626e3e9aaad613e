/* Kernels of grid_sample.h. A block of positions computes its elements and weights once, and uses
 * them for every channel. */
#include "ops/index/grid_sample.h"

#include <math.h>

#include "device/cpu/isa.h"
#include "ops/index/index.h"
#include "ops/reduce/slots.h"

enum { POSITIONS = 128, CHANNELS = 8, TAPS = ACI_GRID_TAPS, DIMS = ACI_GRID_DIMS };

ac_status aci_grid_check(const ac_frame *f, const int64_t *x_shape, int ndim, const ac_tensor *grid,
                         int at, ac_err *e) {
  char a[128], b[128];
  if ((ndim != 4 && ndim != 5) || grid->ndim != ndim || grid->shape[0] != x_shape[0] ||
      grid->shape[ndim - 1] != ndim - 2)
    return AC_FAIL(
        e, SHAPE,
        "a grid of shape %s does not fit %s; give x (N, C, H, W) and grid (N, H', W', 2), or x (N, "
        "C, D, H, W) and grid (N, D', H', W', 3)",
        aci_shape_str(grid->ndim, grid->shape, a, sizeof a),
        aci_shape_str(ndim, x_shape, b, sizeof b));
  const aci_grid g = aci_grid_of(f, x_shape, ndim, grid->shape, at);
  if (g.plane == 0)
    return AC_FAIL(e, SHAPE, "there is nothing to sample in x of shape %s",
                   aci_shape_str(ndim, x_shape, b, sizeof b));
  if (g.plane > INT32_MAX)
    return AC_FAIL(e, UNSUPPORTED, "channels of more than %d elements, these have %lld", INT32_MAX,
                   (long long)g.plane);
  return AC_OK;
}

#define T float
#define SFX f32
#define GRID_FLOOR floorf
#define GRID_MOD fmodf
#define GRID_ROUND nearbyintf
#include "ops/index/grid_taps.h"

#define T double
#define SFX f64
#define GRID_FLOOR floor
#define GRID_MOD fmod
#define GRID_ROUND nearbyint
#include "ops/index/grid_taps.h"

typedef struct grid_job {
  const aci_grid *g;
  aci_ctype ct;
  int64_t cb, blocks, groups; /* bytes of an element, blocks of positions, groups of channels */
  const ac_tensor *grid, *dy; /* any strides */
  const char *x;              /* contiguous, in the compute type */
  ac_tensor *out;
  bool plain; /* out holds the compute type */
  aci_slots slots;
} grid_job;

/* The scratch of a piece: weights, slopes, two rows of values, coordinates, elements. */
typedef struct grid_scratch {
  int slot;
  char *w, *slope, *row, *other, *coordinates, *planes;
  int32_t *off;
} grid_scratch;

static size_t scratch_bytes(const grid_job *j, int64_t planes) {
  return (size_t)j->cb * (size_t)((TAPS * (1 + DIMS) + 2 + DIMS) * POSITIONS + planes) +
         TAPS * POSITIONS * sizeof(int32_t);
}
static grid_scratch scratch_take(grid_job *j) {
  grid_scratch s = {.slot = aci_slots_take(&j->slots)};
  const int64_t row = POSITIONS * j->cb;
  s.w = aci_slots_at(&j->slots, s.slot);
  s.slope = s.w + TAPS * row;
  s.row = s.slope + TAPS * DIMS * row;
  s.other = s.row + row;
  s.coordinates = s.other + row;
  s.off = (int32_t *)(void *)(s.coordinates + DIMS * row);
  s.planes = (char *)(s.off + TAPS * POSITIONS);
  return s;
}

#define T float
#define SFX f32
#include "ops/index/grid_sample_rows.h"

#define T double
#define SFX f64
#include "ops/index/grid_sample_rows.h"

/* ---- pieces: (image, block of positions), or (image, group of channels) ---- */
static void forward_piece(void *arg, int64_t begin, int64_t end) {
  grid_job *j = arg;
  grid_scratch s = scratch_take(j);
  for (int64_t i = begin; i < end; i++) {
    if (j->ct == ACI_C_F64) forward_f64(j, &s, i / j->blocks, i % j->blocks * POSITIONS);
    else forward_f32(j, &s, i / j->blocks, i % j->blocks * POSITIONS);
  }
  aci_slots_give(&j->slots, s.slot);
}
static void input_piece(void *arg, int64_t begin, int64_t end) {
  grid_job *j = arg;
  grid_scratch s = scratch_take(j);
  for (int64_t i = begin; i < end; i++) {
    if (j->ct == ACI_C_F64) input_f64(j, &s, i / j->groups, i % j->groups * CHANNELS);
    else input_f32(j, &s, i / j->groups, i % j->groups * CHANNELS);
  }
  aci_slots_give(&j->slots, s.slot);
}
static void grid_piece(void *arg, int64_t begin, int64_t end) {
  grid_job *j = arg;
  grid_scratch s = scratch_take(j);
  for (int64_t i = begin; i < end; i++) {
    if (j->ct == ACI_C_F64) grid_f64(j, &s, i / j->blocks, i % j->blocks * POSITIONS);
    else grid_f32(j, &s, i / j->blocks, i % j->blocks * POSITIONS);
  }
  aci_slots_give(&j->slots, s.slot);
}

/* ---- entries ---- */
static grid_job job_of(const aci_grid *g, const ac_tensor *grid, const ac_tensor *dy,
                       ac_tensor *out) {
  grid_job j = {
      .g = g, .grid = grid, .dy = dy, .out = out, .ct = aci_ctype_of((ac_dtype)out->dtype)};
  j.cb = (int64_t)aci_ctype_bytes(j.ct);
  j.blocks = (g->positions + POSITIONS - 1) / POSITIONS;
  j.groups = (g->channels + CHANNELS - 1) / CHANNELS;
  j.plain = out->dtype == AC_F32 || out->dtype == AC_F64;
  return j;
}

typedef struct widen_job {
  const ac_tensor *x;
  aci_ctype ct;
  char *to;
  int64_t cb;
} widen_job;
static void widen_piece(void *arg, int64_t begin, int64_t end) {
  const widen_job *j = arg;
  aci_elems_load(j->x, j->ct, begin, end - begin, j->to + begin * j->cb);
}
/* x as a run of the compute type: its own memory, or a copy in *block. */
static ac_status widened(ac_frame *f, const ac_tensor *x, const grid_job *j, const char **out,
                         ac_block **block, ac_err *e) {
  *block = NULL;
  *out = aci_data(x);
  if ((x->dtype == AC_F32 || x->dtype == AC_F64) && aci_is_contiguous(x)) return AC_OK;
  AC_TRY(ac_block_alloc(f->device, (size_t)(x->numel * j->cb), AC_MEM_ACTIVATION, f->stream, block,
                        e));
  widen_job w = {x, j->ct, ac_block_ptr(*block), j->cb};
  *out = w.to;
  ac_parallel_for(f->team, x->numel, 1 << 14, widen_piece, &w);
  return AC_OK;
}

static ac_status run(ac_frame *f, grid_job *j, int64_t pieces, int64_t planes, int64_t work,
                     ac_range_fn fn, ac_err *e) {
  AC_TRY(aci_slots_open(&j->slots, f, pieces, scratch_bytes(j, planes), e));
  ac_parallel_for(f->team, pieces, work >= 1 << 15 ? 1 : (1 << 15) / (work + 1) + 1, fn, j);
  aci_slots_close(&j->slots);
  return AC_OK;
}

ac_status aci_grid_sample(ac_frame *f, const aci_grid *g, const ac_tensor *x, const ac_tensor *grid,
                          ac_tensor *y, ac_err *e) {
  grid_job j = job_of(g, grid, NULL, y);
  ac_block *copy;
  if (y->numel == 0) return AC_OK;
  AC_TRY(widened(f, x, &j, &j.x, &copy, e));
  const ac_status st = run(f, &j, g->images * j.blocks, 0, POSITIONS * g->taps * (g->channels + 2),
                           forward_piece, e);
  ac_block_free(copy);
  return st;
}

ac_status aci_grid_backward_input(ac_frame *f, const aci_grid *g, const ac_tensor *dy,
                                  const ac_tensor *grid, ac_tensor *dx, ac_err *e) {
  grid_job j = job_of(g, grid, dy, dx);
  if (dx->numel == 0) return AC_OK;
  return run(f, &j, g->images * j.groups, j.plain ? 0 : CHANNELS * g->plane,
             g->positions * g->taps * 2 * CHANNELS, input_piece, e);
}

ac_status aci_grid_backward_grid(ac_frame *f, const aci_grid *g, const ac_tensor *dy,
                                 const ac_tensor *x, const ac_tensor *grid, ac_tensor *dgrid,
                                 ac_err *e) {
  grid_job j = job_of(g, grid, dy, dgrid);
  ac_block *copy;
  if (dgrid->numel == 0) return AC_OK;
  AC_TRY(widened(f, x, &j, &j.x, &copy, e));
  const ac_status st = run(f, &j, g->images * j.blocks, 0,
                           POSITIONS * g->taps * (3 * g->channels + 8), grid_piece, e);
  ac_block_free(copy);
  return st;
}
