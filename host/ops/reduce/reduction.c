/* The walk of reductions (see reduction.h). Work is cut into tiles of outputs times chunks of
 * reduced elements. A tile's state is on the stack. If lists are cut, it goes to scratch memory to
 * be joined in the order of the chunks. */
#include "ops/reduce/reduction.h"

#include "ops/core/fuse.h"

enum { CHUNK = 1 << 16, WORK = 32768 };

typedef struct reduction_job {
  aci_reduce_plan p;
  const aci_reduction *reduction;
  double param;
  ac_tensor *out[2];
  /* outputs of a tile. Tiles (of a row of the last kept dim, by columns) */
  int64_t tile, n_tiles;
  int64_t chunk, n_chunks; /* reduced elements */
  bool columns;
  aci_word *part; /* [tile][chunk][word][output]. NULL when one chunk does */
} reduction_job;

static size_t element_bytes(const aci_reduction *o) {
  return o->reads == AC_BOOL ? 1 : aci_dsize(o->reads);
}

/* n elements from offset off on, stride apart, as the reduction reads them. */
static void load(const reduction_job *j, int64_t off, int64_t stride, int64_t n, void *dst) {
  if (j->p.source != NULL) {
    j->p.source(j->p.from, off, n, dst);
    return;
  }
  const char *src = j->p.ptr + off * (int64_t)aci_dsize(j->p.dt);
  if (j->reduction->reads != AC_BOOL) {
    aci_load(j->p.ct, dst, j->p.dt, src, stride, n);
    return;
  }
  char *d = dst;
  for (int64_t i = 0; i < n; i++) d[i] = src[i * stride];
}

/* Elements [begin, begin + n) of the list at base: in place, or copied into buf. */
static const void *block(const reduction_job *j, int64_t base, int64_t begin, int64_t n,
                         void *buf) {
  const aci_reduce_plan *p = &j->p;
  const int last = p->n_red - 1;
  const int64_t inner = p->red_shape[last], stride = p->red_stride[last];
  if (p->source == NULL && p->n_red == 1 && (stride == 1 || p->n_reduced == 1) &&
      p->dt == j->reduction->reads)
    return p->ptr + (base + begin) * (int64_t)element_bytes(j->reduction);
  char *d = buf;
  while (n > 0) {
    int64_t m = inner - begin % inner < n ? inner - begin % inner : n;
    load(j, base + aci_reduce_offset(p, begin), stride, m, d);
    d += (size_t)m * element_bytes(j->reduction);
    begin += m;
    n -= m;
  }
  return buf;
}

/* Outputs [o, o + n), elements [a, b) of their lists. */
static void by_rows(const reduction_job *j, int64_t o, int64_t n, int64_t a, int64_t b,
                    aci_word *s) {
  const aci_reduce_plan *p = &j->p;
  _Alignas(64) double buf[ACI_RED_BLOCK];
  if (p->source == NULL && b - a <= ACI_RED_BLOCK && b > a && p->n_keep == 1 && p->n_red == 1 &&
      p->dt == j->reduction->reads &&
      /* short lists one after the other in memory */
      (p->red_stride[0] == 1 || p->n_reduced == 1)) {
    const char *x = p->ptr + (aci_reduce_base(p, o) + a) * (int64_t)element_bytes(j->reduction);
    j->reduction->rows(s, x, p->keep_stride[0], n, b - a, j->param);
    return;
  }
  for (int64_t k = 0; k < n; k++) {
    const int64_t base = aci_reduce_base(p, o + k);
    for (int64_t i = a; i < b; i += ACI_RED_BLOCK) {
      const int64_t m = b - i < ACI_RED_BLOCK ? b - i : ACI_RED_BLOCK;
      j->reduction->rows(s + k, block(j, base, i, m, buf), 0, 1, m, j->param);
    }
  }
}

/* The same if the outputs' elements are adjacent. */
static void by_columns(const reduction_job *j, int64_t o, int64_t n, int64_t a, int64_t b,
                       aci_word *s) {
  const aci_reduce_plan *p = &j->p;
  const int64_t base = aci_reduce_base(p, o);
  const bool direct = p->source == NULL && p->dt == j->reduction->reads;
  _Alignas(64) double buf[ACI_REDUCTION_ROWS][ACI_REDUCTION_TILE];
  const void *row[ACI_REDUCTION_ROWS];
  for (int64_t r = a; r < b; r += ACI_REDUCTION_ROWS) {
    const int64_t m = b - r < ACI_REDUCTION_ROWS ? b - r : ACI_REDUCTION_ROWS;
    for (int64_t k = 0; k < m; k++) {
      const int64_t off = base + aci_reduce_offset(p, r + k);
      row[k] =
          direct ? (const void *)(p->ptr + off * (int64_t)aci_dsize(p->dt)) : (const void *)buf[k];
      if (!direct) load(j, off, 1, n, buf[k]);
    }
    j->reduction->columns(s, row, m, n, j->param);
  }
}

/* First output of a tile, and how many it has. */
static int64_t tile_outputs(const reduction_job *j, int64_t t, int64_t *n) {
  const int64_t width = j->columns ? j->p.keep_shape[j->p.n_keep - 1] : j->p.n_out;
  const int64_t first = t % j->n_tiles * j->tile;
  *n = width - first < j->tile ? width - first : j->tile;
  return t / j->n_tiles * width + first;
}

static void start(const reduction_job *j, int64_t n, aci_word *s) {
  for (int w = 0; w < j->reduction->words; w++)
    for (int64_t i = 0; i < n; i++) s[w * ACI_REDUCTION_TILE + i] = j->reduction->start[w];
}

static void put(const ac_tensor *t, int64_t o, int64_t n, const aci_word *y, bool whole) {
  const ac_dtype dt = (ac_dtype)t->dtype;
  aci_store(whole ? ACI_C_I64 : ACI_C_F64, y, dt, (char *)aci_data(t) + o * (int64_t)aci_dsize(dt),
            1, n);
}

static void finish(const reduction_job *j, int64_t o, int64_t n, const aci_word *s) {
  aci_word y[ACI_REDUCTION_TILE];
  if (j->reduction->finish != NULL) j->reduction->finish(y, s, n, j->p.n_reduced, j->param);
  put(j->out[0], o, n, j->reduction->finish != NULL ? y : s, j->reduction->whole);
  if (j->out[1] != NULL) put(j->out[1], o, n, s + ACI_REDUCTION_TILE, j->reduction->whole);
}

static aci_word *part_of(const reduction_job *j, int64_t item) {
  return j->part + (size_t)item * (size_t)(j->reduction->words * j->tile);
}

/* Items are (tile, chunk). */
static void range(void *arg, int64_t begin, int64_t end) {
  const reduction_job *j = arg;
  aci_word s[ACI_REDUCTION_WORDS * ACI_REDUCTION_TILE];
  for (int64_t item = begin; item < end; item++) {
    const int64_t c = item % j->n_chunks, a = c * j->chunk;
    const int64_t b = a + j->chunk < j->p.n_reduced ? a + j->chunk : j->p.n_reduced;
    int64_t n, o = tile_outputs(j, item / j->n_chunks, &n);
    start(j, n, s);
    if (j->columns) by_columns(j, o, n, a, b, s);
    else by_rows(j, o, n, a, b, s);
    if (j->part == NULL) {
      finish(j, o, n, s);
      continue;
    }
    aci_word *to = part_of(j, item);
    for (int w = 0; w < j->reduction->words; w++)
      memcpy(to + w * j->tile, s + w * ACI_REDUCTION_TILE, (size_t)n * sizeof *s);
  }
}

/* The chunks of each tile, in their order. */
static void together(void *arg, int64_t begin, int64_t end) {
  const reduction_job *j = arg;
  aci_word s[ACI_REDUCTION_WORDS * ACI_REDUCTION_TILE], t[ACI_REDUCTION_WORDS * ACI_REDUCTION_TILE];
  for (int64_t k = begin; k < end; k++) {
    int64_t n, o = tile_outputs(j, k, &n);
    start(j, n, s);
    for (int64_t c = 0; c < j->n_chunks; c++) {
      const aci_word *from = part_of(j, k * j->n_chunks + c);
      for (int w = 0; w < j->reduction->words; w++)
        memcpy(t + w * ACI_REDUCTION_TILE, from + w * j->tile, (size_t)n * sizeof *t);
      j->reduction->join(s, t, n, j->param);
    }
    finish(j, o, n, s);
  }
}

ac_status aci_reduction_check(const ac_frame *f, ac_err *e) {
  const ac_dtype dt = (ac_dtype)ARG_T(f, 0)->dtype;
  if (dt <= AC_BOOL) return AC_OK;
  return AC_FAIL(e, DTYPE, "%s is a storage dtype; cast it first", ac_dtype_name(dt));
}

static int64_t clamp(int64_t v, int64_t lo, int64_t hi) { return v < lo ? lo : v > hi ? hi : v; }

static ac_status run(ac_frame *f, reduction_job j, ac_err *e) {
  const aci_reduction *reduction = j.reduction;
  ac_block *scratch = NULL;
  const int k = j.p.n_keep - 1;
  const int64_t width = j.p.keep_shape[k], n = j.p.n_reduced;
  j.columns = n > 1 && j.p.keep_stride[k] == 1 && width >= 8 && j.p.red_stride[j.p.n_red - 1] != 1;
  j.tile = j.columns ? clamp(width, 1, ACI_REDUCTION_TILE)
                     : clamp(WORK / (n + 1), 1, ACI_REDUCTION_TILE);
  if (!j.columns && j.tile > j.p.n_out) j.tile = j.p.n_out;
  j.n_tiles = ((j.columns ? width : j.p.n_out) + j.tile - 1) / j.tile;
  const int64_t tiles = j.columns ? j.p.n_out / width * j.n_tiles : j.n_tiles;
  j.chunk = n;
  if (tiles < 64) { /* else there is enough to share out */
    j.chunk = CHUNK / (j.columns ? j.tile : 1);
    j.chunk = clamp(j.chunk - j.chunk % ACI_REDUCTION_ROWS, 64, CHUNK);
  }
  j.n_chunks = n > 0 ? (n + j.chunk - 1) / j.chunk : 1;
  if (j.n_chunks > 1) {
    const size_t words = (size_t)(tiles * j.n_chunks * reduction->words * j.tile);
    AC_TRY(ac_block_alloc(f->device, words * sizeof(aci_word), AC_MEM_ACTIVATION, f->stream,
                          &scratch, e));
    j.part = ac_block_ptr(scratch);
  }
  const int64_t work = j.tile * ((j.chunk < n ? j.chunk : n) + 1);
  ac_parallel_for(f->team, tiles * j.n_chunks, clamp(WORK / work, 1, WORK), range, &j);
  if (j.n_chunks > 1) ac_parallel_for(f->team, tiles, 1, together, &j);
  ac_block_free(scratch);
  return AC_OK;
}

static ac_status walk(ac_frame *f, const aci_reduce_plan *p, const aci_fuse_reduction *r,
                      ac_tensor *out, ac_err *e) {
  return run(
      f, (reduction_job){.p = *p, .reduction = r->data, .param = r->number, .out = {out, NULL}}, e);
}

/* As by_rows, of one list that lies at x. */
static double row_of(const aci_fuse_reduction *r, const float *x, int64_t n, bool direct) {
  const aci_reduction *o = r->data;
  aci_word s[ACI_REDUCTION_WORDS * ACI_REDUCTION_TILE], y;
  (void)direct;
  for (int w = 0; w < o->words; w++) s[w * ACI_REDUCTION_TILE] = o->start[w];
  for (int64_t i = 0; i < n; i += ACI_RED_BLOCK)
    o->rows(s, x + i, 0, 1, n - i < ACI_RED_BLOCK ? n - i : ACI_RED_BLOCK, r->number);
  if (o->finish == NULL) return s[0].f;
  o->finish(&y, s, 1, n, r->number);
  return y.f;
}

ac_status aci_reduction_run(ac_frame *f, const ac_tensor *x, uint32_t mask,
                            const aci_reduction *reduction, double p, ac_tensor *out,
                            ac_tensor *second, ac_err *e) {
  const bool floats = reduction->reads == AC_F32 && !reduction->whole;
  const aci_fuse_reduction how = {
      .walk = walk, .row = floats ? row_of : NULL, .number = p, .data = reduction};
  aci_reduce_plan plan;
  if (out->numel == 0) return AC_OK;
  aci_reduce_plan_make(&plan, x, mask,
                       reduction->reads == AC_F32   ? ACI_C_F32
                       : reduction->reads == AC_F64 ? ACI_C_F64
                                                    : ACI_C_I64);
  if (second == NULL) return aci_fuse_reduce(f, x, &plan, &how, out, e);
  return run(
      f, (reduction_job){.p = plan, .reduction = reduction, .param = p, .out = {out, second}}, e);
}
