/* layer_norm and rms_norm of contiguous rows (lines.cuh), called by norm_kernel.cu. Mean and
 * deviation as on the CPU: the mean is rounded to the compute type. rest, its rounding error, is
 * the mean of the deviations and corrects both.
 *
 * Backward: a block takes a piece of the rows. If a row fits its threads, each thread also keeps
 * the sums of its own columns. For longer rows the statistics are stored, and a kernel of columns
 * then reads x and dy again. Pieces meet in a last kernel, in their order. */
#include "ops/norm/norm_rows.cuh"
#include "ops/reduce/lines.cuh"

#ifdef ACI_CUDA_EMULATED
enum { PIECES = 3, SIDE = 8, DEEP = 2, COLUMN_VECTORS = 4 };
#else
enum { PIECES = 256, SIDE = 32, DEEP = 8, COLUMN_VECTORS = 64 };
#endif

/* A tensor to be added: rows of x's dtype. Rows of an f32 sum may be of 16 bits, rows of an f64 sum
 * f32. */
struct line_rows {
  const void *p; /* NULL: none */
  int64_t stride;
  ac_dtype dt;
};
struct line_args {
  aci_lines l;
  const void *x, *dy, *w, *b;
  void *out;
  int64_t x_stride, dy_stride, out_stride;
  /* forward: x, which is sum, := residual + addend first. backward: dsum */
  line_rows residual, addend;
  ac_dtype w_dt, b_dt;
  bool rms;
  double eps;
  void *part;              /* [piece][dw, db][column] in the compute type. NULL: no parameters */
  void *stats;             /* [row] line_stats, if a separate kernel computes the parameters */
  int64_t piece, n_pieces; /* rows */
};

template <class C> struct line_stats { C mean, rest, rstd; };

template <int D, class C, int V>
ACI_DEVICE void addends(const line_rows &r, int64_t row, int64_t at, C *to) {
  const int64_t i = row * r.stride + at;
  if (D == AC_F32 && r.dt == AC_BF16) aci_line_values<AC_BF16, C, V>(r.dt, r.p, i, to);
  else if (D == AC_F32 && r.dt == AC_F16) aci_line_values<AC_F16, C, V>(r.dt, r.p, i, to);
  else aci_line_values<D, C, V>(r.dt, r.p, i, to);
}

/* Chunk c of a row of sum, as rounded: into memory and into x. All loads are started before the
 * first is used. */
template <int D, class C, int V>
ACI_DEVICE void add_chunk(const line_args &a, aci_line<D, C, V> &x, int64_t row, int64_t c) {
  typedef aci_element<D> E;
  C more[ACI_LINE] = {};
#pragma unroll
  for (int u = 0; u < ACI_LINE; u += V) {
#pragma unroll
    for (int k = 0; k < V; k++) x.v[u + k] = 0;
    if (x.at(c, u) >= x.n) continue;
    addends<D, C, V>(a.residual, row, x.at(c, u), x.v + u);
    addends<D, C, V>(a.addend, row, x.at(c, u), more + u);
  }
  ACI_LINE_EACH(i) x.v[i] = E::template load<C>(E::template store<C>(x.v[i] + more[i]));
#pragma unroll
  for (int u = 0; u < ACI_LINE; u += V)
    aci_line_store((void *)a.x, row * a.x_stride + x.at(c, u), x.at(c, u) < x.n, x, x.v + u);
}

template <bool ADD, int D, class C, int V>
ACI_DEVICE line_stats<C> stats_of(const line_args &a, aci_line<D, C, V> &x, int64_t row,
                                  aci_two *shared, int lane) {
  const double n = (double)a.l.n;
  line_stats<C> s = {0, 0, 0};
  aci_two sum = {0, 0};
  for (int64_t c = 0; c < a.l.n_chunks; c++) {
    C mine = 0;
    if (ADD) add_chunk(a, x, row, c);
    else x.load(c, true);
    ACI_LINE_EACH(i) mine += x.v[i];
    sum.a += (double)mine;
  }
  if (!a.rms) s.mean = (C)(aci_line_join<aci_add_two>(sum, shared, lane, a.l.lanes).a / n);
  sum.a = sum.b = 0;
  for (int64_t c = 0; c < a.l.n_chunks; c++) {
    C d1 = 0, d2 = 0;
    x.load(c, a.l.n_chunks > 1);
    ACI_LINE_EACH(i) {
      const C d = x.at(c, i) < x.n ? x.v[i] - s.mean : (C)0;
      d1 += d;
      d2 = fma(d, d, d2);
    }
    sum.a += (double)d1;
    sum.b += (double)d2;
  }
  sum = aci_line_join<aci_add_two>(sum, shared, lane, a.l.lanes);
  const double rest = a.rms ? 0 : sum.a / n;
  s.rest = (C)rest;
  /* of threads without a row: 0, for nothing times infinity would spoil sums over rows */
  s.rstd = x.n > 0 ? (C)(1 / sqrt(sum.b / n - rest * rest + a.eps)) : (C)0;
  return s;
}

/* V values of a weight from column `at` of n. `missing` if there is none. */
template <int D, class C, int V>
ACI_DEVICE void weights(const void *p, ac_dtype dt, C missing, int64_t at, int64_t n, C *to) {
#pragma unroll
  for (int k = 0; k < V; k++) to[k] = missing;
  if (p != NULL && at < n) aci_line_values<D, C, V>(dt, p, at, to);
}

/* Most rows fit the smaller block, of which three share a multiprocessor. */
template <int D, class C, int V, int THREADS, bool ADD>
static __global__ void __launch_bounds__(THREADS, THREADS <= ACI_LINE_BLOCK ? 3 : 1)
    norm_lines(const __grid_constant__ line_args a) {
  __shared__ aci_two shared[THREADS];
  const int lane = (int)threadIdx.x % a.l.lanes, side = (int)blockDim.x / a.l.lanes;
  for (int64_t first = (int64_t)blockIdx.x * side; first < a.l.rows;
       first += (int64_t)gridDim.x * side) {
    const int64_t row = first + (int)threadIdx.x / a.l.lanes;
    aci_line<D, C, V> x(a.x, row, a.x_stride, row < a.l.rows, lane, a.l);
    const line_stats<C> s = stats_of<ADD>(a, x, row, shared, lane);
    for (int64_t c = 0; c < a.l.n_chunks; c++) {
      x.load(c, a.l.n_chunks > 1);
#pragma unroll
      for (int u = 0; u < ACI_LINE; u += V) {
        C w[V], b[V], y[V];
        weights<D, C, V>(a.w, a.w_dt, (C)1, x.at(c, u), x.n, w);
        weights<D, C, V>(a.b, a.b_dt, (C)0, x.at(c, u), x.n, b);
#pragma unroll
        for (int k = 0; k < V; k++)
          y[k] = fma(((x.v[u + k] - s.mean) - s.rest) * s.rstd, w[k], b[k]);
        aci_line_store(a.out, row * a.out_stride + x.at(c, u), x.at(c, u) < x.n, x, y);
      }
    }
  }
}

/* dx of one row: with h = (x - mean) * rstd and g = dy * w, dx = rstd * (g - mean(g) - h * mean(g *
 * h)), without mean(g) for rms. The `lanes` threads of the row hold its elements in registers if it
 * is one chunk. Longer rows are read again for the second pass. FUSED (rows of one chunk): adds
 * this row's dy * h and dy to the thread's dw and db. mine: the row exists. All threads must call
 * it, since they meet in the joins. */
template <int D, class C, int V, bool FUSED>
ACI_DEVICE void back_row(const line_args &a, int64_t row, bool mine, int lane, aci_two *shared,
                         C *dw, C *db) {
  aci_line<D, C, V> x(a.x, row, a.x_stride, mine, lane, a.l),
      dy(a.dy, row, a.dy_stride, mine, lane, a.l);
  const bool again = a.l.n_chunks > 1;
  aci_two sum = {0, 0};
  dy.load(0, !again); /* loads that run while the statistics are computed */
  const line_stats<C> s = stats_of<false>(a, x, row, shared, lane);
  for (int64_t c = 0; c < a.l.n_chunks; c++) {
    C g1 = 0, g2 = 0;
    x.load(c, again);
    dy.load(c, again);
#pragma unroll
    for (int u = 0; u < ACI_LINE; u += V) {
      C w[V];
      weights<D, C, V>(a.w, a.w_dt, (C)1, x.at(c, u), x.n, w);
#pragma unroll
      for (int k = 0; k < V; k++) {
        const C h = ((x.v[u + k] - s.mean) - s.rest) * s.rstd, g = dy.v[u + k];
        if (FUSED) {
          dw[u + k] = fma(g, h, dw[u + k]);
          db[u + k] += g;
        }
        g1 = fma(g, w[k], g1);
        g2 = fma(g * w[k], h, g2);
      }
    }
    sum.a += (double)g1;
    sum.b += (double)g2;
  }
  sum = aci_line_join<aci_add_two>(sum, shared, lane, a.l.lanes);
  const C c1 = (C)(a.rms ? 0 : sum.a / (double)a.l.n), c2 = (C)(sum.b / (double)a.l.n);
  for (int64_t c = 0; c < a.l.n_chunks; c++) {
    x.load(c, again);
    dy.load(c, again);
#pragma unroll
    for (int u = 0; u < ACI_LINE; u += V) {
      C w[V], dx[V];
      weights<D, C, V>(a.w, a.w_dt, (C)1, x.at(c, u), x.n, w);
#pragma unroll
      for (int k = 0; k < V; k++)
        dx[k] =
            s.rstd * (fma(dy.v[u + k], w[k], -c1) - ((x.v[u + k] - s.mean) - s.rest) * s.rstd * c2);
      if (a.addend.p != NULL && x.at(c, u) < x.n) {
        C more[V];
        addends<D, C, V>(a.addend, row, x.at(c, u), more);
#pragma unroll
        for (int k = 0; k < V; k++) dx[k] += more[k];
      }
      aci_line_store(a.out, row * a.out_stride + x.at(c, u), x.at(c, u) < x.n, x, dx);
    }
  }
  if (!FUSED && a.stats != NULL && mine && lane == 0) ((line_stats<C> *)a.stats)[row] = s;
}

template <int D, class C, int V>
static __global__ void __launch_bounds__(ACI_LINE_THREADS)
    norm_lines_back(const __grid_constant__ line_args a) {
  __shared__ aci_two shared[ACI_LINE_THREADS];
  const int t = (int)threadIdx.x, lane = t % a.l.lanes, side = (int)blockDim.x / a.l.lanes;
  for (int64_t k = blockIdx.x; k < a.n_pieces; k += gridDim.x) {
    const int64_t begin = k * a.piece,
                  end = begin + a.piece < a.l.rows ? begin + a.piece : a.l.rows;
    C dw[ACI_LINE] = {}, db[ACI_LINE] = {};
    for (int64_t first = begin; first < end; first += side) {
      const int64_t row = first + t / a.l.lanes;
      back_row<D, C, V, true>(a, row, row < end, lane, shared, dw, db);
    }
    if (a.part == NULL) continue;
    const aci_line<D, C, V> like(a.x, begin, a.x_stride, true, lane, a.l);
    ACI_LINE_EACH(i) { /* the rows side by side in the block */
      const aci_two mine = {(double)dw[i], (double)db[i]};
      __syncthreads();
      shared[t] = mine;
      for (int half = side / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t / a.l.lanes < half)
          shared[t] = aci_add_two::of(shared[t], shared[t + half * a.l.lanes]);
      }
      if (t < a.l.lanes && like.at(0, i) < a.l.n) {
        C *to = (C *)a.part + k * 2 * a.l.n + like.at(0, i);
        to[0] = (C)shared[t].a;
        to[a.l.n] = (C)shared[t].b;
      }
    }
  }
}

template <int D, class C, int V>
static __global__ void __launch_bounds__(ACI_LINE_THREADS)
    norm_long_lines_back(const __grid_constant__ line_args a) {
  __shared__ aci_two shared[ACI_LINE_THREADS];
  for (int64_t row = blockIdx.x; row < a.l.rows; row += gridDim.x)
    back_row<D, C, V, false>(a, row, true, (int)threadIdx.x, shared, (C *)NULL, (C *)NULL);
}

/* The columns' sums of a piece of rows: a thread has V columns. */
template <int D, class C, int V>
static __global__ void __launch_bounds__(COLUMN_VECTORS)
    norm_line_columns(const __grid_constant__ line_args a) {
  const int64_t tiles = (a.l.n / V + COLUMN_VECTORS - 1) / COLUMN_VECTORS;
  for (int64_t item = blockIdx.x; item < tiles * a.n_pieces; item += gridDim.x) {
    const int64_t at = (item % tiles * COLUMN_VECTORS + threadIdx.x) * V, k = item / tiles,
                  begin = k * a.piece;
    const int64_t end = begin + a.piece < a.l.rows ? begin + a.piece : a.l.rows;
    C dw[V] = {}, db[V] = {};
    if (at >= a.l.n) continue;
    for (int64_t row = begin; row < end; row++) {
      const line_stats<C> s = ((const line_stats<C> *)a.stats)[row];
      C x[V], dy[V];
      aci_line_values<D, C, V>((ac_dtype)D, a.x, row * a.x_stride + at, x);
      aci_line_values<D, C, V>((ac_dtype)D, a.dy, row * a.dy_stride + at, dy);
#pragma unroll
      for (int i = 0; i < V; i++) {
        dw[i] = fma(dy[i], ((x[i] - s.mean) - s.rest) * s.rstd, dw[i]);
        db[i] += dy[i];
      }
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
      ((C *)a.part)[k * 2 * a.l.n + at + i] = dw[i];
      ((C *)a.part)[(k * 2 + 1) * a.l.n + at + i] = db[i];
    }
  }
}

struct column_args {
  const void *part;
  int64_t n, n_pieces; /* n: of dw, and as many of db */
  void *out[2];        /* dw, db. NULL: not wanted */
  ac_dtype dt[2];
};
/* Pieces together: SIDE columns of DEEP lanes a block. */
template <class C>
static __global__ void __launch_bounds__(SIDE *DEEP)
    norm_pieces(const __grid_constant__ column_args a) {
  __shared__ double shared[SIDE * DEEP];
  const int t = (int)threadIdx.x, deep = t / SIDE;
  for (int64_t first = (int64_t)blockIdx.x * SIDE; first < 2 * a.n;
       first += (int64_t)gridDim.x * SIDE) {
    const int64_t i = first + t % SIDE;
    double sum = 0;
    if (i < 2 * a.n) {
#pragma unroll 8
      for (int64_t k = deep; k < a.n_pieces; k += DEEP)
        sum += (double)((const C *)a.part)[k * 2 * a.n + i];
    }
    __syncthreads();
    shared[t] = sum;
    for (int half = DEEP / 2; half > 0; half /= 2) {
      __syncthreads();
      if (deep < half) shared[t] += shared[t + half * SIDE];
    }
    const int which = i < a.n ? 0 : 1;
    if (deep == 0 && i < 2 * a.n && a.out[which] != NULL)
      aci_put(a.dt[which], a.out[which], i - which * a.n, shared[t]);
  }
}

/* ---- launches ---- */
template <int D, class C, bool ADD>
static ac_status forward(ac_frame *f, line_args a, bool wide, ac_err *e) {
  enum {
    V = 16 / sizeof(typename aci_element<D>::bits),
    LONG = ACI_LINE_THREADS,
    SHORT = ACI_LINE_BLOCK
  };
  a.l = aci_lines_cut(a.l.rows, a.l.n);
  const int block = aci_lines_block(a.l);
  const aci_shape_of_launch shape(dim3(aci_blocks(f->device, a.l.rows, block / a.l.lanes)),
                                  dim3((unsigned)block));
  if (block > SHORT || !wide) /* rows that lie unaligned are rare: one kernel for both blocks */
    return wide ? aci_launch(f, "norm", norm_lines<D, C, V, LONG, ADD>, shape, e, a)
                : aci_launch(f, "norm", norm_lines<D, C, 1, LONG, ADD>, shape, e, a);
  return aci_launch(f, "norm", norm_lines<D, C, V, SHORT, ADD>, shape, e, a);
}

template <int D, class C, int V> static ac_status backward_by(ac_frame *f, line_args a, ac_err *e) {
  const size_t parameters = f->n_out > 1 ? (size_t)(PIECES * 2 * a.l.n) * sizeof(C) : 0;
  ac_block *scratch = NULL;
  ac_status st;
  a.piece = (a.l.rows + PIECES - 1) / PIECES;
  a.n_pieces = (a.l.rows + a.piece - 1) / a.piece;
  a.l = aci_lines_cut(a.l.rows, a.l.n);
  const bool fused = a.l.n_chunks == 1;
  if (parameters > 0) {
    AC_TRY(ac_block_alloc(f->device,
                          parameters + (fused ? 0 : (size_t)a.l.rows * sizeof(line_stats<C>)),
                          AC_MEM_ACTIVATION, f->stream, &scratch, e));
    a.part = scratch->ptr;
    if (!fused) a.stats = (char *)scratch->ptr + parameters;
  }
  if (fused) {
    const int block = aci_lines_block(a.l);
    const aci_shape_of_launch shape(dim3(aci_blocks(f->device, a.n_pieces, 1)),
                                    dim3((unsigned)block));
    st = aci_launch(f, "norm (backward)", norm_lines_back<D, C, V>, shape, e, a);
  } else {
    const aci_shape_of_launch shape(dim3(aci_blocks(f->device, a.l.rows, 1)),
                                    dim3((unsigned)a.l.lanes));
    st = aci_launch(f, "norm (backward)", norm_long_lines_back<D, C, V>, shape, e, a);
    const int64_t tiles = (a.l.n / V + COLUMN_VECTORS - 1) / COLUMN_VECTORS;
    const aci_shape_of_launch columns(dim3(aci_blocks(f->device, tiles * a.n_pieces, 1)),
                                      dim3(COLUMN_VECTORS));
    if (st == AC_OK && parameters > 0)
      st = aci_launch(f, "norm (columns)", norm_line_columns<D, C, V>, columns, e, a);
  }
  if (st == AC_OK && parameters > 0) {
    column_args p = {a.part, a.l.n, a.n_pieces, {NULL, NULL}, {AC_F32, AC_F32}};
    for (int k = 1; k < f->n_out; k++) {
      p.out[k - 1] = aci_data(f->out[k]);
      p.dt[k - 1] = (ac_dtype)f->out[k]->dtype;
    }
    const aci_shape_of_launch shape(dim3(aci_blocks(f->device, 2 * a.l.n, SIDE)),
                                    dim3(SIDE * DEEP));
    st = aci_launch(f, "norm (pieces)", norm_pieces<C>, shape, e, p);
  }
  ac_block_free(scratch);
  return st;
}
template <int D, class C>
static ac_status run(ac_frame *f, const line_args &a, bool back, bool wide, ac_err *e) {
  enum { V = 16 / sizeof(typename aci_element<D>::bits) };
  if (back) return wide ? backward_by<D, C, V>(f, a, e) : backward_by<D, C, 1>(f, a, e);
  return a.residual.p != NULL ? forward<D, C, true>(f, a, wide, e)
                              : forward<D, C, false>(f, a, wide, e);
}

/* A parameter as a run of x's dtype or of f32, an addend as rows. False: it has another layout. */
static bool parameter(const norm_args &n, bool there, const aci_reduce_plan &p, const void **to,
                      ac_dtype *dt, bool *wide) {
  int64_t stride;
  *to = NULL;
  *dt = AC_F32;
  if (!there) return true;
  if (!aci_lines_of(p, &stride) || (p.dt != n.x.dt && p.dt != AC_F32)) return false;
  *to = p.ptr;
  *dt = p.dt;
  *wide = *wide && (uintptr_t)p.ptr % 16 == 0;
  return true;
}

static bool added(const norm_args &n, bool there, const aci_reduce_plan &p, line_rows *to,
                  bool *wide) {
  const ac_dtype sum = n.x.dt;
  if (!there) return true;
  if (!aci_lines_of(p, &to->stride)) return false;
  to->p = p.ptr;
  to->dt = p.dt;
  *wide = *wide && aci_lines_wide(p.ptr, sum, n.x.n_reduced, to->stride);
  return p.dt == sum ||
         (sum == AC_F64 ? p.dt == AC_F32 : sum == AC_F32 && (p.dt == AC_BF16 || p.dt == AC_F16));
}

ac_status aci_cuda_norm_lines(ac_frame *f, const norm_args *n, bool back, ac_err *e) {
  line_args a = {};
  bool wide = true;
  a.l.rows = n->x.n_out;
  a.l.n = n->x.n_reduced;
  a.x = n->x.ptr;
  a.out = (void *)n->out.ptr;
  a.rms = n->rms;
  a.eps = n->eps;
  if (!aci_lines_of(n->x, &a.x_stride) || !aci_lines_of(n->out, &a.out_stride))
    return AC_UNSUPPORTED;
  if (back && !aci_lines_of(n->dy, &a.dy_stride)) return AC_UNSUPPORTED;
  if (!parameter(*n, n->has_w, n->w, &a.w, &a.w_dt, &wide) ||
      !parameter(*n, n->has_b, n->b, &a.b, &a.b_dt, &wide))
    return AC_UNSUPPORTED;
  if (back && n->dy.dt != n->x.dt) return AC_UNSUPPORTED;
  wide = wide && aci_lines_wide(a.x, n->x.dt, a.l.n, a.x_stride) &&
         aci_lines_wide(a.out, n->x.dt, a.l.n, a.out_stride);
  if (back) {
    a.dy = n->dy.ptr;
    wide = wide && aci_lines_wide(a.dy, n->x.dt, a.l.n, a.dy_stride);
  }
  /* the order of sums depends on it: a forward uses the choice for sum alone */
  bool all_wide = wide;
  if (!added(*n, n->has_residual, n->residual, &a.residual, &all_wide) ||
      !added(*n, n->has_addend, n->addend, &a.addend, &all_wide) || (all_wide != wide && !back))
    return AC_UNSUPPORTED;
  wide = all_wide;
  switch (n->x.dt) {
    case AC_F64: return run<AC_F64, double>(f, a, back, wide, e);
    case AC_BF16: return run<AC_BF16, float>(f, a, back, wide, e);
    case AC_F16: return run<AC_F16, float>(f, a, back, wide, e);
    default: return run<AC_F32, float>(f, a, back, wide, e);
  }
}
