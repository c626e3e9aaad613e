/* cross_entropy of a row, with r[c] = w[c] ((1 - s) q[c] + s / n): sum of r[c] (ln sum e^x - x[c]); its gradient is
 * e^x / sum e^x * sum of r - r[c]. A group per row. */
#define HEAD long n, long inner, long ignore, T smooth, T divisor, MEM(x), MEM(target), MEM(weight)
#ifdef W
#define WEIGHT(c) (T)GET(W, weight, c)
#else
#define WEIGHT(c) (T)1
#endif
#ifdef CLASSES
#define SHARE(c) ((c) == id ? (T)1 : (T)0)
#define ROW const long id = GET(Y, target, row); const bool ignored = id == ignore
#else
#define SHARE(c) (T)GET(Y, target, base + (c) * inner)
#define ROW const bool ignored = false
#endif
#define R(c) (WEIGHT(c) * ((1 - smooth) * SHARE(c) + smooth / n))
#define LOGIT(c) (T)GET(X, x, base + (c) * inner)
#define BEGIN \
  local T s[GROUP]; \
  const long row = get_group_id(0), base = row / inner * n * inner + row % inner; \
  const int me = get_local_id(0); \
  T top = -INFINITY, sum = 0; \
  ROW; \
  for (long c = me; c < n; c += GROUP) top = m_max(LOGIT(c), top); \
  top = group_max(s, top); \
  for (long c = me; c < n; c += GROUP) sum += exp(LOGIT(c) - top); \
  sum = group_sum(s, sum)

#define LOSS_OF_ROW \
  BEGIN; \
  const T ln = log(sum); \
  T l = 0; \
  for (long c = me; c < n; c += GROUP) { \
    const T r = R(c); \
    if (r != 0) l += r * ((top - LOGIT(c)) + ln); \
  } \
  l = group_sum(s, l)

kernel void loss_rows(HEAD, MEM(y)) {
  LOSS_OF_ROW;
  if (me == 0) PUT(OUT, y, row, ignored ? (T)0 : l);
}
kernel void loss_parts(HEAD, MEM(y)) {
  LOSS_OF_ROW;
  if (me == 0) ((global T *)BYTES(y))[row] = ignored ? (T)0 : l;
}
/* One group: the rows' losses added up and divided. */
kernel void loss_meet(HEAD, long rows, MEM(each), MEM(y)) {
  local T s[GROUP];
  T sum = 0;
  for (long i = get_local_id(0); i < rows; i += GROUP) sum += ((global const T *)BYTES(each))[i];
  sum = group_sum(s, sum);
  if (get_local_id(0) == 0) PUT(OUT, y, 0, sum / divisor);
}

#ifdef DY
kernel void loss_backward(HEAD, MEM(dy), MEM(dx)) {
  BEGIN;
#ifdef EACH_ROW
  const T g = ignored ? (T)0 : (T)GET(DY, dy, row) / divisor;
#else
  const T g = ignored ? (T)0 : (T)GET(DY, dy, 0) / divisor;
#endif
  T r = 0;
  for (long c = me; c < n; c += GROUP) r += R(c);
  r = group_sum(s, r) / sum;
  for (long c = me; c < n; c += GROUP)
    PUT(X, dx, base + c * inner, ignored ? (T)0 : g * (exp(LOGIT(c) - top) * r - R(c)));
}
#endif
