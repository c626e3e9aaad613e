/* Optimizers, an element of a parameter per work-item: operands 0 .. 4 of the layout are P, G, M, V, TOP; numbers are read where they
 * lie. FOUND other than 0: nothing is written. */
#ifdef FOUND
#define SKIP (GET(FOUND, found, 0) != 0)
#else
#define SKIP false
#endif
#ifdef SCALE
#define SCALED(x) ((x) * (T)GET(SCALE, scale, 0))
#else
#define SCALED(x) (x)
#endif
#define NUMBERS MEM(lr), MEM(count), MEM(scale), MEM(found)

#ifdef COUNT
kernel void advance(MEM(count), MEM(found)) {
  if (!SKIP) PUT(STEP, count, 0, GET(STEP, count, 0) + 1);
}
#endif

#ifdef ADAM
struct options {
  wide beta1, beta2, eps, decay, decoupled, sign;
};
kernel void adam(const struct layout l, const struct options o, NUMBERS, MEM(p), MEM(g), MEM(m), MEM(v), MEM(top)) {
  const long i = get_global_id(0);
  if (i >= l.n || SKIP) return;
  const wide rate = (wide)GET(LR, lr, 0), n = (wide)GET(STEP, count, 0);
  const T keep = o.decoupled != 0 ? (T)(1 - rate * o.decay) : (T)1, decay = o.decoupled != 0 ? (T)0 : (T)o.decay;
  const T size = (T)(-rate / (1 - pow(o.beta1, n))), root = (T)(1 / sqrt(1 - pow(o.beta2, n))), square = (T)(1 - o.beta2);
  const long pt = element(&l, 0, i), mt = element(&l, 2, i), vt = element(&l, 3, i);
  const T x = (T)GET(P, p, pt), mo = (T)GET(M, m, mt), y = SCALED((T)GET(G, g, element(&l, 1, i)) * (T)o.sign);
  const T gi = fma(decay, x, y), mi = fma((T)(1 - o.beta1), gi - mo, mo), vi = fma(square * gi, gi, (T)GET(V, v, vt) * (T)o.beta2);
#ifdef TOP
  const long tt = element(&l, 4, i);
  const T most = m_max((T)GET(TOP, top, tt), vi);
  PUT(TOP, top, tt, most);
#else
  const T most = vi;
#endif
  PUT(P, p, pt, fma(size, mi / fma(sqrt(most), root, (T)o.eps), x * keep));
  PUT(M, m, mt, mi);
  PUT(V, v, vt, vi);
}
#endif

#ifdef SGD
kernel void sgd(const struct layout l, T momentum, T fresh, T decay, T sign, long nesterov, long first, NUMBERS, MEM(p), MEM(g),
                MEM(m), MEM(v), MEM(top)) {
  const long i = get_global_id(0);
  if (i >= l.n || SKIP) return;
  const long pt = element(&l, 0, i);
  const T x = (T)GET(P, p, pt), gi = fma(decay, x, SCALED((T)GET(G, g, element(&l, 1, i)) * sign));
#ifdef M
  const long mt = element(&l, 2, i);
  const T b = first ? gi : fma(fresh, gi, momentum * (T)GET(M, m, mt));
  PUT(M, m, mt, b);
  const T way = nesterov ? fma(momentum, b, gi) : b;
#else
  const T way = gi;
#endif
  PUT(P, p, pt, fma(-(T)GET(LR, lr, 0), way, x));
}
#endif

#ifdef CLIP
/* The norm in parts of PART elements, the parts joined pairwise by one work-item, and gradients scaled by what it says. KIND: see optim.c. */
#if KIND == 3
#define JOINED(a, b) m_max(a, b)
#else
#define JOINED(a, b) ((a) + (b))
#endif
kernel void measure(const struct layout l, wide power, long at, MEM(g), MEM(parts)) {
  const long k = get_global_id(0), end = min((k + 1) * (long)PART, l.n);
  if (k * PART >= l.n) return;
  wide sum = 0;
  for (long i = k * PART; i < end; i++) {
    const wide x = fabs((wide)GET(G, g, element(&l, 0, i)));
#if KIND == 0
    sum += x != 0;
#elif KIND == 1
    sum += x;
#elif KIND == 2
    sum += x * x;
#elif KIND == 3
    sum = m_max(x, sum);
#else
    sum += pow(x, power);
#endif
  }
  ((global wide *)BYTES(parts))[at + k] = sum;
}
kernel void total(long n, wide power, MEM(parts), MEM(norm)) {
  global wide *part = (global wide *)BYTES(parts);
  for (long m = n; m > 1; m = (m + 1) / 2)
    for (long i = 0; i < (m + 1) / 2; i++) part[i] = 2 * i + 1 < m ? JOINED(part[2 * i], part[2 * i + 1]) : part[2 * i];
  wide v = n > 0 ? part[0] : 0;
#if KIND == 2
  v = sqrt(v);
#elif KIND == 4
  v = pow(v, 1 / power);
#endif
  PUT(NORM, norm, 0, v);
}
kernel void shrink(const struct layout l, wide most, long at, MEM(g), MEM(norm)) {
  const long i = get_global_id(0);
  const wide factor = most / ((wide)GET(NORM, norm, 0) + (wide)1e-6);
  if (i >= l.n || factor >= 1) return; /* NaN goes on, as in PyTorch */
  const long gt = element(&l, 0, i);
  PUT(G, g, gt, (T)GET(G, g, gt) * (T)factor);
}
#endif
