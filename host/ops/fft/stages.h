/* The stages of a transform for one float type: included by plan.c with T and NAME(x) defined. See
 * plan.h.
 *
 * A stage of radix r over transforms of length r m, whose elements are s numbers apart:
 *   y[q + s (r p + k)] = w^(p k) sum_j x[q + s (p + m j)] u^(j k),  w = e^(-2 pi i / (r m)), u = w^m */

#define ACI_FFT_STAGE(name)                                                                    \
  AC_ISA_FN(NAME(name),                                                                        \
            (int64_t m, int64_t s, const T *restrict xr, const T *restrict xi, T *restrict yr, \
             T *restrict yi, const T *restrict w),                                             \
            (m, s, xr, xi, yr, yi, w))

/* z times root k of position p, into result k of position p. */
#define TIMES(k, zr, zi)                                                                   \
  do {                                                                                     \
    const T a_ = (zr), b_ = (zi);                                                          \
    yr[q + s * (R * p + (k))] =                                                            \
        a_ * w[(R - 1) * 2 * p + ((k)-1) * 2] - b_ * w[(R - 1) * 2 * p + ((k)-1) * 2 + 1]; \
    yi[q + s * (R * p + (k))] =                                                            \
        a_ * w[(R - 1) * 2 * p + ((k)-1) * 2 + 1] + b_ * w[(R - 1) * 2 * p + ((k)-1) * 2]; \
  } while (0)
#define IN(j) q + s *(p + m * (j))

#define R 2
ACI_FFT_STAGE(radix2) {
  for (int64_t p = 0; p < m; p++) _Pragma("GCC ivdep") for (int64_t q = 0; q < s; q++) {
      const T ar = xr[IN(0)], ai = xi[IN(0)], br = xr[IN(1)], bi = xi[IN(1)];
      yr[q + s * (R * p)] = ar + br;
      yi[q + s * (R * p)] = ai + bi;
      TIMES(1, ar - br, ai - bi);
    }
}
#undef R

#define R 4
ACI_FFT_STAGE(radix4) {
  for (int64_t p = 0; p < m; p++) _Pragma("GCC ivdep") for (int64_t q = 0; q < s; q++) {
      const T ar = xr[IN(0)], ai = xi[IN(0)], br = xr[IN(1)], bi = xi[IN(1)], cr = xr[IN(2)],
              ci = xi[IN(2)], dr = xr[IN(3)], di = xi[IN(3)];
      const T er = ar + cr, ei = ai + ci, fr = ar - cr, fi = ai - ci, gr = br + dr, gi = bi + di,
              hr = br - dr, hi = bi - di;
      yr[q + s * (R * p)] = er + gr;
      yi[q + s * (R * p)] = ei + gi;
      TIMES(1, fr + hi, fi - hr);
      TIMES(2, er - gr, ei - gi);
      TIMES(3, fr - hi, fi + hr);
    }
}
#undef R

#define R 3
ACI_FFT_STAGE(radix3) {
  const T sin60 = (T)0x1.bb67ae8584caap-1;
  for (int64_t p = 0; p < m; p++) _Pragma("GCC ivdep") for (int64_t q = 0; q < s; q++) {
      const T ar = xr[IN(0)], ai = xi[IN(0)], br = xr[IN(1)], bi = xi[IN(1)], cr = xr[IN(2)],
              ci = xi[IN(2)];
      const T sr = br + cr, si = bi + ci, dr = sin60 * (br - cr), di = sin60 * (bi - ci);
      const T hr = ar - sr / 2, hi = ai - si / 2;
      yr[q + s * (R * p)] = ar + sr;
      yi[q + s * (R * p)] = ai + si;
      TIMES(1, hr + di, hi - dr);
      TIMES(2, hr - di, hi + dr);
    }
}
#undef R

#define R 5
ACI_FFT_STAGE(radix5) {
  const T c1 = (T)0x1.3c6ef372fe94fp-2, c2 = (T)-0x1.9e3779b97f4a8p-1, s1 = (T)0x1.e6f0e134454ffp-1,
          s2 = (T)0x1.2cf2304755a5ep-1;
  for (int64_t p = 0; p < m; p++) _Pragma("GCC ivdep") for (int64_t q = 0; q < s; q++) {
      const T ar = xr[IN(0)], ai = xi[IN(0)], br = xr[IN(1)], bi = xi[IN(1)], cr = xr[IN(2)],
              ci = xi[IN(2)], dr = xr[IN(3)], di = xi[IN(3)], er = xr[IN(4)], ei = xi[IN(4)];
      const T pr = br + er, pi = bi + ei, mr = br - er, mi = bi - ei, ur = cr + dr, ui = ci + di,
              vr = cr - dr, vi = ci - di;
      const T fr = ar + c1 * pr + c2 * ur, fi = ai + c1 * pi + c2 * ui, gr = s1 * mr + s2 * vr,
              gi = s1 * mi + s2 * vi;
      const T hr = ar + c2 * pr + c1 * ur, hi = ai + c2 * pi + c1 * ui, kr = s2 * mr - s1 * vr,
              ki = s2 * mi - s1 * vi;
      yr[q + s * (R * p)] = ar + pr + ur;
      yi[q + s * (R * p)] = ai + pi + ui;
      TIMES(1, fr + gi, fi - gr);
      TIMES(2, hr + ki, hi - kr);
      TIMES(3, hr - ki, hi + kr);
      TIMES(4, fr - gi, fi + gr);
    }
}
#undef R

/* Any radix: each result is a sum over the radix roots of unity. */
static void NAME(radix_any)(int radix, int64_t m, int64_t s, const T *restrict xr,
                            const T *restrict xi, T *restrict yr, T *restrict yi,
                            const T *restrict w, const T *restrict unity) {
  for (int64_t p = 0; p < m; p++)
    for (int k = 0; k < radix; k++) {
      T *restrict zr = yr + s * (radix * p + k), *restrict zi = yi + s * (radix * p + k);
      for (int64_t q = 0; q < s; q++) zr[q] = xr[s * p + q];
      for (int64_t q = 0; q < s; q++) zi[q] = xi[s * p + q];
      for (int j = 1; j < radix; j++) {
        const T c = unity[2 * (j * k % radix)], d = unity[2 * (j * k % radix) + 1];
        const T *restrict ar = xr + s * (p + m * j), *restrict ai = xi + s * (p + m * j);
        for (int64_t q = 0; q < s; q++) {
          zr[q] += ar[q] * c - ai[q] * d;
          zi[q] += ar[q] * d + ai[q] * c;
        }
      }
      if (k == 0) continue;
      const T c = w[((radix - 1) * p + k - 1) * 2], d = w[((radix - 1) * p + k - 1) * 2 + 1];
      for (int64_t q = 0; q < s; q++) {
        const T a = zr[q], b = zi[q];
        zr[q] = a * c - b * d;
        zi[q] = a * d + b * c;
      }
    }
}

static void NAME(staged)(const aci_fft_plan *p, T *re, T *im, int64_t lines, T *scratch) {
  T *ar = re, *ai = im, *br = scratch, *bi = scratch + p->n * lines;
  const T *roots = p->roots;
  int64_t m = p->n, s = lines;
  for (int i = 0; i < p->n_stages; i++) {
    const int r = p->radix[i];
    const T *w = roots + p->at[i];
    m /= r;
    switch (r) {
      case 2: NAME(radix2)(m, s, ar, ai, br, bi, w); break;
      case 3: NAME(radix3)(m, s, ar, ai, br, bi, w); break;
      case 4: NAME(radix4)(m, s, ar, ai, br, bi, w); break;
      case 5: NAME(radix5)(m, s, ar, ai, br, bi, w); break;
      default: NAME(radix_any)(r, m, s, ar, ai, br, bi, w, roots + p->unity[i]);
    }
    s *= r;
    T *t = ar;
    ar = br;
    br = t;
    t = ai;
    ai = bi;
    bi = t;
  }
  if (ar == re) return;
  memcpy(re, ar, (size_t)(p->n * lines) * sizeof *re);
  memcpy(im, ai, (size_t)(p->n * lines) * sizeof *im);
}

/* x_j c_j, convolved with the conjugate chirp, times c_k. */
static void NAME(bluestein)(const aci_fft_plan *p, T *re, T *im, int64_t lines, T *scratch) {
  const int64_t n = p->n, m = p->inner->n;
  T *ar = scratch, *ai = scratch + m * lines, *more = ai + m * lines;
  const T *cr = p->chirp, *ci = cr + n, *fr = p->filter, *fi = fr + m;
  for (int64_t j = 0; j < n; j++)
    for (int64_t l = 0; l < lines; l++) {
      const T a = re[j * lines + l], b = im[j * lines + l];
      ar[j * lines + l] = a * cr[j] - b * ci[j];
      ai[j * lines + l] = a * ci[j] + b * cr[j];
    }
  memset(ar + n * lines, 0, (size_t)((m - n) * lines) * sizeof *ar);
  memset(ai + n * lines, 0, (size_t)((m - n) * lines) * sizeof *ai);
  NAME(staged)(p->inner, ar, ai, lines, more);
  for (int64_t j = 0; j < m; j++)
    for (int64_t l = 0; l < lines; l++) {
      const T a = ar[j * lines + l], b = ai[j * lines + l];
      ar[j * lines + l] = a * fr[j] - b * fi[j];
      ai[j * lines + l] = a * fi[j] + b * fr[j];
    }
  NAME(staged)(p->inner, ai, ar, lines, more); /* exchanged: the inverse */
  for (int64_t k = 0; k < n; k++)
    for (int64_t l = 0; l < lines; l++) {
      const T a = ar[k * lines + l], b = ai[k * lines + l];
      re[k * lines + l] = a * cr[k] - b * ci[k];
      im[k * lines + l] = a * ci[k] + b * cr[k];
    }
}

void NAME(aci_fft_run)(const aci_fft_plan *p, T *re, T *im, int64_t lines, T *scratch) {
  if (p->inner != NULL) NAME(bluestein)(p, re, im, lines, scratch);
  else NAME(staged)(p, re, im, lines, scratch);
}

#undef TIMES
#undef IN
#undef ACI_FFT_STAGE
