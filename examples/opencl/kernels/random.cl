/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11), and the values made of its words: 32-bit draws of
 * element i are word i % 4 of block i / 4; 64-bit ones words 2 (i % 2) and 2 (i % 2) + 1 of block i / 2. */
uint4 philox(ulong key, ulong block, ulong call) {
  uint k0 = (uint)key, k1 = (uint)(key >> 32), c0 = (uint)block, c1 = (uint)(block >> 32), c2 = (uint)call, c3 = (uint)(call >> 32);
  for (int round = 0; round < 10; round++) {
    const ulong p0 = (ulong)0xD2511F53u * c0, p1 = (ulong)0xCD9E8D57u * c2;
    const uint n0 = (uint)(p1 >> 32) ^ c1 ^ k0, n2 = (uint)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint)p1;
    c3 = (uint)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (uint4)(c0, c1, c2, c3);
}
uint word(ulong key, ulong call, ulong i) {
  const uint4 w = philox(key, i / 4, call);
  const int k = (int)(i % 4);
  return k == 0 ? w.x : k == 1 ? w.y : k == 2 ? w.z : w.w;
}
ulong words(ulong key, ulong call, ulong i) {
  const uint4 w = philox(key, i / 2, call);
  return i % 2 == 0 ? (ulong)w.y << 32 | w.x : (ulong)w.w << 32 | w.z;
}

#define DRAW(name, A, B) \
  kernel void name(const struct layout l, ulong key, ulong call, A a, B b, MEM(x))
#define EACH \
  const long i = get_global_id(0); \
  if (i >= l.n) return; \
  const long at = element(&l, 0, i)

#ifdef REAL
/* As many random bits as the dtype's significand holds. */
#if defined(X_bf16)
#define DROP 24
#define ROUNDED(v) as_float((uint)bf16_bits(v) << 16)
#elif defined(X_f16)
#define DROP 21
float rounded_f16(float x) {
  ushort h;
  vstore_half_rte(x, 0, (half *)&h);
  return vload_half(0, (const half *)&h);
}
#define ROUNDED(v) rounded_f16(v)
#else
#define DROP 8
#define ROUNDED(v) (v)
#endif
DRAW(uniform, T, T) { /* rounding may reach the end, which does not belong */
  EACH;
#ifdef X_f64
  const T v = fma((T)(words(key, call, i) >> 11) * (T)0x1p-53, b - a, a);
#else
  const T v = fma((T)(int)(word(key, call, i) >> DROP) * (1.0f / (float)(1u << (32 - DROP))), b - a, a);
#endif
  PUT(X, x, at, v >= b || ROUNDED(v) >= b ? a : v);
}

/* Box-Muller on neighbours: elements 2j and 2j + 1 from the words of both. The polynomials are accel's, for the same bits. */
#ifdef X_f64
T log_of(T u) {
  ulong bits = as_ulong(u);
  const long e = (long)(bits - 0x3FE6A09E667F3BCDul) >> 52;
  bits -= (ulong)e << 52;
  const T m = as_double(bits), f = m - 1.0, s = f / (m + 1.0), z = s * s;
  T p = 0.14617093237558203397;
  p = fma(p, z, 0.15331664799306262106);
  p = fma(p, z, 0.18182891005049770803);
  p = fma(p, z, 0.22222211106127090466);
  p = fma(p, z, 0.28571428626173057435);
  p = fma(p, z, 0.39999999999899006708);
  p = fma(p, z, 0.66666666666666697065);
  const T y = fma(s * z, p, s + s), fe = (T)(int)e;
  return fma(fe, 0x1.62e42fefa39efp-1, fma(fe, 0x1.abc9e3b39803fp-56, y));
}
T normal_of(ulong a, ulong b, bool second) {
  const T r = sqrt(-2.0 * log_of(fma((T)(a >> 11), 0x1p-53, 0x1p-54)));
  const ulong q = (b + (1ul << 61)) >> 62;
  const T t = (T)(long)(b << 2) * 0x1p-64, w = t * t;
  T s = 5.633936132273839028e-8;
  s = fma(s, w, -3.5986433706134925899e-6);
  s = fma(s, w, 0.00016044115074714990863);
  s = fma(s, w, -0.0046817541323416188617);
  s = fma(s, w, 0.079692626246043040805);
  s = fma(s, w, -0.64596409750624431654);
  s = fma(s, w, 1.5707963267948966143);
  s = s * t;
  T c = -6.3293983980383578578e-9;
  c = fma(c, w, 4.7106784209037801807e-7);
  c = fma(c, w, -0.000025202039028462278323);
  c = fma(c, w, 0.00091926027454690076451);
  c = fma(c, w, -0.020863480763340775811);
  c = fma(c, w, 0.25366950790104782328);
  c = fma(c, w, -1.2337005501361698269);
  c = fma(c, w, 1.0);
  const T cq = q & 1 ? s : c, sq = q & 1 ? c : s;
  return second ? r * (q & 2 ? -sq : sq) : r * ((q + 1) & 2 ? -cq : cq);
}
#define PAIR(draw) draw(key, call, i / 2 * 2), draw(key, call, i / 2 * 2 + 1), i % 2 != 0
#define NORMAL normal_of(PAIR(words))
#else
float log_of(float u) {
  uint bits = as_uint(u);
  const int e = (int)(bits - 0x3F3504F3u) >> 23;
  bits -= (uint)e << 23;
  const float f = as_float(bits) - 1.0f, fe = (float)e;
  float p = 0.071497538909f;
  p = fma(p, f, -0.115712007271f);
  p = fma(p, f, 0.116615110677f);
  p = fma(p, f, -0.12411050684f);
  p = fma(p, f, 0.14249936533f);
  p = fma(p, f, -0.166684802395f);
  p = fma(p, f, 0.200007074784f);
  p = fma(p, f, -0.249999890487f);
  p = fma(p, f, 0.333333311908f);
  const float y = fma(f * f, fma(f, p, -0.5f), f);
  return fma(fe, 0x1.62e4p-1f, fma(fe, 0x1.7f7d1cp-20f, y));
}
float normal_of(uint a, uint b, bool second) {
  const float r = sqrt(-2.0f * log_of(fma((float)a, 0x1p-32f, 0x1p-33f)));
  const uint q = (b + 0x20000000u) >> 30;
  const float t = (float)(int)(b << 2) * 0x1p-32f, w = t * t;
  float s = -0.0046021631049581197648f;
  s = fma(s, w, 0.079680222858169062741f);
  s = fma(s, w, -0.64596347815342243813f);
  s = fma(s, w, 1.5707963219600266799f);
  s = s * t;
  float c = 0.00090674171996886530497f;
  c = fma(c, w, -0.020861529025383647083f);
  c = fma(c, w, 0.25366941042117206302f);
  c = fma(c, w, -1.2337005493751095486f);
  c = fma(c, w, 1.0f);
  const float cq = q & 1 ? s : c, sq = q & 1 ? c : s;
  return second ? r * (q & 2 ? -sq : sq) : r * ((q + 1) & 2 ? -cq : cq);
}
#define PAIR(draw) draw(key, call, i / 2 * 2), draw(key, call, i / 2 * 2 + 1), i % 2 != 0
#define NORMAL normal_of(PAIR(word))
#endif
DRAW(normal, T, T) {
  EACH;
  PUT(X, x, at, fma(NORMAL, b, a));
}

struct whole {
  long first, ndim, shape[8], stride[8];
};
/* y, in one run, := x where the word of the element in the whole tensor is at least `drop`, times scale, else 0. */
kernel void mask(const struct layout l, const struct whole g, ulong key, ulong call, long drop, T scale, MEM(x), MEM(y)) {
  EACH;
  long r = i, k = g.first;
  for (int d = (int)g.ndim - 1; d >= 0; d--) {
    k += r % g.shape[d] * g.stride[d];
    r /= g.shape[d];
  }
  PUT(X, y, i, (long)word(key, call, k) >= drop ? (T)GET(X, x, at) * scale : (T)0);
}

#else
DRAW(bernoulli, long, long) {
  EACH;
  PUT(X, x, at, (long)word(key, call, i) < a);
}
DRAW(randint, long, long) { /* the high half of the word times the range */
  EACH;
  PUT(X, x, at, a + (long)mul_hi(words(key, call, i), (ulong)b - (ulong)a));
}
#endif
