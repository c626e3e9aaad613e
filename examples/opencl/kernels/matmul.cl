/* C := alpha A B + beta C + bias. Group (SIDE, SIDE) brings tiles of A and B into local memory; a work-item computes TILE / SIDE by
 * TILE / SIDE results, SIDE apart. k is added in order, so that results do not depend on the device. */
#define EACH (TILE / SIDE)
#define DEPTH 16

struct product {
  long m, n, k, a_row, a_col, b_row, b_col, bias_step, batch_dims;
  long batch[8], a_batch[8], b_batch[8];
};

kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1)))
void matmul(const struct product p, const T alpha, const T beta, MEM(a), MEM(b), MEM(bias), MEM(c)) {
  local T as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
  const int x = get_local_id(0), y = get_local_id(1), me = y * SIDE + x;
  const long row0 = (long)get_group_id(1) * TILE, column0 = (long)get_group_id(0) * TILE;
  long r = get_global_id(2), a0 = 0, b0 = 0, c0 = r * p.m * p.n;
  for (int d = (int)p.batch_dims - 1; d >= 0; d--) {
    a0 += r % p.batch[d] * p.a_batch[d];
    b0 += r % p.batch[d] * p.b_batch[d];
    r /= p.batch[d];
  }
  T sum[EACH][EACH];
  for (int i = 0; i < EACH; i++)
    for (int j = 0; j < EACH; j++) sum[i][j] = 0;
  for (long k0 = 0; k0 < p.k; k0 += DEPTH) {
    for (int t = me; t < DEPTH * TILE; t += SIDE * SIDE) {
      /* neighbours read neighbours: along k where A's columns are together, else along m; so for B */
      const int ak = p.a_col == 1 ? t % DEPTH : t / TILE, ai = p.a_col == 1 ? t / DEPTH : t % TILE;
      const int bk = p.b_col == 1 ? t / TILE : t % DEPTH, bj = p.b_col == 1 ? t % TILE : t / DEPTH;
      as[ak][ai] = k0 + ak < p.k && row0 + ai < p.m ? (T)GET(A, a, a0 + (row0 + ai) * p.a_row + (k0 + ak) * p.a_col) : (T)0;
      bs[bk][bj] = k0 + bk < p.k && column0 + bj < p.n ? (T)GET(B, b, b0 + (k0 + bk) * p.b_row + (column0 + bj) * p.b_col) : (T)0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < DEPTH; k++)
      for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) sum[i][j] += as[k][y + i * SIDE] * bs[k][x + j * SIDE];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < EACH; i++)
    for (int j = 0; j < EACH; j++) {
      const long row = row0 + y + i * SIDE, column = column0 + x + j * SIDE, at = c0 + row * p.n + column;
      if (row >= p.m || column >= p.n) continue;
      T v = alpha * sum[i][j];
#ifdef ADDS
      v += beta * (T)GET(C, c, at);
#endif
#ifdef BIAS
      v += (T)GET(BIAS, bias, column * p.bias_step);
#endif
      PUT(C, c, at, v);
    }
}
