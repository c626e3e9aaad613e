/* The kernel of remap.h: the result's rows are cut into segments, and each is copied run by run. */
#include "ops/index/remap.h"

#include "ops/core/ctx_impl.h"

#include "device/cpu/isa.h"

enum { SEGMENT = 16384 };

void aci_remap_init(aci_remap *m, int ndim, const int64_t *shape, const int64_t *stride, int lead) {
  m->ndim = lead + ndim;
  for (int d = 0; d < m->ndim; d++) {
    aci_dim_map *k = &m->dim[d];
    k->n_in = d < lead ? 1 : shape[d - lead];
    k->stride = d < lead ? 0 : stride[d - lead];
    k->run = k->own;
    aci_remap_begin(k, k->n_in);
    aci_remap_add(k, 0, 0, 1, k->n_in);
  }
}

void aci_remap_begin(aci_dim_map *d, int64_t n_out) {
  d->n_out = n_out;
  d->n_runs = 0;
  d->repeat = 0;
}

void aci_remap_add(aci_dim_map *d, int64_t at, int64_t from, int64_t step, int64_t count) {
  int64_t skip = at < 0 ? -at : 0, end = at + count < d->n_out ? at + count : d->n_out;
  at += skip;
  if (at >= end) return;
  if (from >= 0) from += skip * step;
  if (d->n_runs > 0) {
    aci_run *last = &d->run[d->n_runs - 1];
    int64_t n = at - last->at;
    if (from < 0 && last->from < 0) return;
    if (from >= 0 && last->from >= 0) {
      if (n == 1 && end - at == 1)
        last->step = from - last->from; /* two single positions: any step joins them */
      if (last->from + n * last->step == from && (end - at == 1 || last->step == step)) return;
    }
  }
  d->run[d->n_runs++] = (aci_run){at, from, from < 0 ? 0 : step};
}

/* ---- rows ---- */
typedef struct remap_job {
  int ndim; /* the last one is the row */
  int64_t segments, segment;
  size_t es;
  char *y;
  const char *x;
  aci_dim_map *dim;
  union {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
  } fill;
} remap_job;

/* The run of position o. */
static int64_t find_run(const aci_dim_map *d, int64_t o) {
  int64_t lo = 0, hi = d->n_runs;
  while (hi - lo > 1) {
    int64_t mid = lo + (hi - lo) / 2;
    if (d->run[mid].at <= o) lo = mid;
    else hi = mid;
  }
  return lo;
}

#define T uint8_t
#define bits u8
#include "ops/index/remap_rows.h"

#define T uint16_t
#define bits u16
#include "ops/index/remap_rows.h"

#define T uint32_t
#define bits u32
#include "ops/index/remap_rows.h"

#define T uint64_t
#define bits u64
#include "ops/index/remap_rows.h"

static void fill_row(const remap_job *j, void *y, int64_t n) {
#define FILL(T, m) \
  for (int64_t i = 0; i < n; i++) ((T *)y)[i] = j->fill.m
  switch (j->es) {
    case 1: FILL(uint8_t, u8); break;
    case 2: FILL(uint16_t, u16); break;
    case 4: FILL(uint32_t, u32); break;
    default: FILL(uint64_t, u64); break;
  }
#undef FILL
}

/* State of an outer dim: its position, its run and the run's offset in the address of x. */
typedef struct cursor {
  int64_t position, run, offset;
  bool fills;
} cursor;

static void locate(const aci_dim_map *d, cursor *c) {
  if (d->repeat > 0) {
    c->offset = c->position / d->repeat * d->stride;
    c->fills = false;
    return;
  }
  const aci_run *k = &d->run[c->run];
  c->fills = k->from < 0;
  c->offset = c->fills ? 0 : (k->from + (c->position - k->at) * k->step) * d->stride;
}

static void forward(const aci_dim_map *d, cursor *c) {
  c->position++;
  if (c->run + 1 < d->n_runs && d->run[c->run + 1].at == c->position) c->run++;
  locate(d, c);
}

static void range(void *arg, int64_t begin, int64_t end) {
  const remap_job *j = arg;
  const int last = j->ndim - 1;
  const aci_dim_map *row = &j->dim[last];
  cursor c[AC_MAX_DIMS];
  int64_t r = begin / j->segments, seg = begin % j->segments;
  char *y = j->y + (r * row->n_out + seg * j->segment) * (int64_t)j->es;
  for (int d = last - 1; d >= 0; d--) {
    c[d].position = r % j->dim[d].n_out;
    r /= j->dim[d].n_out;
    c[d].run = find_run(&j->dim[d], c[d].position);
    locate(&j->dim[d], &c[d]);
  }
  for (; begin < end; begin++) {
    int64_t off = 0, lo = seg * j->segment,
            hi = lo + j->segment < row->n_out ? lo + j->segment : row->n_out;
    bool fills = false;
    for (int d = 0; d < last; d++) {
      off += c[d].offset;
      fills |= c[d].fills;
    }
    const char *x =
        /* without elements every position is filled */
        j->x != NULL ? j->x + off * (int64_t)j->es : NULL;
    if (fills) fill_row(j, y, hi - lo);
    else if (j->es == 1) row_u8(j, row, y, x, lo, hi);
    else if (j->es == 2) row_u16(j, row, y, x, lo, hi);
    else if (j->es == 4) row_u32(j, row, y, x, lo, hi);
    else row_u64(j, row, y, x, lo, hi);
    y += (hi - lo) * (int64_t)j->es;
    if (++seg < j->segments) continue;
    seg = 0;
    for (int d = last - 1; d >= 0; d--) {
      if (c[d].position + 1 < j->dim[d].n_out) {
        forward(&j->dim[d], &c[d]);
        break;
      }
      c[d].position = c[d].run = 0;
      locate(&j->dim[d], &c[d]);
    }
  }
}

static bool is_identity(const aci_dim_map *d) {
  return d->repeat == 0 && d->n_in == d->n_out && d->n_runs == 1 && d->run[0].from == 0 &&
         d->run[0].step == 1;
}

/* Can every run be counted in larger units? */
static bool moves_blocks(const aci_dim_map *d) {
  if (d->repeat > 0) return false;
  for (int64_t i = 0; i < d->n_runs; i++)
    if (d->run[i].from >= 0 && d->run[i].step != 1) return false;
  return true;
}

/* Drops dims of one position and joins a dim with the whole dim after it if x has that layout.
 * Returns the number of remaining dims. */
static int join(aci_remap *m, aci_dim_map *dim) {
  int w = -1;
  for (int d = 0; d < m->ndim; d++) {
    aci_dim_map *k = &m->dim[d];
    if (k->n_out == 1 && is_identity(k)) continue;
    aci_dim_map *p = w >= 0 ? &dim[w] : NULL;
    if (p != NULL && is_identity(k) && p->stride == k->n_out * k->stride && moves_blocks(p)) {
      for (int64_t i = 0; i < p->n_runs; i++) {
        p->run[i].at *= k->n_out;
        if (p->run[i].from >= 0) p->run[i].from *= k->n_out;
      }
      p->n_in *= k->n_in;
      p->n_out *= k->n_out;
      p->stride = k->stride;
      continue;
    }
    dim[++w] = *k; /* run still points into m, which outlives dim */
  }
  if (w < 0) {
    dim[++w] = (aci_dim_map){.n_in = 1, .n_out = 1, .stride = 1, .n_runs = 1, .run = dim[0].own};
    dim[0].own[0] = (aci_run){0, 0, 1};
  }
  return w + 1;
}

ac_status aci_remap_run(ac_frame *f, ac_tensor *y, const void *x, aci_remap *m, const void *fill,
                        ac_err *e) {
  const aci_drivers *driver = f->ctx->drivers[f->device->kind];
  aci_dim_map dim[AC_MAX_DIMS];
  remap_job j = {.es = aci_dsize((ac_dtype)y->dtype), .y = aci_data(y), .x = x, .dim = dim};
  if (y->numel == 0) return AC_OK;
  if (driver != NULL) return driver->remap(f, y, x, m, fill, e);
  if (fill != NULL) memcpy(&j.fill, fill, j.es);
  j.ndim = join(m, dim);
  const int64_t n = dim[j.ndim - 1].n_out;
  j.segment = n < SEGMENT ? n : SEGMENT;
  j.segments = (n + j.segment - 1) / j.segment;
  int64_t tasks = y->numel / n * j.segments, grain = 1 + 2 * SEGMENT / j.segment;
  if (tasks <= grain) range(&j, 0, tasks);
  else ac_parallel_for(f->team, tasks, grain, range, &j);
  return AC_OK;
}
