/* Attention backward on tensor cores, in two kernels so that every sum has one owner and one order.
 * Both compute scores and their
 * gradients anew from lse2 and delta (flash.cuh), P = 2^(t - lse2), dS = P (dP - delta), and keep
 * them in registers:
 *   keys:    a warp owns 16 M keys, with keys as rows, S' = K Q' and dP' = V dO' leave P' and dS'
 *            as operands of dV += P' dO, dK += dS' Q
 *   queries: a warp owns 16 M queries: S = Q K', dP = dO V', dQ += dS K
 * The other side comes in tiles of N rows, one ahead of their use. */
#include "ops/attention/flash_warp.cuh"

#ifdef ACI_TENSOR_CORES
template <int M, int N> ACI_DEVICE void flash_zero(float (&x)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) x[m][n][e] = 0;
}
#endif

/* dK and dV of ROWS keys of one key head, over all queries of the heads that share it. Shared
 * memory: keys and values (ROWS x D), two buffers of queries and of dout (N x D), two of their lse2
 * and delta. Fragments as in flash_forward.cu. */
template <int DT, int D, int M, int WARPS, int N, bool BARE>
static __global__ void __launch_bounds__(WARPS * 32)
    flash_keys(const __grid_constant__ flash_args a) {
#ifdef ACI_TENSOR_CORES
  constexpr int ROWS = 16 * M * WARPS, BYTES = 2 * D, THREADS = WARPS * 32;
  ACI_SHARED(shared);
  char *const ks = shared, *const vs = ks + ROWS * BYTES, *const qs = vs + ROWS * BYTES,
              *const gs = qs + 2 * N * BYTES;
  float *const stats = (float *)(gs + 2 * N * BYTES); /* [buffer][lse2, delta][N] */
  const int tq = (int)a.tq, tk = (int)a.tk, d = (int)a.d, n_blocks = (tk + ROWS - 1) / ROWS,
            share = (int)(a.hq / a.hkv);
  const int k0 = (int)blockIdx.x % n_blocks * ROWS, bh = (int)blockIdx.x / n_blocks,
            b = bh / (int)a.hkv, hk = bh % (int)a.hkv;
  const int lane = aci_lane(), g = lane / 4, t = lane % 4, row = (int)threadIdx.x / 32 * 16 * M;
  /* tiles of queries that attend to the block's first key, of one query head after the other */
  const int skip = a.causal ? k0 / N : 0, per_head = (tq + N - 1) / N - skip,
            n_tiles = per_head > 0 ? per_head * share : 0;

  float dk[M][D / 8][4], dv[M][D / 8][4];
  flash_zero(dk);
  flash_zero(dv);
  flash_fetch<D, ROWS, THREADS>(ks, flash_row<uint16_t>(a.k, b, hk, k0), a.k.s[2], tk - k0, d,
                                a.k.vectors);
  flash_fetch<D, ROWS, THREADS>(vs, flash_row<uint16_t>(a.v, b, hk, k0), a.v.s[2], tk - k0, d,
                                a.v.vectors);
  for (int j = -1; j < n_tiles; j++) {
    if (j >= 0) {
      aci_copy_wait<0>();
      __syncthreads(); /* tile j has arrived, and no thread reads the one before it any more */
    }
    if (j + 1 < n_tiles) {
      const int buffer = (j + 1) & 1, h = hk * share + (j + 1) / per_head,
                q0 = ((j + 1) % per_head + skip) * N;
      flash_fetch<D, N, THREADS>(qs + buffer * N * BYTES, flash_row<uint16_t>(a.q, b, h, q0),
                                 a.q.s[2], tq - q0, d, a.q.vectors);
      flash_fetch<D, N, THREADS>(gs + buffer * N * BYTES, flash_row<uint16_t>(a.dout, b, h, q0),
                                 a.dout.s[2], tq - q0, d, a.dout.vectors);
      const int64_t at = (b * a.hq + h) * a.tq_pad + q0;
      /* pieces of 4. tq_pad covers the tile */
      for (int i = (int)threadIdx.x; i < N / 2; i += THREADS)
        aci_copy16(aci_shared_of(stats + (buffer * 2 + i * 4 / N) * N + i * 4 % N),
                   (i * 4 < N ? (const float *)a.lse2 : (const float *)a.delta) + at + i * 4 % N,
                   16);
    }
    aci_copy_commit();
    if (j < 0) continue;
    const int h = hk * share + j / per_head, q0 = (j % per_head + skip) * N;
    if (a.causal && q0 + N - 1 < k0 + row)
      continue; /* all of the tile's queries lie before the warp's keys */
    char *const q = qs + (j & 1) * N * BYTES, *const dout = gs + (j & 1) * N * BYTES;
    const float *const lse2 = stats + (j & 1) * 2 * N, *const delta = lse2 + N;
    const flash_scores<float> score(a, b, h);
    float s[M][N / 8][4], dp[M][N / 8][4];
    flash_scores_of<DT, D, M, N>(s, ks, row, q);
    const bool edge = a.causal && q0 < k0 + row + 16 * M - 1;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int col = 8 * n + 2 * t + e % 2, i = q0 + col,
                    key = k0 + row + 16 * m + g + e / 2 * 8;
          float w;
          if (BARE) w = edge && i < key ? 0 : aci_exp2(fmaf(s[m][n][e], score.c, -lse2[col]));
          else w = score.seen(i, key) ? aci_exp2(score.of(s[m][n][e], i, key) - lse2[col]) : 0;
          s[m][n][e] = w;
        }
    flash_scores_of<DT, D, M, N>(dp, vs, row, dout);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int n = 0; n < N / 8; n++) {
        float f[4] = {1, 1, 1, 1};
        if (!BARE && a.drop) flash_drop_columns(f, score, q0 + 8 * n, k0 + row + 16 * m);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          dp[m][n][e] = s[m][n][e] *
                        ((BARE ? dp[m][n][e] : dp[m][n][e] * f[e]) - delta[8 * n + 2 * t + e % 2]);
          if (!BARE) s[m][n][e] *= f[e];
        }
      }
    flash_weigh<DT, D, M, N>(dv, s, dout);
    flash_weigh<DT, D, M, N>(dk, dp, q);
  }
  float scale[M][2], one[M][2];
#pragma unroll
  for (int m = 0; m < M; m++) {
    scale[m][0] = scale[m][1] = (float)a.scale;
    one[m][0] = one[m][1] = 1;
  }
  aci_copy_wait<0>(); /* no queries: the keys may be on their way still */
  __syncthreads();
  flash_put<DT, D, M>(dk, scale, ks, row, flash_row<uint16_t>(a.dk, b, hk, k0 + row), a.dk.s[2],
                      tk - k0 - row, d, a.dk.vectors);
  flash_put<DT, D, M>(dv, one, vs, row, flash_row<uint16_t>(a.dv, b, hk, k0 + row), a.dv.s[2],
                      tk - k0 - row, d, a.dv.vectors);
#endif
}

/* dQ of ROWS queries of one head, over all keys they attend to. Shared memory: queries and dout
 * (ROWS x D), two buffers of keys and of values (N x D). */
template <int DT, int D, int M, int WARPS, int N, bool BARE>
static __global__ void __launch_bounds__(WARPS * 32)
    flash_queries(const __grid_constant__ flash_args a) {
#ifdef ACI_TENSOR_CORES
  constexpr int ROWS = 16 * M * WARPS, BYTES = 2 * D, THREADS = WARPS * 32;
  ACI_SHARED(shared);
  char *const qs = shared, *const gs = qs + ROWS * BYTES, *const ks = gs + ROWS * BYTES,
              *const vs = ks + 2 * N * BYTES;
  const int tq = (int)a.tq, tk = (int)a.tk, d = (int)a.d, n_blocks = (tq + ROWS - 1) / ROWS,
            bh = (int)blockIdx.x / n_blocks;
  /* causal: the long ones first */
  const int q0 = (n_blocks - 1 - (int)blockIdx.x % n_blocks) * ROWS;
  const int b = bh / (int)a.hq, h = bh % (int)a.hq, hk = h / (int)(a.hq / a.hkv);
  const int n_tiles = ((a.causal && q0 + ROWS < tk ? q0 + ROWS : tk) + N - 1) / N;
  const int lane = aci_lane(), g = lane / 4, t = lane % 4, row = (int)threadIdx.x / 32 * 16 * M;
  const uint16_t *k = flash_row<uint16_t>(a.k, b, hk, 0), *v = flash_row<uint16_t>(a.v, b, hk, 0);
  const flash_scores<float> score(a, b, h);

  float dq[M][D / 8][4], lse2[M][2], delta[M][2];
  flash_zero(dq);
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int r = 0; r < 2; r++) { /* tq_pad covers the block's rows */
      const int64_t at = (int64_t)bh * a.tq_pad + q0 + row + 16 * m + 8 * r + g;
      lse2[m][r] = ((const float *)a.lse2)[at];
      delta[m][r] = ((const float *)a.delta)[at];
    }
  flash_fetch<D, ROWS, THREADS>(qs, flash_row<uint16_t>(a.q, b, h, q0), a.q.s[2], tq - q0, d,
                                a.q.vectors);
  flash_fetch<D, ROWS, THREADS>(gs, flash_row<uint16_t>(a.dout, b, h, q0), a.dout.s[2], tq - q0, d,
                                a.dout.vectors);
  for (int j = -1; j < n_tiles; j++) {
    if (j >= 0) {
      aci_copy_wait<0>();
      __syncthreads(); /* tile j has arrived, and no thread reads the one before it any more */
    }
    if (j + 1 < n_tiles) {
      const int at = ((j + 1) & 1) * N * BYTES, left = tk - (j + 1) * N;
      flash_fetch<D, N, THREADS>(ks + at, k, a.k.s[2], left, d, a.k.vectors);
      flash_fetch<D, N, THREADS>(vs + at, v, a.v.s[2], left, d, a.v.vectors);
      k += N * a.k.s[2];
      v += N * a.v.s[2];
    }
    aci_copy_commit();
    const int first = j * N;
    if (j < 0 || (a.causal && first > q0 + row + 16 * M - 1)) continue;
    const int at = (j & 1) * N * BYTES;
    float s[M][N / 8][4], dp[M][N / 8][4];
    flash_scores_of<DT, D, M, N>(s, qs, row, ks + at);
    flash_scores_of<DT, D, M, N>(dp, gs, row, vs + at);
    const bool edge = first + N > tk || (a.causal && first + N - 1 > q0 + row);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int n = 0; n < N / 8; n++) {
        float f[4] = {1, 1, 1, 1};
        if (!BARE && a.drop) flash_drop_rows(f, score, q0 + row + 16 * m, first + 8 * n);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int i = q0 + row + 16 * m + g + e / 2 * 8, key = first + 8 * n + 2 * t + e % 2;
          float w;
          if (BARE)
            w = edge && (key >= tk || (a.causal && key > i))
                    ? 0
                    : aci_exp2(fmaf(s[m][n][e], score.c, -lse2[m][e / 2]));
          else w = score.seen(i, key) ? aci_exp2(score.of(s[m][n][e], i, key) - lse2[m][e / 2]) : 0;
          dp[m][n][e] = w * ((BARE ? dp[m][n][e] : dp[m][n][e] * f[e]) - delta[m][e / 2]);
        }
      }
    flash_weigh<DT, D, M, N>(dq, dp, ks + at);
  }
  float scale[M][2];
#pragma unroll
  for (int m = 0; m < M; m++) scale[m][0] = scale[m][1] = (float)a.scale;
  aci_copy_wait<0>(); /* no keys: the queries may be on their way still */
  __syncthreads();
  flash_put<DT, D, M>(dq, scale, qs, row, flash_row<uint16_t>(a.dq, b, h, q0 + row), a.dq.s[2],
                      tq - q0 - row, d, a.dq.vectors);
#endif
}

/* The block's rows lie in shared memory as two tiles, the other side's as two in two buffers. */
template <int D, int M, int N>
static ac_status launch(ac_frame *f, const char *name, void (*kernel)(flash_args),
                        const flash_args &a, int64_t heads, int64_t length, ac_err *e) {
  enum { ROWS = 16 * M * FLASH_WARPS };
  static_assert(FLASH_PAD % N == 0 && FLASH_PAD % ROWS == 0,
                "sums over rows are read in whole tiles");
  return flash_launch(f, name, kernel, a, heads, length, ROWS,
                      (size_t)(2 * ROWS + 4 * N) * 2 * D + 4 * N * sizeof(float), e);
}
/* MK, MQ: pieces of 16 rows of keys and of queries that a warp owns. NK: queries in a tile for the
 * keys' kernel. */
template <int DT, int D, int MK, int MQ, int NK, bool BARE>
static ac_status run(ac_frame *f, const flash_args &a, ac_err *e) {
  AC_TRY((launch<D, MQ, FLASH_TILE>(f, "attention (dq)",
                                    flash_queries<DT, D, MQ, FLASH_WARPS, FLASH_TILE, BARE>, a,
                                    a.hq, a.tq, e)));
  return launch<D, MK, NK>(f, "attention (dk, dv)", flash_keys<DT, D, MK, FLASH_WARPS, NK, BARE>, a,
                           a.hkv, a.tk, e);
}
template <int DT> static ac_status run(ac_frame *f, const flash_args &a, ac_err *e) {
  enum { HALF = FLASH_TILE / 2 };
  if (flash_bare(a))
    return a.d <= 64 ? run<DT, 64, 1, 2, FLASH_TILE, true>(f, a, e)
                     : run<DT, 128, 1, 1, FLASH_TILE, true>(f, a, e);
  return a.d <= 64 ? run<DT, 64, 1, 1, FLASH_TILE, false>(f, a, e)
                   : run<DT, 128, 1, 1, HALF, false>(f, a, e);
}
ac_status aci_flash_warp_backward(ac_frame *f, const flash_args &a, ac_err *e) {
  return a.dt == AC_BF16 ? run<AC_BF16>(f, a, e) : run<AC_F16>(f, a, e);
}
