/* Index tensors broadcast and turned into addresses, and the moves along them: see
 * advanced_index.h. */
#include "ops/index/advanced_index.h"

#include "ops/core/ctx_impl.h"

static const ac_tensor *index_of(const ac_frame *f, int arg, int i) {
  return f->args[arg].kind == AC_T_TENSORS ? f->args[arg].tensors[i] : ARG_T(f, arg);
}

/* Dims of the index tensors, ascending. */
static ac_status read_dims(const ac_frame *f, int arg, int dims, int ndim, aci_advanced_index *p,
                           ac_err *e) {
  const ac_value *v = dims >= 0 ? &f->args[dims] : NULL;
  char a[128];
  p->n_index = f->args[arg].kind == AC_T_TENSORS ? f->args[arg].n : 1;
  uint32_t mask = 0;
  if (v != NULL && v->kind != AC_T_NONE) {
    AC_TRY(ac_frame_dims(f, dims, ndim, &mask, e));
    const int n = v->kind == AC_T_DIM || v->kind == AC_T_INT ? 1 : v->n;
    if (n != p->n_index) return AC_FAIL(e, INVALID, "%d index tensors for %d dims", p->n_index, n);
  }
  if (p->n_index > ndim)
    return AC_FAIL(e, INDEX, "%d index tensors for a tensor of %d dims", p->n_index, ndim);
  if (p->n_index == 0) return AC_FAIL(e, INVALID, "needs at least one index tensor");
  for (int i = 0; i < p->n_index; i++) {
    const ac_tensor *t = index_of(f, arg, i);
    const int64_t *list = mask == 0                                    ? NULL
                          : v->kind == AC_T_DIM || v->kind == AC_T_INT ? &v->i
                                                                       : v->ints;
    const int d = list == NULL ? i : aci_wrap_dim(list[i], ndim);
    if (t->dtype != AC_I64 && t->dtype != AC_I32)
      return AC_FAIL(e, DTYPE, "%s: tensor %d must hold i64 or i32, got %s%s",
                     aci_op_sig(f->op)->param[arg].name, i + 1, aci_tensor_str(t, a, sizeof a),
                     t->dtype == AC_BOOL ? "; masks are taken with t[mask] or masked_select" : "");
    int k = i;
    for (; k > 0 && p->dim[k - 1] > d; k--) {
      p->dim[k] = p->dim[k - 1];
      p->arg[k] = p->arg[k - 1];
    }
    p->dim[k] = d;
    p->arg[k] = i;
  }
  return AC_OK;
}

ac_status aci_advanced_index_plan(const ac_frame *f, int arg, int dims, int ndim,
                                  const int64_t *shape, aci_advanced_index *p, ac_err *e) {
  char a[128], b[128];
  const int64_t one[1] = {1};
  memset(p, 0, sizeof *p);
  if (ndim == 0 && dims >= 0 &&
      f->args[dims].kind == AC_T_DIM) { /* counts as one dim, as in PyTorch */
    p->rank_0 = true;
    shape = one;
    ndim = 1;
  }
  AC_TRY(read_dims(f, arg, dims, ndim, p, e));
  p->side_by_side = p->dim[p->n_index - 1] - p->dim[0] == p->n_index - 1;
  p->n_outer_elems = p->n_inner_elems = p->n = p->n_dst = 1;
  for (int d = 0, k = 0; d < ndim; d++) {
    if (k < p->n_index && p->dim[k] == d) {
      p->n_dst *= shape[d];
      k++;
    } else if (p->side_by_side && k == 0) {
      p->outer[p->n_outer++] = d;
      p->n_outer_elems *= shape[d];
    } else {
      p->inner[p->n_inner++] = d;
      p->n_inner_elems *= shape[d];
    }
  }
  for (int i = 0; i < p->n_index; i++) {
    const ac_tensor *t = index_of(f, arg, i);
    if (aci_broadcast(&p->n_batch, p->batch, t, NULL) != AC_OK)
      return AC_FAIL(e, SHAPE, "index tensors %d and those before it do not broadcast: %s and %s",
                     i + 1, aci_shape_str(t->ndim, t->shape, a, sizeof a),
                     aci_shape_str(p->n_batch, p->batch, b, sizeof b));
  }
  for (int d = 0; d < p->n_batch; d++) p->n *= p->batch[d];
  if (p->n_outer + p->n_batch + p->n_inner > AC_MAX_DIMS)
    return AC_FAIL(e, SHAPE, "a tensor has at most %d dims", AC_MAX_DIMS);
  return AC_OK;
}

int aci_advanced_index_shape(const aci_advanced_index *p, const int64_t *shape, int64_t *out) {
  int n = 0;
  for (int i = 0; i < p->n_outer; i++) out[n++] = shape[p->outer[i]];
  for (int i = 0; i < p->n_batch; i++) out[n++] = p->batch[i];
  for (int i = 0; i < p->n_inner; i++) out[n++] = shape[p->inner[i]];
  return n;
}

static ac_status out_of_range(const ac_frame *f, const aci_advanced_index *p, int k, int arg,
                              const int64_t *shape, int64_t value, int64_t at, ac_err *e) {
  char pos[128];
  int64_t idx[AC_MAX_DIMS];
  for (int d = p->n_batch - 1; d >= 0; d--) {
    idx[d] = ac_frame_show(f, at % p->batch[d]);
    at /= p->batch[d];
  }
  return AC_FAIL(
      e, INDEX,
      "%s: tensor %d holds %lld at %s, but dim %lld has %lld positions (values count from 0, "
      "negative ones from the end)",
      aci_op_sig(f->op)->param[arg].name, p->arg[k] + 1, (long long)value,
      aci_shape_str(p->n_batch, idx, pos, sizeof pos), (long long)ac_frame_show(f, p->dim[k]),
      p->rank_0 ? 1ll : (long long)shape[p->dim[k]]);
}

ac_status aci_advanced_index_offsets(ac_frame *f, const aci_advanced_index *p, int arg,
                                     const int64_t *shape, const int64_t *weight,
                                     const int64_t **offsets, ac_block **block, ac_err *e) {
  enum { RUN = 512 };
  int64_t buf[RUN];
  *block = NULL;
  *offsets = NULL;
  if (p->n == 0) return AC_OK;
  AC_TRY(ac_block_alloc(f->device, (size_t)p->n * 8, AC_MEM_ACTIVATION, f->stream, block, e));
  int64_t *off = ac_block_ptr(*block);
  memset(off, 0, (size_t)p->n * 8);
  ac_status st = AC_OK;
  for (int k = 0; k < p->n_index && st == AC_OK; k++) {
    const ac_tensor *t = index_of(f, arg, p->arg[k]);
    const int64_t bound = p->rank_0 ? 1 : shape[p->dim[k]], w = p->rank_0 ? 0 : weight[p->dim[k]];
    int64_t stride[AC_MAX_DIMS] = {0};
    const int lead = p->n_batch - t->ndim;
    for (int d = 0; d < t->ndim; d++) stride[lead + d] = t->shape[d] == 1 ? 0 : t->stride[d];
    ac_tensor *wide = aci_tensor_alias(t, p->n_batch, p->batch, stride, t->offset);
    if (wide == NULL) st = AC_FAIL(e, OOM, "no memory for a tensor's head");
    for (int64_t b = 0; b < p->n && st == AC_OK; b += RUN) {
      const int64_t m = p->n - b < RUN ? p->n - b : RUN;
      aci_elems_load(wide, ACI_C_I64, b, m, buf);
      for (int64_t i = 0; i < m; i++) {
        const int64_t v = buf[i] < 0 ? buf[i] + bound : buf[i];
        if ((uint64_t)v >= (uint64_t)bound) {
          st = out_of_range(f, p, k, arg, shape, buf[i], b + i, e);
          break;
        }
        off[b + i] += v * w;
      }
    }
    ac_tensor_release(wide);
  }
  if (st != AC_OK) {
    ac_block_free(*block);
    *block = NULL;
    return st;
  }
  *offsets = off;
  return AC_OK;
}

/* ---- moves ---- */
enum { CHUNK = 4096, TASK = 16384 };

typedef struct advanced_index_job {
  size_t es;
  enum { TAKE, PUT, ADD } how;
  aci_ctype ct;   /* ADD */
  int64_t single; /* 0: every value is the same one, else 1 */
  char *x;        /* the indexed tensor */
  char *v;        /* values, contiguous */
  const int64_t *offset;
  int64_t n, outer, inner, chunks, batch_cut;
  int n_outer, n_inner; /* inner: joined dims, the last one is cut into chunks */
  int64_t outer_shape[AC_MAX_DIMS], outer_stride[AC_MAX_DIMS], inner_shape[AC_MAX_DIMS],
      inner_stride[AC_MAX_DIMS];
} advanced_index_job;

#define RUN_LOOP(T, STATEMENT)                    \
  do {                                            \
    T *xt = (T *)(void *)x, *vt = (T *)(void *)v; \
    for (int64_t i = 0; i < n; i++) {             \
      T *px = xt + i * stride, *pv = vt + i * vs; \
      STATEMENT;                                  \
    }                                             \
  } while (0)
#define BY_SIZE(es, MACRO, STATEMENT)           \
  switch (es) {                                 \
    case 1: MACRO(uint8_t, STATEMENT); break;   \
    case 2: MACRO(uint16_t, STATEMENT); break;  \
    case 4: MACRO(uint32_t, STATEMENT); break;  \
    default: MACRO(uint64_t, STATEMENT); break; \
  }

/* n elements of x, `stride` apart, from or to v. */
static void run(const advanced_index_job *j, char *x, int64_t stride, char *v, int64_t n) {
  const int64_t vs = j->single;
  switch (j->how) {
    case TAKE:
      if (stride == 1) memcpy(v, x, (size_t)n * j->es);
      else BY_SIZE(j->es, RUN_LOOP, *pv = *px)
      break;
    case PUT:
      if (stride == 1 && vs == 1) memcpy(x, v, (size_t)n * j->es);
      else BY_SIZE(j->es, RUN_LOOP, *px = *pv)
      break;
    case ADD:
      if (j->ct == ACI_C_F32) RUN_LOOP(float, *px += *pv);
      else if (j->ct == ACI_C_F64) RUN_LOOP(double, *px += *pv);
      else RUN_LOOP(uint64_t, *px += *pv);
      break;
  }
}

static void inner_dims(const advanced_index_job *j, int d, char *x, char *v, int64_t lo,
                       int64_t n) {
  const int64_t es = (int64_t)j->es, vs = j->single * es;
  if (d == j->n_inner - 1) {
    run(j, x + lo * j->inner_stride[d] * es, j->inner_stride[d], v + lo * vs, n);
    return;
  }
  int64_t step = 1;
  for (int k = d + 1; k < j->n_inner; k++) step *= j->inner_shape[k];
  for (int64_t i = 0; i < j->inner_shape[d]; i++)
    inner_dims(j, d + 1, x + i * j->inner_stride[d] * es, v + i * step * vs, lo, n);
}

/* Positions [lo, hi) of b, each a single element. */
static void element_by_element(const advanced_index_job *j, char *x, char *v, int64_t lo,
                               int64_t hi) {
  const int64_t vs = j->single;
#define EACH(T, STATEMENT)                          \
  do {                                              \
    T *xt = (T *)(void *)x, *vt = (T *)(void *)v;   \
    for (int64_t b = lo; b < hi; b++) {             \
      T *px = xt + j->offset[b], *pv = vt + b * vs; \
      STATEMENT;                                    \
    }                                               \
  } while (0)
  if (j->how == TAKE) {
    BY_SIZE(j->es, EACH, *pv = *px)
  } else if (j->how != ADD) {
    BY_SIZE(j->es, EACH, *px = *pv)
  } else if (j->ct == ACI_C_F32) {
    EACH(float, *px += *pv);
  } else if (j->ct == ACI_C_F64) {
    EACH(double, *px += *pv);
  } else {
    EACH(uint64_t, *px += *pv);
  }
#undef EACH
}

/* A task is one outer position, one chunk of the inner elements and, if order does not matter, a
 * piece of the batch. */
static void range(void *arg, int64_t begin, int64_t end) {
  const advanced_index_job *j = arg;
  const int64_t es = (int64_t)j->es, pieces = (j->n + j->batch_cut - 1) / j->batch_cut,
                vs = j->single * es;
  for (int64_t t = begin; t < end; t++) {
    int64_t lo = t % pieces * j->batch_cut,
            hi = lo + j->batch_cut < j->n ? lo + j->batch_cut : j->n;
    int64_t c = t / pieces % j->chunks, o = t / pieces / j->chunks, r = o, off = 0;
    for (int d = j->n_outer - 1; d >= 0; d--) {
      off += r % j->outer_shape[d] * j->outer_stride[d];
      r /= j->outer_shape[d];
    }
    char *x = j->x + off * es, *v = j->v + o * j->n * j->inner * vs;
    if (j->inner == 1) {
      element_by_element(j, x, v, lo, hi);
      continue;
    }
    const int64_t last = j->inner_shape[j->n_inner - 1], first = c * CHUNK,
                  m = last - first < CHUNK ? last - first : CHUNK;
    for (int64_t b = lo; b < hi; b++)
      inner_dims(j, 0, x + j->offset[b] * es, v + b * j->inner * vs, first, m);
  }
}

/* x_shape/x_stride: of the tensor that is indexed. */
static void move(ac_frame *f, const aci_advanced_index *p, advanced_index_job *j,
                 const int64_t *shape, const int64_t *stride) {
  j->n = p->n;
  j->outer = p->n_outer_elems;
  j->inner = p->n_inner_elems;
  if (j->n * j->outer * j->inner == 0) return;
  for (int i = 0; i < p->n_outer; i++) {
    j->outer_shape[i] = shape[p->outer[i]];
    j->outer_stride[i] = stride[p->outer[i]];
  }
  j->n_outer = p->n_outer;
  int w = -1;
  for (int i = 0; i < p->n_inner; i++) {
    const int64_t n = shape[p->inner[i]], s = stride[p->inner[i]];
    if (n == 1) continue;
    if (w >= 0 && j->inner_stride[w] == s * n) j->inner_shape[w] *= n;
    else j->inner_shape[++w] = n;
    j->inner_stride[w] = s;
  }
  j->n_inner = w + 1;
  const int64_t last = w >= 0 ? j->inner_shape[w] : 1;
  j->chunks = (last + CHUNK - 1) / CHUNK;
  const int64_t per = j->inner / last * (last < CHUNK ? last : CHUNK);
  j->batch_cut = j->how == TAKE ? 1 + TASK / per : j->n;
  const int64_t tasks = j->outer * j->chunks * ((j->n + j->batch_cut - 1) / j->batch_cut);
  int64_t each = per * (j->batch_cut < j->n ? j->batch_cut : j->n), grain = 1 + TASK / (each + 1);
  if (tasks <= grain) range(j, 0, tasks);
  else ac_parallel_for(f->team, tasks, grain, range, j);
}

void aci_advanced_index_gather(ac_frame *f, const aci_advanced_index *p, ac_tensor *out,
                               const ac_tensor *x, const int64_t *offsets) {
  advanced_index_job j = {.es = aci_dsize((ac_dtype)x->dtype),
                          .how = TAKE,
                          .single = 1,
                          .x = aci_data(x),
                          .v = aci_data(out),
                          .offset = offsets};
  move(f, p, &j, x->shape, x->stride);
}

void aci_advanced_index_put(ac_frame *f, const aci_advanced_index *p, ac_tensor *y,
                            const void *values, bool single, const int64_t *offsets) {
  advanced_index_job j = {.es = aci_dsize((ac_dtype)y->dtype),
                          .how = PUT,
                          .single = single ? 0 : 1,
                          .x = aci_data(y),
                          .v = (char *)(uintptr_t)values,
                          .offset = offsets};
  move(f, p, &j, y->shape, y->stride);
}

ac_status aci_advanced_index_add(ac_frame *f, const aci_advanced_index *p, int arg, ac_tensor *y,
                                 const void *values, bool single, ac_err *e) {
  const ac_dtype dt = (ac_dtype)y->dtype;
  const aci_ctype ct = aci_ctype_of(dt);
  const bool native = dt == AC_F32 || dt == AC_F64 || dt == AC_I64;
  const int64_t *offsets, n_values = single ? 1 : p->n * p->n_outer_elems * p->n_inner_elems;
  int64_t stride[AC_MAX_DIMS];
  ac_block *block = NULL, *wide = NULL;
  advanced_index_job j = {.es = aci_ctype_bytes(ct),
                          .how = ADD,
                          .ct = ct,
                          .single = single ? 0 : 1,
                          .x = aci_data(y),
                          .v = (char *)(uintptr_t)values};
  memcpy(stride, y->stride, (size_t)y->ndim * 8);
  if (!native) aci_contiguous_strides(y->ndim, y->shape, stride);
  ac_status st = aci_advanced_index_offsets(f, p, arg, y->shape, stride, &offsets, &block, e);
  if (st != AC_OK || p->n == 0 || y->numel == 0) goto done;
  j.offset = offsets;
  if (!native) { /* both sides in the compute type */
    AC_GOTO(done, st,
            ac_block_alloc(f->device, (size_t)(y->numel + n_values) * j.es, AC_MEM_ACTIVATION,
                           f->stream, &wide, e));
    j.x = ac_block_ptr(wide);
    j.v = j.x + (size_t)y->numel * j.es;
    aci_elems_load(y, ct, 0, y->numel, j.x);
    aci_load(ct, j.v, dt, values, 1, n_values);
  }
  move(f, p, &j, y->shape, stride);
  if (!native) aci_elems_store(y, ct, 0, y->numel, j.x);
done:
  ac_block_free(wide);
  ac_block_free(block);
  return st;
}
