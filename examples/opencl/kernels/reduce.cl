/* A state per output: START it, STEP an element into it, JOIN two, RESULT and SECOND_OF it. Elements are joined in blocks, blocks in parts,
 * so that the error of a long sum stays small. */
#ifdef WHOLE
#define SUM long
#else
#define SUM wide
#endif

#if defined(STATE_sum) || defined(STATE_mean)
typedef struct { SUM v; } state;
#define START(s) s.v = 0
#define STEP(s, x, i) s.v += x
#define JOIN(s, t) s.v += t.v
#ifdef STATE_mean
#define RESULT(s) (s.v / (SUM)r.n_red)
#else
#define RESULT(s) s.v
#endif

#elif defined(STATE_prod)
typedef struct { SUM v; } state;
#define START(s) s.v = 1
#define STEP(s, x, i) s.v *= x
#define JOIN(s, t) s.v *= t.v
#define RESULT(s) s.v

#elif defined(STATE_prod_parts)
typedef struct { wide v; long zeros; } state;
#define START(s) s.v = 1, s.zeros = 0
#define STEP(s, x, i) do { if ((x) == 0) s.zeros++; else s.v *= x; } while (0)
#define JOIN(s, t) s.v *= t.v, s.zeros += t.zeros
#define RESULT(s) s.v
#define SECOND_OF(s) s.zeros

#elif defined(STATE_any) || defined(STATE_all) || defined(STATE_count)
typedef struct { long v; } state;
#define START(s) s.v = 0
#define STEP(s, x, i) s.v += (x) != 0
#define JOIN(s, t) s.v += t.v
#if defined(STATE_any)
#define RESULT(s) (s.v != 0)
#elif defined(STATE_all)
#define RESULT(s) (s.v == r.n_red)
#else
#define RESULT(s) s.v
#endif

#elif defined(STATE_max) || defined(STATE_min)
/* The first of equal ones; NaN is beyond everything. at < 0: nothing so far. */
typedef struct { T v; long at; } state;
#define START(s) s.v = 0, s.at = -1
#ifdef STATE_max
#define BEYOND(a, b) ((a) > (b))
#else
#define BEYOND(a, b) ((a) < (b))
#endif
#define BETTER(a, s) (s.at < 0 || (s.v == s.v && (BEYOND(a, s.v) || (a) != (a))))
#define STEP(s, x, i) if (BETTER(x, s)) s.v = x, s.at = i
#define JOIN(s, t) if (t.at >= 0 && BETTER(t.v, s)) s = t
#define RESULT(s) s.v
#define SECOND_OF(s) s.at

#elif defined(STATE_var) || defined(STATE_std)
/* Count, mean, sum of squared distances; joined by the formula of Chan, Golub and LeVeque. */
typedef struct { wide n, mean, m2; } state;
#define START(s) s.n = s.mean = s.m2 = 0
#define STEP(s, x, i) do { const wide d_ = (wide)(x) - s.mean; s.n += 1; s.mean += d_ / s.n; s.m2 += d_ * ((wide)(x) - s.mean); } while (0)
#define JOIN(s, t) do { const wide all_ = s.n + t.n, d_ = t.mean - s.mean, share_ = all_ > 0 ? t.n / all_ : 0; \
    s.m2 += t.m2 + d_ * d_ * s.n * share_; s.mean += d_ * share_; s.n = all_; } while (0)
#define OVER(s) (s.n - number > 0 ? s.n - number : (wide)0)
#ifdef STATE_std
#define RESULT(s) sqrt(s.m2 / OVER(s))
#else
#define RESULT(s) (s.m2 / OVER(s))
#endif

#elif defined(STATE_logsumexp)
/* The largest so far, as far as it is finite, and the sum of exponentials of distances to it. */
typedef struct { wide top, sum; } state;
#define START(s) s.top = -INFINITY, s.sum = 0
void lse_add(state *s, wide top, wide sum) {
  const wide most = m_max(s->top, top), base = isinf(most) ? 0 : most;
  s->sum = (s->sum == 0 ? 0 : s->sum * exp(s->top - base)) + (sum == 0 ? 0 : sum * exp(top - base));
  s->top = base == 0 && isinf(most) && most < 0 ? most : base;
}
#define STEP(s, x, i) lse_add(&s, (wide)(x), 1)
#define JOIN(s, t) lse_add(&s, t.top, t.sum)
#define RESULT(s) (s.sum == 0 ? (wide)-INFINITY : log(s.sum) + s.top)

#elif defined(STATE_norm_max) || defined(STATE_norm_min)
typedef struct { T v; int any; } state;
#define START(s) s.v = 0, s.any = 0
#ifdef STATE_norm_max
#define STEP(s, x, i) s.v = s.any ? m_max(fabs(x), s.v) : fabs(x), s.any = 1
#define JOIN(s, t) if (t.any) { s.v = s.any ? m_max(t.v, s.v) : t.v; s.any = 1; }
#else
#define STEP(s, x, i) s.v = s.any ? m_min(fabs(x), s.v) : fabs(x), s.any = 1
#define JOIN(s, t) if (t.any) { s.v = s.any ? m_min(t.v, s.v) : t.v; s.any = 1; }
#endif
#define RESULT(s) s.v

#else /* norms whose powers add up */
typedef struct { wide v; } state;
#define START(s) s.v = 0
#define JOIN(s, t) s.v += t.v
#if defined(STATE_norm_zero)
#define STEP(s, x, i) s.v += (x) != 0
#define RESULT(s) s.v
#elif defined(STATE_norm_one)
#define STEP(s, x, i) s.v += fabs(x)
#define RESULT(s) s.v
#elif defined(STATE_norm_two)
#define STEP(s, x, i) s.v += (wide)(x) * (wide)(x)
#define RESULT(s) sqrt(s.v)
#else
#define STEP(s, x, i) s.v += pow((wide)fabs(x), number)
#define RESULT(s) pow(s.v, 1 / number)
#endif
#endif

struct reduce {
  long n_out, n_red, parts, len, keep_dims, red_dims;
  long keep_shape[8], keep_stride[8], red_shape[8], red_stride[8];
};

long offset(long i, long ndim, const long *shape, const long *stride) {
  long at = 0;
  if (ndim == 1) return i * stride[0];
  for (int d = (int)ndim - 1; d >= 0; d--) {
    at += i % shape[d] * stride[d];
    i /= shape[d];
  }
  return at;
}

#ifdef FIRST_RESULT
#define FIRST_PUT(o, s) PUT(OUT, out, o, RESULT(s))
#else
#define FIRST_PUT(o, s)
#endif
#ifdef SECOND_RESULT
#define SECOND_PUT(o, s) PUT(SECOND, second, o, SECOND_OF(s))
#else
#define SECOND_PUT(o, s)
#endif

/* Output o, part k: neighbouring work-items take neighbouring outputs. */
kernel void reduce(const struct reduce r, const wide number, MEM(x), MEM(parts), MEM(out), MEM(second)) {
  const long id = get_global_id(0);
  if (id >= r.n_out * r.parts) return;
  const long o = id % r.n_out, k = id / r.n_out, base = offset(o, r.keep_dims, r.keep_shape, r.keep_stride);
  const long begin = k * r.len, end = min(begin + r.len, r.n_red);
  state s;
  START(s);
  for (long i = begin; i < end;) {
    const long stop = min(i + 64, end);
    state b;
    START(b);
    for (; i < stop; i++) {
      const T v = (T)GET(IN, x, base + offset(i, r.red_dims, r.red_shape, r.red_stride));
      STEP(b, v, i);
    }
    JOIN(s, b);
  }
#ifdef PARTS
  ((global state *)BYTES(parts))[k * r.n_out + o] = s;
#else
  FIRST_PUT(o, s);
  SECOND_PUT(o, s);
#endif
}

kernel void meet(const struct reduce r, const wide number, MEM(x), MEM(parts), MEM(out), MEM(second)) {
  const long o = get_global_id(0);
  if (o >= r.n_out) return;
  state s;
  START(s);
  for (long k = 0; k < r.parts; k++) {
    const state t = ((global const state *)BYTES(parts))[k * r.n_out + o];
    JOIN(s, t);
  }
  FIRST_PUT(o, s);
  SECOND_PUT(o, s);
}
