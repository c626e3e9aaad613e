/* Attention forward on tensor cores. A block owns WARPS x 16 M queries of one head, a warp 16 M of
 * them. Tiles of N keys and values come one ahead of their use (cp.async, two buffers). Scores, the
 * running maximum and sum and the output stay in registers. The weights that a product leaves there
 * are the next product's operand. Causal: keys after the last query of the block are never read,
 * and warps skip keys that come after all their queries. */
#include "ops/attention/flash_warp.cuh"

/* Shared memory: the block's queries (ROWS x D), then two buffers of keys and two of values (N x D
 * each). A warp's rows are fragments of mma m16n8: of each 16 x 8 tile lane 4g + t holds columns
 * 2t, 2t + 1 of row g (elements 0, 1) and of row g + 8 (elements 2, 3), so a row's maximum and sum
 * are joined over the four lanes of one g. most, sum: per row so far. o: the output not yet divided
 * by sum, rescaled whenever most rises. BARE: no mask, slopes or dropout, and the scale is folded
 * into the exponential. */
template <int DT, int D, int M, int WARPS, int N, bool BARE>
static __global__ void __launch_bounds__(WARPS * 32)
    flash_forward(const __grid_constant__ flash_args a) {
#ifdef ACI_TENSOR_CORES
  constexpr int ROWS = 16 * M * WARPS, BYTES = 2 * D;
  ACI_SHARED(shared);
  char *const qs = shared, *const ks = qs + ROWS * BYTES, *const vs = ks + 2 * N * BYTES;
  const int tq = (int)a.tq, tk = (int)a.tk, d = (int)a.d, n_blocks = (tq + ROWS - 1) / ROWS,
            bh = (int)blockIdx.x / n_blocks;
  /* causal: the long ones first */
  const int q0 = (n_blocks - 1 - (int)blockIdx.x % n_blocks) * ROWS;
  const int b = bh / (int)a.hq, h = bh % (int)a.hq, hk = h / (int)(a.hq / a.hkv);
  const int n_tiles = ((a.causal && q0 + ROWS < tk ? q0 + ROWS : tk) + N - 1) / N;
  const int lane = aci_lane(), g = lane / 4, t = lane % 4, row = (int)threadIdx.x / 32 * 16 * M;
  const uint16_t *k = flash_row<uint16_t>(a.k, b, hk, 0), *v = flash_row<uint16_t>(a.v, b, hk, 0);
  const flash_scores<float> score(a, b, h);

  float o[M][D / 8][4] = {}, most[M][2], sum[M][2] = {};
#pragma unroll
  for (int m = 0; m < M; m++) most[m][0] = most[m][1] = -INFINITY;

  flash_fetch<D, ROWS, WARPS * 32>(qs, flash_row<uint16_t>(a.q, b, h, q0), a.q.s[2], tq - q0, d,
                                   a.q.vectors);
  for (int j = -1; j < n_tiles; j++) {
    if (j >= 0) {
      aci_copy_wait<0>();
      __syncthreads(); /* tile j has arrived, and no thread reads the one before it any more */
    }
    if (j + 1 < n_tiles) {
      const int at = ((j + 1) & 1) * N * BYTES, left = tk - (j + 1) * N;
      flash_fetch<D, N, WARPS * 32>(ks + at, k, a.k.s[2], left, d, a.k.vectors);
      flash_fetch<D, N, WARPS * 32>(vs + at, v, a.v.s[2], left, d, a.v.vectors);
      k += N * a.k.s[2];
      v += N * a.v.s[2];
    }
    aci_copy_commit();
    const int first = j * N;
    if (j < 0 || (a.causal && first > q0 + row + 16 * M - 1)) continue;
    const int at = (j & 1) * N * BYTES;
    float s[M][N / 8][4];
    flash_scores_of<DT, D, M, N>(s, qs, row, ks + at);

    const bool edge = first + N > tk || (a.causal && first + N - 1 > q0 + row);
#pragma unroll
    for (int m = 0; m < M; m++) {
      const int i = q0 + row + 16 * m + g;
      if (!BARE) {
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const int key = first + 8 * n + 2 * t + e % 2;
            s[m][n][e] = score.seen(i + e / 2 * 8, key) ? score.of(s[m][n][e], i + e / 2 * 8, key)
                                                        : -INFINITY;
          }
      } else if (edge) {
        const int end = tk - first, up = a.causal ? i + 1 - first : end,
                  low = a.causal ? up + 8 : end;
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const int key = 8 * n + 2 * t + e % 2;
            if (key >= end || key >= (e < 2 ? up : low)) s[m][n][e] = -INFINITY;
          }
      }
      const float c = BARE ? score.c : 1;
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float top = most[m][r];
#pragma unroll
        for (int n = 0; n < N / 8; n++) top = fmaxf(top, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
        top = fmaxf(top, aci_from_lane_xor(top, 1));
        top = fmaxf(top, aci_from_lane_xor(top, 2));
        const float base = top == -INFINITY ? 0 : top * c,
                    old = aci_exp2(fmaf(most[m][r], c, -base));
        most[m][r] = top;
        sum[m][r] *= old;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
          o[m][n][2 * r] *= old;
          o[m][n][2 * r + 1] *= old;
        }
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
          for (int e = 2 * r; e < 2 * r + 2; e++) {
            s[m][n][e] = aci_exp2(fmaf(s[m][n][e], c, -base));
            sum[m][r] += s[m][n][e];
          }
      }
      if (!BARE && a.drop) {
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
          float f[4];
          flash_drop_rows(f, score, i - g, first + 8 * n);
#pragma unroll
          for (int e = 0; e < 4; e++) s[m][n][e] *= f[e];
        }
      }
    }
    flash_weigh<DT, D, M, N>(o, s, vs + at);
  }

  float by[M][2];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float l = sum[m][r];
      l += aci_from_lane_xor(l, 1);
      l += aci_from_lane_xor(l, 2);
      by[m][r] = l == 0 ? 0 : 1 / l;
      const int i = q0 + row + 16 * m + 8 * r + g;
      const float lse =
          l == 0 ? -INFINITY
                 : fmaf(most[m][r] * (BARE ? score.c : 1), 0.69314718055994531f, logf(l));
      if (t == 0 && i < tq) ((float *)a.lse)[(int64_t)bh * tq + i] = lse;
    }
  aci_copy_wait<0>(); /* without keys the copy of the queries may still be running */
  __syncthreads();
  flash_put<DT, D, M>(o, by, qs, row, flash_row<uint16_t>(a.out, b, h, q0 + row), a.out.s[2],
                      tq - q0 - row, d, a.out.vectors);
#endif
}

template <int DT, int D, int M, bool BARE>
static ac_status run(ac_frame *f, const flash_args &a, ac_err *e) {
  enum { ROWS = 16 * M * FLASH_WARPS };
  return flash_launch(f, "attention", flash_forward<DT, D, M, FLASH_WARPS, FLASH_TILE, BARE>, a,
                      a.hq, a.tq, ROWS, (size_t)(ROWS + 4 * FLASH_TILE) * 2 * D, e);
}
template <int DT> static ac_status run(ac_frame *f, const flash_args &a, ac_err *e) {
  if (flash_bare(a))
    return a.d <= 64 ? run<DT, 64, 2, true>(f, a, e) : run<DT, 128, 2, true>(f, a, e);
  return a.d <= 64 ? run<DT, 64, 2, false>(f, a, e) : run<DT, 128, 1, false>(f, a, e);
}

bool aci_flash_warp_fits(const ac_frame *f, const flash_args &a) {
  const int64_t longest = a.tq > a.tk ? a.tq : a.tk;
  return aci_cuda_of(f->device)->code >= ACI_TENSOR_CORES_CODE &&
         (a.dt == AC_BF16 || a.dt == AC_F16) && a.d <= 128 && longest < INT32_MAX - FLASH_PAD;
}

ac_status aci_flash_warp_forward(ac_frame *f, const flash_args &a, ac_err *e) {
  return a.dt == AC_BF16 ? run<AC_BF16>(f, a, e) : run<AC_F16>(f, a, e);
}
