/* layer_norm and rms_norm (whose mean is taken as 0): a group per row of n elements. */
#ifdef ADD
kernel void add(const struct layout l, MEM(sum), MEM(a), MEM(b)) {
  const long i = get_global_id(0);
  if (i < l.n) PUT(OUT, sum, element(&l, 0, i), (T)GET(A, a, element(&l, 1, i)) + (T)GET(B, b, element(&l, 2, i)));
}
#else
/* Mean of the row at base, as rounded, and what the rounding left out, so that a large mean costs no accuracy; 1 / deviation. */
typedef struct {
  T mean, rest, rstd;
} stat;
#define AWAY(t, i) (((T)GET(X, x, base + (i)) - t.mean) - t.rest)
stat row_stat(local T *s, global uchar *x_, ulong x_at, long base, long n, T eps) {
  const int me = get_local_id(0);
  stat t = {0, 0, 0};
  T sum = 0;
#ifndef RMS
  for (long i = me; i < n; i += GROUP) sum += (T)GET(X, x, base + i);
  t.mean = group_sum(s, sum) / n;
  sum = 0;
  for (long i = me; i < n; i += GROUP) sum += (T)GET(X, x, base + i) - t.mean;
  t.rest = group_sum(s, sum) / n;
  sum = 0;
#endif
  for (long i = me; i < n; i += GROUP) sum = fma(AWAY(t, i), AWAY(t, i), sum);
  t.rstd = 1 / sqrt(group_sum(s, sum) / n + eps);
  return t;
}
#ifdef HAS_W
#define WEIGHT(i) (T)GET(W, w, i)
#else
#define WEIGHT(i) (T)1
#endif

kernel void norm(long rows, long n, T eps, MEM(x), MEM(w), MEM(b), MEM(y)) {
  local T s[GROUP];
  const long base = get_group_id(0) * n;
  const stat t = row_stat(s, x_, x_at, base, n, eps);
  for (long i = get_local_id(0); i < n; i += GROUP) {
    T v = AWAY(t, i) * t.rstd * WEIGHT(i);
#ifdef HAS_B
    v += (T)GET(B, b, i);
#endif
    PUT(X, y, base + i, v);
  }
}

/* With h = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - h mean(g h)) + dsum; stats: those of each row. */
kernel void norm_backward(long rows, long n, T eps, MEM(x), MEM(w), MEM(dy), MEM(dsum), MEM(stats), MEM(dx)) {
  local T s[GROUP];
  const long row = get_group_id(0), base = row * n;
  const stat t = row_stat(s, x_, x_at, base, n, eps);
  T g = 0, gh = 0;
  for (long i = get_local_id(0); i < n; i += GROUP) {
    const T v = (T)GET(DY, dy, base + i) * WEIGHT(i);
    g += v;
    gh += v * AWAY(t, i) * t.rstd;
  }
#ifdef RMS
  g = 0;
#else
  g = group_sum(s, g) / n;
#endif
  gh = group_sum(s, gh) / n;
  for (long i = get_local_id(0); i < n; i += GROUP) {
    const T h = AWAY(t, i) * t.rstd;
    T v = t.rstd * ((T)GET(DY, dy, base + i) * WEIGHT(i) - g - h * gh);
#ifdef HAS_DSUM
    v += (T)GET(DSUM, dsum, base + i);
#endif
    PUT(X, dx, base + i, v);
  }
  if (get_local_id(0) == 0) ((global stat *)BYTES(stats))[row] = t;
}

/* sums[k][part][column]: of dy h, and unless RMS of dy, over the rows of a part. */
kernel void norm_columns(long rows, long n, T eps, long parts, MEM(x), MEM(dy), MEM(stats), MEM(sums)) {
  const long id = get_global_id(0);
  if (id >= parts * n) return;
  const long column = id % n, part = id / n, len = (rows + parts - 1) / parts, end = min((part + 1) * len, rows);
  T dw = 0, db = 0;
  for (long r = part * len; r < end; r++) {
    const T d = (T)GET(DY, dy, r * n + column);
    const stat t = ((global const stat *)BYTES(stats))[r];
    const long base = r * n;
    dw = fma(d, AWAY(t, column) * t.rstd, dw);
    db += d;
  }
  ((global T *)BYTES(sums))[part * n + column] = dw;
#ifndef RMS
  ((global T *)BYTES(sums))[(parts + part) * n + column] = db;
#endif
}
kernel void norm_meet(long rows, long n, T eps, long parts, long k, MEM(sums), MEM(out)) {
  const long column = get_global_id(0);
  if (column >= n) return;
  wide sum = 0;
  for (long part = 0; part < parts; part++) sum += ((global const T *)BYTES(sums))[(k * parts + part) * n + column];
  PUT(W, out, column, sum);
}
#endif
