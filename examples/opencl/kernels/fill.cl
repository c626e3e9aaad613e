/* One value everywhere; masks over the last two dims (rows, columns). */
kernel void fill(const struct layout l, const T v, MEM(dst)) {
  const long i = get_global_id(0);
  if (i < l.n) PUT(DST, dst, element(&l, 0, i), v);
}

kernel void causal_mask(long n, long rows, long columns, long diagonal, MEM(x), MEM(dst)) {
  const long i = get_global_id(0);
  if (i < n) PUT(DST, dst, i, i % columns > i / columns % rows);
}
kernel void tril(long n, long rows, long columns, long diagonal, MEM(x), MEM(dst)) {
  const long i = get_global_id(0);
  if (i >= n) return;
  PUT(DST, dst, i, i % columns - i / columns % rows <= diagonal ? (T)GET(DST, x, i) : (T)0);
}
kernel void triu(long n, long rows, long columns, long diagonal, MEM(x), MEM(dst)) {
  const long i = get_global_id(0);
  if (i >= n) return;
  PUT(DST, dst, i, i % columns - i / columns % rows >= diagonal ? (T)GET(DST, x, i) : (T)0);
}
