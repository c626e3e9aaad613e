/* Attention without tensor cores, forward and backward: f32 and f64, heads of any width, and 16-bit
 * types on chips or for heads that the tensor cores' kernels do not take. A block of T x T threads
 * owns 4T queries (dK, dV: keys) and DV of their columns. Tiles of 4T keys (queries) come through
 * shared memory. A thread has 4 x 4 scores and 4 rows of its columns. Sums run in one order. */
#include "ops/attention/flash.cuh"
#include "ops/cuda/warp.cuh"

/* T and STEP: columns (scores) or rows (weights) that are staged at once. */
template <class C> struct plain_side;
#ifdef ACI_CUDA_EMULATED
template <> struct plain_side<float> {
  enum { T = 4, STEP = 8 };
};
template <> struct plain_side<double> {
  enum { T = 4, STEP = 8 };
};
#else
template <> struct plain_side<float> {
  enum { T = 16, STEP = 32 };
};
template <> struct plain_side<double> {
  enum { T = 8, STEP = 16 };
};
#endif

/* The block's own part of the work: `row` 0 .. T - 1 owns rows row + T i of a tile, `col` columns
 * col + T j of scores and 4 col .. + 3 of every 4T of the output. */
template <class C> struct plain_thread {
  enum { T = plain_side<C>::T, N = 4 * T };
  int row, col;
  __device__ __forceinline__ plain_thread()
      : row((int)threadIdx.x / T), col((int)threadIdx.x % T) {}
};
/* Rows of a matrix: n of them exist. */
template <class S> struct plain_rows {
  const S *p;
  int64_t stride, n;
};
template <class C, int DV> struct plain_shared {
  enum { N = 4 * plain_side<C>::T, STEP = plain_side<C>::STEP };
  enum {
    SCORES = 2 * N * (STEP + 4),
    VALUES = STEP * DV,
    MOST = SCORES > VALUES ? SCORES : VALUES
  };
  aci_vector<C, 4> staged[MOST / 4];
  aci_vector<C, 4> tile[N * (N + 4) / 4]; /* scores, then weights. A row has N + 4 elements */
};

/* x += rows of left times rows of right, transposed: over columns 0 .. d. */
template <int DT, class C, class S, int DV>
ACI_DEVICE void plain_scores(C (&x)[4][4], plain_rows<S> left, plain_rows<S> right, int64_t d,
                             plain_shared<C, DV> &sh) {
  enum { T = plain_side<C>::T, N = 4 * T, STEP = plain_side<C>::STEP, LD = STEP + 4 };
  const plain_thread<C> me;
  C *l = (C *)sh.staged, *r = l + N * LD;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) x[i][j] = 0;
  for (int64_t c0 = 0; c0 < d; c0 += STEP) {
    __syncthreads(); /* old contents were read */
    for (int i = (int)threadIdx.x; i < N * STEP; i += T * T) {
      const int row = i / STEP, c = i % STEP;
      l[row * LD + c] = row < left.n && c0 + c < d
                            ? aci_element<DT>::template load<C>(left.p[row * left.stride + c0 + c])
                            : (C)0;
      r[row * LD + c] =
          row < right.n && c0 + c < d
              ? aci_element<DT>::template load<C>(right.p[row * right.stride + c0 + c])
              : (C)0;
    }
    __syncthreads();
#pragma unroll 2
    for (int c = 0; c < STEP; c += 4) {
      aci_vector<C, 4> a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        a[i] = *(const aci_vector<C, 4> *)(l + (me.row + T * i) * LD + c);
        b[i] = *(const aci_vector<C, 4> *)(r + (me.col + T * i) * LD + c);
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
          for (int k = 0; k < 4; k++) x[i][j] = fma(a[i].v[k], b[j].v[k], x[i][j]);
    }
  }
}

/* o += the tile in sh times N rows of v, columns c0 .. c0 + DV of d. */
template <int DT, class C, class S, int DV>
ACI_DEVICE void plain_weigh(C (&o)[4][DV / plain_side<C>::T], plain_rows<S> v, int64_t c0,
                            int64_t d, plain_shared<C, DV> &sh) {
  enum { T = plain_side<C>::T, N = 4 * T, STEP = plain_side<C>::STEP };
  const plain_thread<C> me;
  C *x = (C *)sh.staged;
  const C *p = (const C *)sh.tile;
  for (int k0 = 0; k0 < N; k0 += STEP) {
    __syncthreads(); /* the tile is written, the old contents of x were read */
    for (int i = (int)threadIdx.x; i < STEP * DV; i += T * T) {
      const int row = k0 + i / DV, c = i % DV;
      x[i] = row < v.n && c0 + c < d
                 ? aci_element<DT>::template load<C>(v.p[row * v.stride + c0 + c])
                 : (C)0;
    }
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < STEP; k += 4) {
      aci_vector<C, 4> w[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        w[i] = *(const aci_vector<C, 4> *)(p + (me.row + T * i) * (N + 4) + k0 + k);
#pragma unroll
      for (int kk = 0; kk < 4; kk++)
#pragma unroll
        for (int c = 0; c < DV / N; c++) {
          const aci_vector<C, 4> y =
              *(const aci_vector<C, 4> *)(x + (k + kk) * DV + c * N + 4 * me.col);
#pragma unroll
          for (int i = 0; i < 4; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) o[i][4 * c + e] = fma(w[i].v[kk], y.v[e], o[i][4 * c + e]);
        }
    }
  }
}

template <int DT, class C, class S, int DV>
ACI_DEVICE void plain_put(const C (&o)[4][DV / plain_side<C>::T], const C (&by)[4], S *x,
                          int64_t stride, int64_t rows, int64_t c0, int64_t d) {
  enum { T = plain_side<C>::T, N = 4 * T };
  const plain_thread<C> me;
  for (int i = 0; i < 4; i++)
    for (int c = 0; c < DV / T; c++) {
      const int64_t row = me.row + T * i, at = c0 + c / 4 * N + 4 * me.col + c % 4;
      if (row < rows && at < d)
        x[row * stride + at] = aci_element<DT>::template store<C>(o[i][c] * by[i]);
    }
}

ACI_DEVICE float plain_exp2(float x) { return exp2f(x); }
ACI_DEVICE double plain_exp2(double x) { return exp2(x); }

/* Which tile (of n_tiles), head (of n_heads), entry of the batch and columns are the block's. */
struct plain_task {
  int64_t tile, h, b, c0;
  __device__ __forceinline__ plain_task(int64_t n_tiles, int64_t n_heads, int64_t d, int dv) {
    const int64_t slices = (d + dv - 1) / dv, x = blockIdx.x;
    c0 = x % slices * dv;
    tile = x / slices % n_tiles;
    h = x / slices / n_tiles % n_heads;
    b = x / slices / n_tiles / n_heads;
  }
};

template <int DT, class C, class S, int DV>
static __global__ void __launch_bounds__(plain_side<C>::T *plain_side<C>::T, 2)
    plain_forward(const __grid_constant__ flash_args a) {
  enum { T = plain_side<C>::T, N = 4 * T, EACH = 16 };
  __shared__ plain_shared<C, DV> sh;
  __shared__ C most[N], sum[N], old[N];
  const plain_thread<C> me;
  const plain_task w((a.tq + N - 1) / N, a.hq, a.d, DV);
  const int64_t q0 = w.tile * N, hk = w.h / (a.hq / a.hkv),
                keys = a.causal && q0 + N < a.tk ? q0 + N : a.tk;
  const flash_scores<C> score(a, w.b, w.h);
  const plain_rows<S> q = {flash_row<S>(a.q, w.b, w.h, q0), a.q.s[2], a.tq - q0};
  C o[4][DV / T] = {}, s[4][4];
  for (int i = (int)threadIdx.x; i < N; i += T * T) {
    most[i] = (C)-INFINITY;
    sum[i] = 0;
  }
  for (int64_t k0 = 0; k0 < keys; k0 += N) {
    const plain_rows<S> k = {flash_row<S>(a.k, w.b, hk, k0), a.k.s[2], a.tk - k0},
                        v = {flash_row<S>(a.v, w.b, hk, k0), a.v.s[2], a.tk - k0};
    plain_scores<DT>(s, q, k, a.d, sh);
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) {
        const int64_t row = q0 + me.row + T * i, key = k0 + me.col + T * j;
        ((C *)sh.tile)[(me.row + T * i) * (N + 4) + me.col + T * j] =
            score.seen(row, key) ? score.of(s[i][j], row, key) : (C)-INFINITY;
      }
    __syncthreads();
    /* T / 4 threads a row, neighbours, with EACH of its weights each */
    const int row = (int)threadIdx.x / (T / 4), first = (int)threadIdx.x % (T / 4) * EACH;
    C *p = (C *)sh.tile + row * (N + 4) + first, top = most[row], l = 0;
    for (int c = 0; c < EACH; c++) top = p[c] > top ? p[c] : top;
    for (int half = T / 8; half > 0; half /= 2) {
      const C other = aci_from_lane_xor(top, half);
      top = other > top ? other : top;
    }
    const C base = top == (C)-INFINITY ? (C)0 : top;
    for (int c = 0; c < EACH; c++) l += p[c] = plain_exp2(p[c] - base);
    for (int half = T / 8; half > 0; half /= 2) l += aci_from_lane_xor(l, half);
    if (a.drop && q0 + row < a.tq)
      for (int c = 0; c < EACH; c += 4) {
        const int64_t key = k0 + first + c;
        if (a.tk % 4 == 0) { /* four keys, one counter */
          const aci_u32x4 word = aci_philox(
              a.drop_key, (uint64_t)(score.drop + (q0 + row) * a.tk + key) / 4, a.drop_counter);
          for (int e = 0; e < 4; e++) p[c + e] *= score.factor(word.v[e]);
        } else {
          for (int e = 0; e < 4; e++) p[c + e] *= score.drop_one(q0 + row, key + e);
        }
      }
    if (first == 0) {
      old[row] = plain_exp2(most[row] - base);
      sum[row] = sum[row] * old[row] + l;
      most[row] = top;
    }
    __syncthreads();
    for (int i = 0; i < 4; i++)
      for (int c = 0; c < DV / T; c++) o[i][c] *= old[me.row + T * i];
    plain_weigh<DT>(o, v, w.c0, a.d, sh);
  }
  __syncthreads();
  C by[4];
  for (int i = 0; i < 4; i++) {
    const int row = me.row + T * i;
    const C l = sum[row];
    by[i] = l == 0 ? (C)0 : 1 / l;
    if (w.c0 == 0 && me.col == 0 && q0 + row < a.tq)
      ((C *)a.lse)[(w.b * a.hq + w.h) * a.tq + q0 + row] =
          l == 0 ? (C)-INFINITY : fma(most[row], (C)0.69314718055994530942, (C)log(l));
  }
  plain_put<DT, C, S, DV>(o, by, flash_row<S>(a.out, w.b, w.h, q0), a.out.s[2], a.tq - q0, w.c0,
                          a.d);
}

/* ---- backward ---- */
/* Weight p of query i and key j, and its gradient, from products s and dp. With dropout p becomes
 * the factor of V. */
template <class C>
ACI_DEVICE void plain_grads(const flash_scores<C> &score, int64_t bh, int64_t i, int64_t j, C s,
                            C dp, C *p, C *ds) {
  const flash_args &a = score.a;
  *p = *ds = 0;
  if (!score.seen(i, j)) return;
  const C w = plain_exp2(score.of(s, i, j) - ((const C *)a.lse2)[bh * a.tq_pad + i]),
          f = a.drop ? score.drop_one(i, j) : (C)1;
  *p = w * f;
  *ds = w * (dp * f - ((const C *)a.delta)[bh * a.tq_pad + i]);
}

template <int DT, class C, class S, int DV>
static __global__ void __launch_bounds__(plain_side<C>::T *plain_side<C>::T, DV > 64 ? 1 : 2)
    plain_dq(const __grid_constant__ flash_args a) {
  enum { T = plain_side<C>::T, N = 4 * T };
  __shared__ plain_shared<C, DV> sh;
  const plain_thread<C> me;
  const plain_task w((a.tq + N - 1) / N, a.hq, a.d, DV);
  const int64_t q0 = w.tile * N, hk = w.h / (a.hq / a.hkv),
                keys = a.causal && q0 + N < a.tk ? q0 + N : a.tk;
  const flash_scores<C> score(a, w.b, w.h);
  const plain_rows<S> q = {flash_row<S>(a.q, w.b, w.h, q0), a.q.s[2], a.tq - q0},
                      g = {flash_row<S>(a.dout, w.b, w.h, q0), a.dout.s[2], a.tq - q0};
  C o[4][DV / T] = {}, s[4][4], dp[4][4];
  for (int64_t k0 = 0; k0 < keys; k0 += N) {
    const plain_rows<S> k = {flash_row<S>(a.k, w.b, hk, k0), a.k.s[2], a.tk - k0},
                        v = {flash_row<S>(a.v, w.b, hk, k0), a.v.s[2], a.tk - k0};
    plain_scores<DT>(s, q, k, a.d, sh);
    plain_scores<DT>(dp, g, v, a.d, sh);
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) {
        C p;
        plain_grads(score, w.b * a.hq + w.h, q0 + me.row + T * i, k0 + me.col + T * j, s[i][j],
                    dp[i][j], &p, &((C *)sh.tile)[(me.row + T * i) * (N + 4) + me.col + T * j]);
      }
    plain_weigh<DT>(o, k, w.c0, a.d, sh);
    __syncthreads(); /* the tile was read */
  }
  const C c = (C)a.scale, by[4] = {c, c, c, c};
  plain_put<DT, C, S, DV>(o, by, flash_row<S>(a.dq, w.b, w.h, q0), a.dq.s[2], a.tq - q0, w.c0, a.d);
}

/* Rows of tiles are keys, columns are queries of every query head that reads this key head. */
template <int DT, class C, class S, int DV>
static __global__ void __launch_bounds__(plain_side<C>::T *plain_side<C>::T, DV > 64 ? 1 : 2)
    plain_dkv(const __grid_constant__ flash_args a) {
  enum { T = plain_side<C>::T, N = 4 * T };
  __shared__ plain_shared<C, DV> sh;
  const plain_thread<C> me;
  const plain_task w((a.tk + N - 1) / N, a.hkv, a.d, DV);
  const int64_t k0 = w.tile * N, share = a.hq / a.hkv;
  const plain_rows<S> k = {flash_row<S>(a.k, w.b, w.h, k0), a.k.s[2], a.tk - k0},
                      v = {flash_row<S>(a.v, w.b, w.h, k0), a.v.s[2], a.tk - k0};
  C dk[4][DV / T] = {}, dv[4][DV / T] = {}, s[4][4], dp[4][4], *tile = (C *)sh.tile;
  for (int64_t h = w.h * share; h < (w.h + 1) * share; h++) {
    const flash_scores<C> score(a, w.b, h);
    for (int64_t q0 = a.causal ? k0 : 0; q0 < a.tq; q0 += N) {
      const plain_rows<S> q = {flash_row<S>(a.q, w.b, h, q0), a.q.s[2], a.tq - q0},
                          g = {flash_row<S>(a.dout, w.b, h, q0), a.dout.s[2], a.tq - q0};
      plain_scores<DT>(s, k, q, a.d, sh);
      plain_scores<DT>(dp, v, g, a.d, sh);
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          plain_grads(score, w.b * a.hq + h, q0 + me.col + T * j, k0 + me.row + T * i, s[i][j],
                      dp[i][j], &tile[(me.row + T * i) * (N + 4) + me.col + T * j], &dp[i][j]);
        }
      plain_weigh<DT>(dv, g, w.c0, a.d, sh);
      __syncthreads(); /* the tile was read */
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) tile[(me.row + T * i) * (N + 4) + me.col + T * j] = dp[i][j];
      plain_weigh<DT>(dk, q, w.c0, a.d, sh);
      __syncthreads();
    }
  }
  const C c = (C)a.scale, by[4] = {c, c, c, c}, one[4] = {1, 1, 1, 1};
  plain_put<DT, C, S, DV>(dk, by, flash_row<S>(a.dk, w.b, w.h, k0), a.dk.s[2], a.tk - k0, w.c0,
                          a.d);
  plain_put<DT, C, S, DV>(dv, one, flash_row<S>(a.dv, w.b, w.h, k0), a.dv.s[2], a.tk - k0, w.c0,
                          a.d);
}

/* ---- launches ---- */
template <class C>
static ac_status launch(ac_frame *f, const char *name, void (*kernel)(flash_args),
                        const flash_args &a, int64_t heads, int64_t length, int dv, ac_err *e) {
  enum { T = plain_side<C>::T, N = 4 * T };
  const int64_t blocks = a.b * heads * ((length + N - 1) / N) * ((a.d + dv - 1) / dv);
  if (blocks > INT32_MAX) return AC_FAIL(e, SHAPE, "attention over %lld blocks", (long long)blocks);
  return aci_launch(f, name, kernel, aci_shape_of_launch(dim3((unsigned)blocks), dim3(T * T)), e,
                    a);
}
template <int DT, class C, class S, int DV>
static ac_status run(ac_frame *f, bool back, const flash_args &a, ac_err *e) {
  if (!back) return launch<C>(f, "attention", plain_forward<DT, C, S, DV>, a, a.hq, a.tq, DV, e);
  AC_TRY(launch<C>(f, "attention (dq)", plain_dq<DT, C, S, DV>, a, a.hq, a.tq, DV, e));
  return launch<C>(f, "attention (dk, dv)", plain_dkv<DT, C, S, DV>, a, a.hkv, a.tk, DV, e);
}
static ac_status of_type(ac_frame *f, bool back, const flash_args &a, ac_err *e) {
#ifdef ACI_CUDA_EMULATED
  enum { NARROW = 16, WIDE = 32, DOUBLE = 16 };
#else
  enum { NARROW = 64, WIDE = 128, DOUBLE = 32 };
#endif
  const bool narrow = a.d <= NARROW;
  switch (a.dt) {
    case AC_F64: return run<AC_F64, double, double, DOUBLE>(f, back, a, e);
    case AC_BF16: return run<AC_BF16, float, uint16_t, WIDE>(f, back, a, e);
    case AC_F16: return run<AC_F16, float, uint16_t, WIDE>(f, back, a, e);
    default:
      return narrow ? run<AC_F32, float, float, NARROW>(f, back, a, e)
                    : run<AC_F32, float, float, WIDE>(f, back, a, e);
  }
}
ac_status aci_flash_plain_forward(ac_frame *f, const flash_args &a, ac_err *e) {
  return of_type(f, false, a, e);
}
ac_status aci_flash_plain_backward(ac_frame *f, const flash_args &a, ac_err *e) {
  return of_type(f, true, a, e);
}
