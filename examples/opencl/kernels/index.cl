/* Rows of x (outer, n, inner) by m numbers, and elements along a dim. */
struct rows {
  long outer, n, inner, m;
};

kernel void rows_take(const struct rows r, MEM(x), MEM(ids), MEM(y)) {
  const long i = get_global_id(0);
  if (i >= r.outer * r.m * r.inner) return;
  const long column = i % r.inner, j = i / r.inner % r.m, o = i / r.inner / r.m;
  PUT(X, y, i, GET(X, x, (o * r.n + GET(i64, ids, j)) * r.inner + column));
}

/* lists: where the rows of each number begin, n + 1 of these, then the rows in their order. */
kernel void rows_add(const struct rows r, const wide scale, MEM(x), MEM(lists), MEM(base), MEM(y)) {
  const long i = get_global_id(0);
  if (i >= r.outer * r.n * r.inner) return;
  const long column = i % r.inner, row = i / r.inner % r.n, o = i / r.inner / r.n, end = GET(i64, lists, row + 1);
  T sum = 0;
  for (long k = GET(i64, lists, row); k < end; k++)
    sum += (T)GET(X, x, (o * r.m + GET(i64, lists, r.n + 1 + k)) * r.inner + column);
#ifdef BASE
  sum = (T)GET(X, base, i) + (T)scale * sum;
#endif
  PUT(X, y, i, sum);
}

#ifdef I
struct lines {
  long n, ndim, m;
  long shape[8], index_stride[8], x_stride[8], src_stride[8];
  long index_step, x_step, src_step;
};

/* An element of y for each of the index. */
kernel void gather(const struct lines l, MEM(x), MEM(index), MEM(y)) {
  long i = get_global_id(0), at = 0, xt = 0, yt = 0;
  if (i >= l.n) return;
  for (int d = (int)l.ndim - 1; d >= 0; d--) {
    const long k = i % l.shape[d];
    i /= l.shape[d];
    at += k * l.index_stride[d];
    xt += k * l.x_stride[d];
    yt += k * l.src_stride[d];
  }
  PUT(S, y, yt, GET(X, x, xt + GET(I, index, at) * l.x_step));
}

/* A line of the index along its dim, from its first element on: the order in which they add up. */
kernel void scatter_add(const struct lines l, MEM(x), MEM(index), MEM(src)) {
  long i = get_global_id(0), at = 0, xt = 0, st = 0;
  if (i >= l.n) return;
  for (int d = (int)l.ndim - 1; d >= 0; d--) {
    const long k = i % l.shape[d];
    i /= l.shape[d];
    at += k * l.index_stride[d];
    xt += k * l.x_stride[d];
    st += k * l.src_stride[d];
  }
  for (long k = 0; k < l.m; k++) {
    const long to = xt + GET(I, index, at + k * l.index_step) * l.x_step;
    PUT(X, x, to, (T)GET(X, x, to) + (T)GET(S, src, st + k * l.src_step));
  }
}
#endif
