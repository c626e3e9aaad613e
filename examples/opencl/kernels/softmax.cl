/* A group per row of n elements, `inner` apart: y = e^(x - top) / sum, its logarithm, and the backward of both. */
kernel void softmax(long n, long inner, MEM(x), MEM(unused), MEM(y)) {
  local T s[GROUP];
  const long row = get_group_id(0), base = row / inner * n * inner + row % inner;
  const int me = get_local_id(0);
  T top = -INFINITY, sum = 0;
  for (long i = me; i < n; i += GROUP) top = m_max((T)GET(IN, x, base + i * inner), top);
  top = group_max(s, top);
  for (long i = me; i < n; i += GROUP) sum += exp((T)GET(IN, x, base + i * inner) - top);
  sum = group_sum(s, sum);
#ifdef LOG
  const T ln = log(sum);
  for (long i = me; i < n; i += GROUP) PUT(OUT, y, base + i * inner, ((T)GET(IN, x, base + i * inner) - top) - ln);
#else
  for (long i = me; i < n; i += GROUP) PUT(OUT, y, base + i * inner, exp((T)GET(IN, x, base + i * inner) - top) / sum);
#endif
}

/* dx = y (dy - sum of dy y); of the logarithm: dy - e^y sum of dy */
kernel void softmax_backward(long n, long inner, MEM(dy), MEM(y), MEM(dx)) {
  local T s[GROUP];
  const long row = get_group_id(0), base = row / inner * n * inner + row % inner;
  const int me = get_local_id(0);
  T sum = 0;
#ifdef LOG
  for (long i = me; i < n; i += GROUP) sum += (T)GET(IN, dy, base + i * inner);
  sum = group_sum(s, sum);
  for (long i = me; i < n; i += GROUP) {
    const long at = base + i * inner;
    PUT(OUT, dx, at, (T)GET(IN, dy, at) - exp((T)GET(IN2, y, at)) * sum);
  }
#else
  for (long i = me; i < n; i += GROUP) sum += (T)GET(IN, dy, base + i * inner) * (T)GET(IN2, y, base + i * inner);
  sum = group_sum(s, sum);
  for (long i = me; i < n; i += GROUP) {
    const long at = base + i * inner;
    PUT(OUT, dx, at, (T)GET(IN2, y, at) * ((T)GET(IN, dy, at) - sum));
  }
#endif
}
