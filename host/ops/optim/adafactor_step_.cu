/* adafactor_step_ on CUDA: the formula of adafactor_step_.c, MOST parameters in seven launches.
 * Sums are double and in an order that the
 * shapes give. Learning rate and step count are read on the device.
 *
 * A parameter is `batch` matrices of rows x cols, or one row with its own variances. Doubles that
 * the launches pass on are in its scratch: alpha and scale, then by chunk of elements the sums of
 * p^2 and u^2, by row R and by matrix its divisor, by column C and, before it, the sums of g^2 in
 * tiles of TALL rows. */
#include "ops/optim/lists.cuh"
#include "ops/reduce/rows.cuh"

#include <float.h>

enum {
  PARAMS,
  GRADS,
  ROWS,
  COLS,
  VARS,
  LR,
  STEP,
  BETA2_DECAY,
  EPS1,
  EPS2,
  D,
  DECAY,
  MAXIMIZE,
  SCALED
};
enum {
  MOST = 32,
  CHUNK = 4096,
  TALL = 512,
  WIDE = 32 /* columns side by side */,
  SMALL = 512,
  SHORT = 64
};

namespace {
struct factor_part {
  void *p, *r, *c, *v; /* v NULL: factored */
  const void *g;
  double *scratch, eps1;
  int64_t batch, rows, cols;
  unsigned char p_dt, g_dt, r_dt, c_dt, v_dt;
  bool wide; /* computed in f64 */

  __host__ __device__ int64_t numel() const { return batch * rows * cols; }
  __host__ __device__ int64_t chunks() const { return (numel() + CHUNK - 1) / CHUNK; }
  __host__ __device__ int64_t tiles() const { return (rows + TALL - 1) / TALL; }
  __host__ __device__ double *p_part() const { return scratch + 2; }
  __host__ __device__ double *u_part() const { return p_part() + chunks(); }
  __host__ __device__ double *row() const { return u_part() + chunks(); }
  __host__ __device__ double *by() const { return row() + batch * rows; }
  __host__ __device__ double *col() const { return by() + batch; }
  __host__ __device__ double *col_part() const { return col() + batch * cols; }
  int64_t doubles() const {
    return 2 + 2 * chunks() + (v != NULL ? 0 : batch * (rows + 1 + cols * (1 + tiles())));
  }
};

struct factor_numbers {
  double weight, keep, rho;
};
struct factor_batch {
  factor_part part[MOST];
  int64_t first[MOST + 1]; /* work items of the parts before, of the launch at hand */
  int n;
  double eps2, d, sign;
  bool scaled;
  const factor_numbers *numbers;
};

ACI_DEVICE const factor_part &part_of(const factor_batch &b, int64_t *item) {
  int lo = 0, hi = b.n;
  while (hi - lo > 1) {
    const int mid = (lo + hi) / 2;
    if (b.first[mid] <= *item) lo = mid;
    else hi = mid;
  }
  *item -= b.first[lo];
  return b.part[lo];
}

static __global__ void prepare(aci_number lr, aci_number step, double beta2_decay,
                               double weight_decay, bool scaled, factor_numbers *out) {
  if (aci_first() != 0) return;
  const double rate = lr.get(), n = step.get() + 1, most = 1 / sqrt(n);
  out->weight = pow(n, beta2_decay);
  out->keep = 1 - rate * weight_decay;
  out->rho = rate < most || !scaled ? rate : most;
  step.set(n);
}

/* By chunk of elements: the sum of p^2. Also the variances of unfactored parameters. */
struct measure {
  static int64_t items(const factor_part &a) { return a.chunks(); }
  static __device__ void run(const factor_batch &b, const factor_part &a, int64_t item,
                             double *shared) {
    const double w = b.numbers->weight;
    double sum = 0;
    const int64_t end = (item + 1) * CHUNK < a.numel() ? (item + 1) * CHUNK : a.numel();
    for (int64_t i = item * CHUNK + threadIdx.x; i < end; i += blockDim.x) {
      const double p = aci_get<double>((ac_dtype)a.p_dt, a.p, i);
      sum += p * p;
      if (a.v == NULL) continue;
      if (a.wide) {
        const double g = aci_get<double>((ac_dtype)a.g_dt, a.g, i);
        const double v = aci_get<double>((ac_dtype)a.v_dt, a.v, i);
        aci_put((ac_dtype)a.v_dt, a.v, i, v + w * (g * g - v));
      } else {
        const float g = aci_get<float>((ac_dtype)a.g_dt, a.g, i);
        const float v = aci_get<float>((ac_dtype)a.v_dt, a.v, i);
        aci_put((ac_dtype)a.v_dt, a.v, i, m_fma((float)w, g * g - v, v));
      }
    }
    sum = aci_block_join<aci_add_op>(sum, shared);
    if (threadIdx.x == 0) a.p_part()[item] = sum;
  }
};

ACI_DEVICE double square_of_grad(const factor_part &a, int64_t i) {
  const double g = aci_get<double>((ac_dtype)a.g_dt, a.g, i);
  return g * g;
}
ACI_DEVICE void move_row(const factor_part &a, int64_t row, double sum, double weight) {
  const double old = aci_get<double>((ac_dtype)a.r_dt, a.r, row);
  const double now = old + weight * (sum / (double)a.cols - old);
  a.row()[row] = now;
  aci_put((ac_dtype)a.r_dt, a.r, row, now);
}
/* R: a thread for each short row, a block for each other. */
struct along_rows {
  static int64_t items(const factor_part &a) {
    const int64_t n = a.v != NULL ? 0 : a.batch * a.rows;
    return a.cols <= SHORT ? (n + ACI_BLOCK - 1) / ACI_BLOCK : n;
  }
  static __device__ void run(const factor_batch &b, const factor_part &a, int64_t item,
                             double *shared) {
    const double w = b.numbers->weight;
    double sum = 0;
    if (a.cols <= SHORT) {
      const int64_t row = item * ACI_BLOCK + threadIdx.x;
      if (row >= a.batch * a.rows) return;
      for (int64_t c = 0; c < a.cols; c++) sum += square_of_grad(a, row * a.cols + c);
      move_row(a, row, sum, w);
      return;
    }
    for (int64_t c = threadIdx.x; c < a.cols; c += blockDim.x)
      sum += square_of_grad(a, item * a.cols + c);
    sum = aci_block_join<aci_add_op>(sum, shared);
    if (threadIdx.x == 0) move_row(a, item, sum, w);
  }
};

/* By tile of TALL x WIDE: sums of g^2 down its columns. */
struct along_cols {
  static int64_t items(const factor_part &a) {
    return a.v != NULL ? 0 : a.batch * a.tiles() * ((a.cols + WIDE - 1) / WIDE);
  }
  static __device__ void run(const factor_batch &, const factor_part &a, int64_t item,
                             double *shared) {
    const int64_t across = (a.cols + WIDE - 1) / WIDE, tile = item / across; /* of all matrices */
    const int64_t c = item % across * WIDE + threadIdx.x % WIDE, m = tile / a.tiles();
    const int64_t begin = tile % a.tiles() * TALL,
                  end = begin + TALL < a.rows ? begin + TALL : a.rows;
    const int lane = (int)threadIdx.x / WIDE, lanes = (int)blockDim.x / WIDE;
    double sum = 0;
    for (int64_t r = begin + lane; r < end && c < a.cols; r += lanes)
      sum += square_of_grad(a, (m * a.rows + r) * a.cols + c);
    __syncthreads(); /* old contents were read */
    shared[threadIdx.x] = sum;
    for (int half = lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) shared[threadIdx.x] += shared[threadIdx.x + half * WIDE];
    }
    if (lane == 0 && c < a.cols) a.col_part()[tile * a.cols + c] = shared[threadIdx.x];
  }
};

/* Item 0: alpha. Then a matrix each: the mean of its rows. Then columns: C. */
struct settle {
  static int64_t items(const factor_part &a) {
    return a.v != NULL ? 1 : 1 + a.batch + (a.batch * a.cols + ACI_BLOCK - 1) / ACI_BLOCK;
  }
  static __device__ void run(const factor_batch &b, const factor_part &a, int64_t item,
                             double *shared) {
    double sum = 0;
    if (item == 0) {
      for (int64_t i = threadIdx.x; i < a.chunks(); i += blockDim.x) sum += a.p_part()[i];
      sum = aci_block_join<aci_add_op>(sum, shared);
      if (threadIdx.x == 0)
        a.scratch[0] =
            (b.scaled ? m_max(sqrt(sum / (double)a.numel()), b.eps2) : 1) * b.numbers->rho;
      return;
    }
    if (item <= a.batch) {
      const double *row = a.row() + (item - 1) * a.rows;
      for (int64_t i = threadIdx.x; i < a.rows; i += blockDim.x) sum += row[i];
      sum = aci_block_join<aci_add_op>(sum, shared);
      if (threadIdx.x == 0) a.by()[item - 1] = m_max(sum / (double)a.rows, a.eps1);
      return;
    }
    const int64_t at = (item - 1 - a.batch) * ACI_BLOCK + threadIdx.x;
    if (at >= a.batch * a.cols) return;
    const int64_t m = at / a.cols, c = at % a.cols;
    for (int64_t t = 0; t < a.tiles(); t++) sum += a.col_part()[(m * a.tiles() + t) * a.cols + c];
    const double old = aci_get<double>((ac_dtype)a.c_dt, a.c, at);
    const double now = old + b.numbers->weight * (sum / (double)a.rows - old);
    a.col()[at] = now;
    aci_put((ac_dtype)a.c_dt, a.c, at, now);
  }
};

template <class T> ACI_DEVICE T direction(const factor_part &a, int64_t i) {
  T row = 1, col;
  if (a.v != NULL) {
    col = aci_get<T>((ac_dtype)a.v_dt, a.v, i);
  } else {
    const int64_t r = i / a.cols, m = r / a.rows;
    row = (T)(a.row()[r] / a.by()[m]);
    col = (T)a.col()[m * a.cols + i % a.cols];
  }
  return aci_get<T>((ac_dtype)a.g_dt, a.g, i) / m_sqrt(m_max(row * col, (T)(a.eps1 * a.eps1)));
}

/* By chunk: the sum of u^2. */
struct length {
  static int64_t items(const factor_part &a) { return a.chunks(); }
  static __device__ void run(const factor_batch &, const factor_part &a, int64_t item,
                             double *shared) {
    double sum = 0;
    const int64_t end = (item + 1) * CHUNK < a.numel() ? (item + 1) * CHUNK : a.numel();
    for (int64_t i = item * CHUNK + threadIdx.x; i < end; i += blockDim.x) {
      const double u = a.wide ? direction<double>(a, i) : (double)direction<float>(a, i);
      sum += u * u;
    }
    sum = aci_block_join<aci_add_op>(sum, shared);
    if (threadIdx.x == 0) a.u_part()[item] = sum;
  }
};

struct limit {
  static int64_t items(const factor_part &) { return 1; }
  static __device__ void run(const factor_batch &b, const factor_part &a, int64_t, double *shared) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < a.chunks(); i += blockDim.x) sum += a.u_part()[i];
    sum = aci_block_join<aci_add_op>(sum, shared);
    if (threadIdx.x == 0)
      a.scratch[1] = a.scratch[0] / m_max(1.0, sqrt(sum / (double)a.numel()) / b.d);
  }
};

struct update {
  static int64_t items(const factor_part &a) { return a.chunks(); }
  template <class T>
  static __device__ void each(const factor_part &a, int64_t i, double keep, double scale) {
    const T p = aci_get<T>((ac_dtype)a.p_dt, a.p, i);
    aci_put((ac_dtype)a.p_dt, a.p, i, m_fma((T)scale, direction<T>(a, i), p * (T)keep));
  }
  static __device__ void run(const factor_batch &b, const factor_part &a, int64_t item, double *) {
    const double keep = b.numbers->keep, scale = -b.sign * a.scratch[1];
    const int64_t end = (item + 1) * CHUNK < a.numel() ? (item + 1) * CHUNK : a.numel();
    for (int64_t i = item * CHUNK + threadIdx.x; i < end; i += blockDim.x) {
      if (a.wide) each<double>(a, i, keep, scale);
      else each<float>(a, i, keep, scale);
    }
  }
};

} // namespace

template <class K>
static __global__ void __launch_bounds__(ACI_BLOCK)
    factor_kernel(const __grid_constant__ factor_batch b) {
  __shared__ double shared[ACI_BLOCK];
  for (int64_t i = blockIdx.x; i < b.first[b.n]; i += gridDim.x) {
    int64_t item = i;
    const factor_part &a = part_of(b, &item);
    K::run(b, a, item, shared);
  }
}

template <class K> static ac_status launch(ac_frame *f, factor_batch *b, ac_err *e) {
  for (int i = 0; i < b->n; i++) b->first[i + 1] = b->first[i] + K::items(b->part[i]);
  if (b->first[b->n] == 0) return AC_OK;
  return aci_launch(f, "adafactor", factor_kernel<K>, aci_blocks(f->device, b->first[b->n], 1), e,
                    *b);
}

static double epsilon(ac_dtype dt) {
  return dt == AC_F64    ? DBL_EPSILON
         : dt == AC_F32  ? (double)FLT_EPSILON
         : dt == AC_BF16 ? 0x1p-7
                         : 0x1p-10;
}

namespace {
/* Tensors as they are worked on, list by list. */
struct factor_lists {
  aci_lists of[VARS + 1];
  int next[VARS + 1];
  size_t at[VARS + 1];
  void *take(int list, unsigned char *dt) {
    const int i = next[list]++;
    *dt = of[list].list[0][i]->dtype;
    return aci_lists_data(&of[list], 0, i, &at[list]);
  }
};
} // namespace

static factor_part part_at(const ac_frame *f, factor_lists *l) {
  factor_part a = {};
  const ac_tensor *p = f->args[PARAMS].tensors[l->next[PARAMS]];
  a.p = l->take(PARAMS, &a.p_dt);
  a.g = l->take(GRADS, &a.g_dt);
  a.wide = a.p_dt == AC_F64 || a.g_dt == AC_F64;
  a.eps1 = f->args[EPS1].kind == AC_T_NONE ? epsilon((ac_dtype)p->dtype) : f->args[EPS1].f;
  a.batch = a.rows = 1;
  a.cols = p->numel;
  if (p->ndim <= 1) {
    a.v = l->take(VARS, &a.v_dt);
    return a;
  }
  a.r = l->take(ROWS, &a.r_dt);
  a.c = l->take(COLS, &a.c_dt);
  if (p->numel == 0) return a;
  a.cols = p->shape[p->ndim - 1];
  a.rows = p->shape[p->ndim - 2];
  a.batch = p->numel / (a.rows * a.cols);
  a.wide = a.wide || a.rows * a.cols <= SMALL;
  return a;
}

static ac_status walk(ac_frame *f, factor_lists l, factor_numbers *numbers, double *scratch,
                      ac_err *e) {
  const ac_value *a = f->args;
  AC_TRY(aci_launch(f, "adafactor", prepare, 1u, e, aci_number_of(a[LR].tensor),
                    aci_number_of(a[STEP].tensor), a[BETA2_DECAY].f, a[DECAY].f, a[SCALED].b,
                    numbers));
  while (l.next[PARAMS] < a[PARAMS].n) {
    factor_batch b = {};
    b.eps2 = a[EPS2].f;
    b.d = a[D].f;
    b.sign = a[MAXIMIZE].b ? -1 : 1;
    b.scaled = a[SCALED].b;
    b.numbers = numbers;
    while (b.n < MOST && l.next[PARAMS] < a[PARAMS].n) {
      factor_part p = part_at(f, &l);
      if (p.numel() == 0) continue;
      p.scratch = scratch;
      scratch += p.doubles();
      b.part[b.n++] = p;
    }
    if (b.n == 0) break;
    AC_TRY(launch<measure>(f, &b, e));
    AC_TRY(launch<along_rows>(f, &b, e));
    AC_TRY(launch<along_cols>(f, &b, e));
    AC_TRY(launch<settle>(f, &b, e));
    AC_TRY(launch<length>(f, &b, e));
    AC_TRY(launch<limit>(f, &b, e));
    AC_TRY(launch<update>(f, &b, e));
  }
  for (int k = PARAMS; k <= VARS; k++)
    if (k != GRADS) AC_TRY(aci_lists_back(&l.of[k], 1u, e));
  return AC_OK;
}

static ac_status run(ac_frame *f, ac_err *e) {
  factor_lists l = {};
  ac_block *block = NULL;
  ac_status st = AC_OK;
  for (int k = PARAMS; k <= VARS && st == AC_OK; k++) {
    aci_lists own = {f, f->args[k].n, 1, {f->args[k].tensors}};
    st = aci_lists_open(&own, 0, e);
    l.of[k] = own;
  }
  if (st == AC_OK) {
    factor_lists all = l;
    size_t doubles = 0;
    while (all.next[PARAMS] < f->args[PARAMS].n) doubles += (size_t)part_at(f, &all).doubles();
    st = ac_block_alloc(f->device, doubles * 8 + sizeof(factor_numbers), AC_MEM_ACTIVATION,
                        f->stream, &block, e);
  }
  if (st == AC_OK) {
    factor_numbers *numbers = (factor_numbers *)block->ptr;
    st = walk(f, l, numbers, (double *)(numbers + 1), e);
  }
  ac_block_free(block); /* the next user works after us in the same order */
  for (int k = PARAMS; k <= VARS; k++) ac_block_free(l.of[k].room);
  return st;
}
AC_KERNEL(cuda, adafactor_step_, run)
