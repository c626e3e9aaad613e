/* Largest and smallest elements, with their positions: one pass in lanes finds the value of a
 * block, a second over that block alone, and only when it holds a new best, finds the position.
 * Lists whose elements lie apart while neighbouring lists lie together go by tiles of lists. */
#include "ops/reduce/minmax.h"

#include "ops/core/fuse.h"
#include "ops/reduce/lanes.h"

enum { CHUNK = 1 << 16, TILE = 256, FIND = 1024, LANES = 64, DIRECT = 8192, SHORT = 128 };

#define MAX_FLT(a, b) ((a) > (b) || (a) != (a))
#define MIN_FLT(a, b) ((a) < (b) || (a) != (a))
#define MAX_INT(a, b) ((a) > (b))
#define MIN_INT(a, b) ((a) < (b))
#define MAX_FLT_X(a, i) (MAX_FLT(x[i], a) ? x[i] : (a))
#define MIN_FLT_X(a, i) (MIN_FLT(x[i], a) ? x[i] : (a))
#define MAX_INT_X(a, i) (MAX_INT(x[i], a) ? x[i] : (a))
#define MIN_INT_X(a, i) (MIN_INT(x[i], a) ? x[i] : (a))
#define MAX_FLT_JOIN(a, b) (MAX_FLT(b, a) ? (b) : (a))
#define MIN_FLT_JOIN(a, b) (MIN_FLT(b, a) ? (b) : (a))
#define MAX_INT_JOIN(a, b) (MAX_INT(b, a) ? (b) : (a))
#define MIN_INT_JOIN(a, b) (MIN_INT(b, a) ? (b) : (a))
#define SAME_FLT(a, b) ((a) == (b) || ((a) != (a) && (b) != (b)))
#define SAME_INT(a, b) ((a) == (b))

#define name max_f32
#define T float
#define I int32_t
#define TAKE MAX_FLT
#define SAME SAME_FLT
#include "ops/reduce/minmax_rows.h"

#define name max_f64
#define T double
#define I int64_t
#define TAKE MAX_FLT
#define SAME SAME_FLT
#include "ops/reduce/minmax_rows.h"

#define name max_i64
#define T int64_t
#define I int64_t
#define TAKE MAX_INT
#define SAME SAME_INT
#include "ops/reduce/minmax_rows.h"

#define name min_f32
#define T float
#define I int32_t
#define TAKE MIN_FLT
#define SAME SAME_FLT
#include "ops/reduce/minmax_rows.h"

#define name min_f64
#define T double
#define I int64_t
#define TAKE MIN_FLT
#define SAME SAME_FLT
#include "ops/reduce/minmax_rows.h"

#define name min_i64
#define T int64_t
#define I int64_t
#define TAKE MIN_INT
#define SAME SAME_INT
#include "ops/reduce/minmax_rows.h"

typedef struct found {
  int64_t at;
  char value[8]; /* of the compute type */
} found;

typedef struct minmax_job {
  aci_reduce_plan p;
  void (*list)(const aci_reduce_plan *, int64_t, int64_t, int64_t, void *, int64_t *);
  bool (*beats)(const void *, const void *);
  void (*tile)(const aci_reduce_plan *, int64_t, int64_t, void *, int64_t *);
  ac_tensor *values, *indices;
  found *part; /* [output][chunk] */
  int64_t n_chunks, chunk;
} minmax_job;

static void put(const minmax_job *j, int64_t o, const void *value, const int64_t *at, int64_t n) {
  if (j->values != NULL) {
    ac_dtype dt = (ac_dtype)j->values->dtype;
    aci_store(j->p.ct, value, dt, (char *)aci_data(j->values) + o * (int64_t)aci_dsize(dt), 1, n);
  }
  if (j->indices != NULL) memcpy((int64_t *)aci_data(j->indices) + o, at, (size_t)n * 8);
}

/* Items are (outer kept index, tile of the last kept dim). */
static void tiles(void *arg, int64_t begin, int64_t end) {
  const minmax_job *j = arg;
  const int64_t width = j->p.keep_shape[j->p.n_keep - 1], n_tiles = (width + TILE - 1) / TILE;
  _Alignas(64) double best[TILE];
  int64_t at[TILE];
  for (int64_t i = begin; i < end; i++) {
    int64_t first = i % n_tiles * TILE, o = i / n_tiles * width + first,
            n = width - first < TILE ? width - first : TILE;
    j->tile(&j->p, aci_reduce_base(&j->p, o), n, best, at);
    put(j, o, best, at, n);
  }
}

static void range(void *arg, int64_t begin, int64_t end) {
  const minmax_job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t o = i / j->n_chunks, a = i % j->n_chunks * j->chunk;
    int64_t b = a + j->chunk < j->p.n_reduced ? a + j->chunk : j->p.n_reduced;
    found v = {0};
    j->list(&j->p, aci_reduce_base(&j->p, o), a, b, v.value, j->indices != NULL ? &v.at : NULL);
    if (j->part != NULL) j->part[i] = v;
    else put(j, o, v.value, &v.at, 1);
  }
}

static ac_status run(ac_frame *f, minmax_job j, bool min, ac_err *e) {
  ac_block *block = NULL;
  switch (j.p.ct) {
#define PICK(T)                                      \
  j.list = min ? min_##T##_list : max_##T##_list;    \
  j.beats = min ? min_##T##_beats : max_##T##_beats; \
  j.tile = min ? min_##T##_tile : max_##T##_tile;    \
  break
    case ACI_C_F32: PICK(f32);
    case ACI_C_F64: PICK(f64);
    default: PICK(i64);
  }
  const int64_t width = j.p.keep_shape[j.p.n_keep - 1];
  if (j.p.keep_stride[j.p.n_keep - 1] == 1 && width >= 16 && j.p.red_stride[j.p.n_red - 1] != 1 &&
      j.p.n_reduced < INT32_MAX) {
    int64_t items = j.p.n_out / width * ((width + TILE - 1) / TILE),
            grain = 32768 / (j.p.n_reduced * TILE);
    ac_parallel_for(f->team, items, grain < 1 ? 1 : grain, tiles, &j);
    return AC_OK;
  }
  j.chunk = j.p.n_out >= 64 ? j.p.n_reduced : CHUNK;
  j.n_chunks = (j.p.n_reduced + j.chunk - 1) / j.chunk;
  if (j.n_chunks > 1) {
    AC_TRY(ac_block_alloc(f->device, (size_t)(j.n_chunks * j.p.n_out) * sizeof(found),
                          AC_MEM_ACTIVATION, f->stream, &block, e));
    j.part = ac_block_ptr(block);
  }
  ac_parallel_for(f->team, j.p.n_out * j.n_chunks, j.n_chunks > 1 ? 1 : aci_reduce_grain(&j.p),
                  range, &j);
  for (int64_t o = 0; j.n_chunks > 1 && o < j.p.n_out; o++) {
    const found *c = j.part + o * j.n_chunks, *best = c;
    for (int64_t i = 1; i < j.n_chunks; i++)
      if (j.beats(c[i].value, best->value)) best = c + i;
    put(&j, o, best->value, &best->at, 1);
  }
  ac_block_free(block);
  return AC_OK;
}

static ac_status walk(ac_frame *f, const aci_reduce_plan *p, const aci_fuse_reduction *r,
                      ac_tensor *out, ac_err *e) {
  return run(f, (minmax_job){.p = *p, .values = out}, r->number != 0, e);
}

/* As max_f32_list and min_f32_list, of a list that lies at x. */
static double row_of(const aci_fuse_reduction *r, const float *x, int64_t n, bool direct) {
  const int64_t block = direct ? DIRECT : ACI_RED_BLOCK;
  const bool min = r->number != 0;
  float best = 0;
  for (int64_t i = 0; i < n; i += block) {
    float m;
    (min ? min_f32 : max_f32)(x + i, n - i < block ? n - i : block, &m);
    if (i == 0 || (min ? MIN_FLT(m, best) : MAX_FLT(m, best))) best = m;
  }
  return best;
}

ac_status aci_minmax(ac_frame *f, const ac_tensor *x, uint32_t mask, bool min, ac_tensor *values,
                     ac_tensor *indices, ac_err *e) {
  const aci_fuse_reduction how = {.walk = walk, .row = row_of, .number = min};
  aci_reduce_plan p;
  if ((values != NULL ? values : indices)->numel == 0) return AC_OK;
  aci_reduce_plan_make(&p, x, mask, aci_ctype_of((ac_dtype)x->dtype));
  if (indices != NULL)
    return run(f, (minmax_job){.p = p, .values = values, .indices = indices}, min, e);
  if (p.n_reduced <= SHORT && ac_dtype_is_float((ac_dtype)x->dtype))
    return aci_minmax_short(f, x, mask, min, values, e);
  return aci_fuse_reduce(f, x, &p, &how, values, e);
}

ac_status aci_minmax_check(const ac_frame *f, uint32_t mask, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  char a[128];
  int64_t out = 1, under = 1;
  for (int d = 0; d < x->ndim; d++) *(mask >> d & 1 ? &under : &out) *= x->shape[d];
  if (x->dtype > AC_BOOL)
    return AC_FAIL(e, DTYPE, "%s is a storage dtype; cast it first",
                   ac_dtype_name((ac_dtype)x->dtype));
  if (under == 0 && out != 0)
    return AC_FAIL(e, SHAPE, "nothing to choose from in a tensor of shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  return AC_OK;
}

/* ---- max, min ---- */
ac_status aci_minmax_pair_shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int d = 0;
  if (ARG_NONE(f, 1)) {
    AC_TRY(aci_minmax_check(f, ACI_ALL_DIMS, e));
    return ac_frame_out(f, (ac_dtype)x->dtype, 0, NULL, e);
  }
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  AC_TRY(aci_minmax_check(f, aci_reduce_mask(&f->args[1], x->ndim), e));
  AC_TRY(aci_reduce_out(f, 1, 2, (ac_dtype)x->dtype, e));
  return aci_reduce_out(f, 1, 2, AC_I64, e);
}

ac_status aci_minmax_pair_run(ac_frame *f, bool min, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return aci_minmax(f, x, aci_reduce_mask(&f->args[1], x->ndim), min, f->out[0],
                    f->n_out > 1 ? f->out[1] : NULL, e);
}

/* Over everything: dy shared equally by all elements that are the extreme one (NaN, if that is
 * it). */
static ac_tensor *share(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *in = ARG_T(g, 0), *y = g->out[0];
  ac_tensor *nan = x_mul(x, T(x_ne(x, T(in), T(in))), T(x_ne(x, T(y), T(y))));
  ac_tensor *is = x_add(x, T(x_eq(x, T(in), T(y))), T(nan), aci_float(1));
  return x_where(x, is, T(x_div(x, T(g->dout[0]), T(x_sum(x, is, NULL, 0, false, NULL)))), F(0));
}

void aci_minmax_pair_grad(ac_grad *g) {
  ac_expr *x = &g->x;
  if (ARG_NONE(g, 1)) {
    ac_grad_set(g, 0, share(g));
    return;
  }
  int n = ac_grad_ndim(g, 0, 0);
  ac_tensor *dy = aci_reduce_unsqueeze(g, &g->args[1], g->dout[0]),
            *at = aci_reduce_unsqueeze(g, &g->args[1], g->out[1]);
  if (n > 0)
    dy = x_gather_backward(x, dy, ARG_I(g, 1) < 0 ? ARG_I(g, 1) + n : ARG_I(g, 1), at,
                           ac_grad_shape(g, 0, 0), n);
  ac_grad_set(g, 0, dy);
}

/* ---- amax, amin ---- */
ac_status aci_minmax_values_shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  uint32_t mask;
  AC_TRY(ac_frame_dims(f, 1, x->ndim, &mask, e));
  AC_TRY(aci_minmax_check(f, aci_reduce_mask(&f->args[1], x->ndim), e));
  return aci_reduce_out(f, 1, 2, (ac_dtype)x->dtype, e);
}

ac_status aci_minmax_values_run(ac_frame *f, bool min, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return aci_minmax(f, x, aci_reduce_mask(&f->args[1], x->ndim), min, f->out[0], NULL, e);
}

void aci_minmax_values_grad(ac_grad *g) {
  ac_expr *x = &g->x;
  const ac_value *dims = &g->args[1];
  const int64_t *list = dims->kind == AC_T_NONE ? NULL : dims->ints;
  ac_tensor *y = aci_reduce_unsqueeze(g, dims, g->out[0]),
            *dy = aci_reduce_unsqueeze(g, dims, g->dout[0]);
  ac_tensor *is = x_eq(x, T(ARG_T(g, 0)), T(y));
  ac_tensor *count = x_sum(x, is, list, list == NULL ? 0 : dims->n, true, NULL);
  ac_grad_set(g, 0, x_div(x, T(x_mul(x, T(dy), T(is))), T(count)));
}

/* ---- argmax, argmin ---- */
ac_status aci_minmax_index_shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int d = 0;
  if (!ARG_NONE(f, 1)) AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  AC_TRY(aci_minmax_check(f, aci_reduce_mask(&f->args[1], x->ndim), e));
  return aci_reduce_out(f, 1, 2, AC_I64, e);
}

ac_status aci_minmax_index_run(ac_frame *f, bool min, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return aci_minmax(f, x, aci_reduce_mask(&f->args[1], x->ndim), min, NULL, f->out[0], e);
}
