/* Code shared by attention's kernels for tensor cores: tiles in shared memory, copies in both
 * directions, products of a warp's rows with them.
 *
 * A tile is ROWS x D elements of 16 bits, D = 64 or 128, at a multiple of 256 bytes. Heads of other
 * widths use the wider one, padded with zeros. Pieces of 16 bytes are swizzled within their row,
 * piece c of row r at c ^ (r % 8). ldmatrix reads eight rows of one piece, copies write eight
 * pieces of one row, and both fall into eight different banks of 16 bytes. Rows 8 apart are
 * swizzled alike, so that a lane's position in an operand is one number for the tile, ^ 32 for
 * every step of 16 columns, + a constant for every step of 16 rows. */
#ifndef ACI_OPS_FLASH_WARP_CUH
#define ACI_OPS_FLASH_WARP_CUH
#include "ops/attention/flash.cuh"
#include "ops/cuda/warp.cuh"

#ifdef ACI_TENSOR_CORES
/* Bytes from the tile's begin to piece c of row r. */
template <int D> ACI_DEVICE int flash_piece(int r, int c) {
  return (r * (D / 8) + (c ^ (r & 7))) * 16;
}

/* Rows from x on, `rows` of which exist (others and columns from d on become zeros), to a tile.
 * THREADS share the work. Asynchronous if rows are vectors. */
template <int D, int ROWS, int THREADS>
ACI_DEVICE void flash_fetch(char *tile, const uint16_t *x, int64_t stride, int rows, int d,
                            bool vectors) {
  constexpr int STEP = THREADS / (D / 8); /* rows that the threads cover at once */
  static_assert(THREADS % (D / 8) == 0 && ROWS % STEP == 0,
                "every thread keeps to its piece of the rows");
  int r = (int)threadIdx.x / (D / 8);
  const int c = (int)threadIdx.x % (D / 8);
  const uint16_t *from = x + r * stride + c * 8;
  if (vectors) {
    const aci_shared to = aci_shared_of(tile);
    if (c * 8 >= d) rows = 0;
#pragma unroll
    for (int k = 0; k < ROWS / STEP; k++, r += STEP, from += STEP * stride)
      aci_copy16(to + flash_piece<D>(r, c), r < rows ? from : x, r < rows ? 16 : 0);
  } else {
#pragma unroll 1
    for (; r < ROWS; r += STEP, from += STEP * stride)
#pragma unroll 1
      for (int j = 0; j < 8; j++)
        ((uint16_t *)(tile + flash_piece<D>(r, c)))[j] =
            r < rows && c * 8 + j < d ? from[j] : (uint16_t)0;
  }
}

/* ---- a lane's position in the operands of products, whose registers warp.cuh draws ---- */
/* A of C += X Y: 16 rows of the tile X from r on (a multiple of 16), and 16 columns: ^ 32 k for the
 * k-th. B of C += Y X: likewise, two pieces of 8 columns, by aci_load_matrices_t. */
template <int D> ACI_DEVICE aci_shared flash_as_it_lies(char *tile, int r) {
  const int lane = aci_lane();
  return aci_shared_of(tile) + flash_piece<D>(r + (lane & 15), lane >> 4);
}
/* B of C += Y X^T: 16 rows of X, two pieces of C's columns. */
template <int D> ACI_DEVICE aci_shared flash_across(char *tile) {
  const int lane = aci_lane();
  return aci_shared_of(tile) + flash_piece<D>((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1);
}

/* c[m] (16 x N) = rows r + 16 m.. of `left` times the N rows of `right`, transposed. */
template <int DT, int D, int M, int N>
ACI_DEVICE void flash_scores_of(float (&c)[M][N / 8][4], char *left, int r, char *right) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) c[m][n][i] = 0;
  const aci_shared x = flash_as_it_lies<D>(left, r), y = flash_across<D>(right);
#pragma unroll 4 /* more in flight would cost registers that the widest kernels lack */
  for (int k = 0; k < D / 16; k++) {
    uint32_t a[M][4], b[4];
#pragma unroll
    for (int m = 0; m < M; m++) aci_load_matrices(a[m], (x ^ 32 * k) + 32 * D * m);
#pragma unroll
    for (int n = 0; n < N / 16; n++) {
      aci_load_matrices(b, (y ^ 32 * k) + 32 * D * n);
#pragma unroll
      for (int m = 0; m < M; m++) {
        aci_mma<DT>(c[m][2 * n], a[m], b[0], b[1]);
        aci_mma<DT>(c[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/* o[m] (16 x D) += p[m] (16 x N, rounded) times the N rows of `right`. */
template <int DT, int D, int M, int N>
ACI_DEVICE void flash_weigh(float (&o)[M][D / 8][4], const float (&p)[M][N / 8][4], char *right) {
  const aci_shared y = flash_as_it_lies<D>(right, 0);
#pragma unroll
  for (int k = 0; k < N / 16; k++) {
    uint32_t a[M][4], b[4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        a[m][i] = aci_pack2<DT>(p[m][2 * k + i / 2][i % 2 * 2], p[m][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < D / 16; n++) {
      aci_load_matrices_t(b, (y ^ 32 * n) + 32 * D * k);
#pragma unroll
      for (int m = 0; m < M; m++) {
        aci_mma<DT>(o[m][2 * n], a[m], b[0], b[1]);
        aci_mma<DT>(o[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/* by times the sums of a warp, to rows x.. of which `rows` exist, by way of rows r.. of a tile that
 * only this warp uses by now. */
template <int DT, int D, int M>
ACI_DEVICE void flash_put(const float (&o)[M][D / 8][4], const float (&by)[M][2], char *tile, int r,
                          uint16_t *x, int64_t stride, int rows, int d, bool vectors) {
  const int lane = aci_lane(), g = lane / 4, t = lane % 4;
  aci_warp_meet();
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        ((uint32_t *)(tile + flash_piece<D>(r + 16 * m + 8 * h + g, n)))[t] =
            aci_pack2<DT>(o[m][n][2 * h] * by[m][h], o[m][n][2 * h + 1] * by[m][h]);
  aci_warp_meet();
  for (int i = lane; i < 16 * M * (D / 8); i += 32) {
    const int row = i / (D / 8), c = i % (D / 8);
    if (row >= rows || c * 8 >= d) continue;
    const char *from = tile + flash_piece<D>(r + row, c);
    uint16_t *to = x + row * stride + c * 8;
    if (vectors) *(aci_vector<uint32_t, 4> *)to = *(const aci_vector<uint32_t, 4> *)from;
    else
      for (int j = 0; j < 8 && c * 8 + j < d; j++) to[j] = ((const uint16_t *)from)[j];
  }
}

/* ---- dropout of a warp's pieces of 16 x 8 weights: factors in the registers of C ---- */
/* Words of four neighbouring keys come from one counter (tk a multiple of 4: every row begins with
 * one), so that lanes draw for one another. Rows are queries i + g and i + g + 8, columns keys j +
 * 2t and j + 2t + 1. j is a multiple of 8. */
ACI_DEVICE void flash_drop_rows(float (&f)[4], const flash_scores<float> &s, int64_t i, int64_t j) {
  const flash_args &a = s.a;
  const int lane = aci_lane(), g = lane / 4, t = lane % 4;
  i += g;
  if (a.tk % 4 != 0) {
#pragma unroll
    for (int e = 0; e < 4; e++) f[e] = s.drop_one(i + e / 2 * 8, j + 2 * t + e % 2);
    return;
  }
  const bool odd = (t & 1) != 0; /* even lanes draw for the upper row, odd ones for the lower */
  const aci_u32x4 w =
      aci_philox(a.drop_key, (uint64_t)(s.drop + (i + (odd ? 8 : 0)) * a.tk + j + (t & 2) * 2) / 4,
                 a.drop_counter);
  const uint32_t x = aci_from_lane_xor(odd ? w.v[0] : w.v[2], 1),
                 y = aci_from_lane_xor(odd ? w.v[1] : w.v[3], 1);
  f[0] = s.factor(odd ? x : w.v[0]);
  f[1] = s.factor(odd ? y : w.v[1]);
  f[2] = s.factor(odd ? w.v[2] : x);
  f[3] = s.factor(odd ? w.v[3] : y);
}
/* Rows are keys j + g and j + g + 8, columns queries i + 2t and i + 2t + 1. j is a multiple of
 * 16. */
ACI_DEVICE void flash_drop_columns(float (&f)[4], const flash_scores<float> &s, int64_t i,
                                   int64_t j) {
  const flash_args &a = s.a;
  const int lane = aci_lane(), g = lane / 4, t = lane % 4;
  i += 2 * t;
  if (a.tk % 4 != 0) {
#pragma unroll
    for (int e = 0; e < 4; e++) f[e] = s.drop_one(i + e % 2, j + g + e / 2 * 8);
    return;
  }
  /* the four lanes of four neighbouring keys need word `mine` of the counters of all four of their
   * registers: each draws one of them */
  const int mine = g & 3;
  const aci_u32x4 w = aci_philox(
      a.drop_key, (uint64_t)(s.drop + (i + mine % 2) * a.tk + j + g - mine + mine / 2 * 8) / 4,
      a.drop_counter);
  uint32_t got[4]; /* got[k]: from the lane that drew register mine ^ k */
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const int word = mine ^ k;
    const uint32_t low = word & 1 ? w.v[1] : w.v[0], high = word & 1 ? w.v[3] : w.v[2],
                   give = word & 2 ? high : low;
    got[k] = k == 0 ? give : aci_from_lane_xor(give, 4 * k);
  }
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int k = mine ^ e;
    const uint32_t low = k & 1 ? got[1] : got[0], high = k & 1 ? got[3] : got[2];
    f[e] = s.factor(k & 2 ? high : low);
  }
}
#endif

/* ---- launching ---- */
/* Warps of a block, and rows of the other side in a tile. */
#ifdef ACI_CUDA_EMULATED
enum { FLASH_WARPS = 2, FLASH_TILE = 32 };
#else
enum { FLASH_WARPS = 4, FLASH_TILE = 64 };
#endif

/* A block for every `rows` of `length` of every head, with that many bytes of shared memory. */
static inline ac_status flash_launch(ac_frame *f, const char *name, void (*kernel)(flash_args),
                                     const flash_args &a, int64_t heads, int64_t length, int rows,
                                     size_t shared, ac_err *e) {
  const int64_t blocks = a.b * heads * ((length + rows - 1) / rows);
  if (blocks > INT32_MAX) return AC_FAIL(e, SHAPE, "attention over %lld blocks", (long long)blocks);
  return aci_launch(f, name, kernel,
                    aci_shape_of_launch(dim3((unsigned)blocks), dim3(FLASH_WARPS * 32), shared), e,
                    a);
}

#endif
