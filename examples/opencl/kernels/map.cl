/* out[i] = FORMULA of the elements x y z w and the numbers p[0], p[1], ...; the head of the program says what these are:
 *   T, OUT      compute type, dtype of the result
 *   N           operands; X Y Z W: how an element of each is read */
float rounded_bf16(float x) { return as_float((uint)bf16_bits(x) << 16); }
float rounded_f16(float x) {
  ushort h;
  vstore_half_rte(x, 0, (half *)&h);
  return vload_half(0, (const half *)&h);
}

/* ---- integers: powers and quotients as Lua's ---- */
long whole_power(long x, long n) {
  if (n < 0) return x == 1 ? 1 : x == -1 ? (n & 1 ? -1 : 1) : 0;
  ulong r = 1, b = (ulong)x;
  for (; n != 0; n >>= 1, b *= b)
    if (n & 1) r *= b;
  return (long)r;
}
long whole_mod(long x, long y) {
  const long r = y == -1 ? 0 : x % y;
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
long whole_quotient(long x, long y) {
  if (y == -1) return -x;
  return x % y != 0 && (x < 0) != (y < 0) ? x / y - 1 : x / y;
}

#ifdef REAL
T real_mod(T x, T y) {
  const T r = fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
T real_quotient(T x, T y) {
  const T plain = x / y, r = y == 0 ? 0 : fmod(x, y);
  T q = (x - r) / y;
  q = rint(r != 0 && (r < 0) != (y < 0) ? q - 1 : q);
  return y == 0 ? plain : q == 0 ? copysign((T)0, plain) : q;
}
T clipped(T x, T eps) { return eps < 0 ? x : x < eps ? eps : x > 1 - eps ? 1 - eps : x; }
/* 1 + tanh u = 2 sigmoid(2u): the 2u of gelu's approximation, and the slopes of both forms */
T gelu_arg(T x) { return (T)1.59576912160573071176 * x * (1 + (T)0.044715 * x * x); }
T gelu_slope(T x) {
  const T e = exp((T)-0.5 * x * x);
  return (T)0.5 * erfc(x * (T)-0.70710678118654752440) + (e == 0 ? 0 : x * e * (T)0.39894228040143267794);
}
T gelu_tanh_slope(T x) {
  const T v = gelu_arg(x), z = exp(-fabs(v)), r = 1 / (1 + z), s = (v >= 0 ? 1 : z) * r;
  return s + (z == 0 ? 0 : x * (z * r * r) * ((T)1.59576912160573071176 * (1 + (T)0.134145 * x * x)));
}
T mish_slope(T x) {
  const T z = exp(x > 20 ? (T)20 : x), n = z * (z + 2), r = 1 / (n + 2), u = 4 * z * (1 + z) * r;
  return x > 20 ? 1 : x == -(T)INFINITY ? 0 : n * r + x * (u * r);
}
#endif

struct numbers {
  T number[4], p[6];
};

kernel void map(const struct layout l, const struct numbers c, MEM(m0), MEM(m1), MEM(m2), MEM(m3), MEM(out)) {
  const long i = get_global_id(0);
  if (i >= l.n) return;
  const T *p = c.p;
  const T x = (T)X;
#if N > 1
  const T y = (T)Y;
#endif
#if N > 2
  const T z = (T)Z;
#endif
#if N > 3
  const T w = (T)W;
#endif
  (void)p;
  PUT(OUT, out, element(&l, 4, i), (T)(FORMULA));
}
