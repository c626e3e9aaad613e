/* Plans of Fourier transforms and their cache. See plan.h. */
#include "ops/fft/plan.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "device/cpu/isa.h"

#define T float
#define NAME(x) x##_f32
#include "ops/fft/stages.h"
#undef T
#undef NAME
#define T double
#define NAME(x) x##_f64
#include "ops/fft/stages.h"
#undef T
#undef NAME

/* By octants, so that angles stay below pi / 4 and the roots at quarters are exact. */
void aci_fft_root(int64_t k, int64_t n, double *re, double *im) {
  const double pi = 0x1.921fb54442d18p+1;
  k %= n;
  const bool lower = 2 * k > n; /* conjugate of n - k */
  if (lower) k = n - k;
  const bool left = 4 * k > n; /* mirrored at the imaginary axis */
  const double num = left ? (double)(n - 2 * k) : (double)(2 * k); /* angle = pi num / n */
  double c, s;
  if (4 * num > (double)n) { /* above pi / 4 */
    const double rest = pi * ((double)n - 2 * num) / (2 * (double)n);
    c = sin(rest);
    s = cos(rest);
  } else {
    c = cos(pi * num / (double)n);
    s = sin(pi * num / (double)n);
  }
  *re = left ? -c : c;
  *im = lower ? s : -s;
}

static void put(const aci_fft_plan *p, void *list, int64_t at, double v) {
  if (p->f64) ((double *)list)[at] = v;
  else ((float *)list)[at] = (float)v;
}

static size_t bytes_of(const aci_fft_plan *p) { return p->f64 ? 8 : 4; }

static bool factor(aci_fft_plan *p) {
  int64_t n = p->n;
  p->n_stages = 0;
  while (n % 4 == 0) {
    p->radix[p->n_stages++] = 4;
    n /= 4;
  }
  for (int r = 2; r <= ACI_FFT_PRIME && n > 1; r++)
    while (n % r == 0) {
      p->radix[p->n_stages++] = r;
      n /= r;
    }
  return n == 1;
}

/* The roots of every stage. */
static ac_status stage_roots(aci_fft_plan *p, ac_err *e) {
  int64_t total = 1, m = p->n;
  for (int i = 0; i < p->n_stages; i++) {
    m /= p->radix[i];
    total += (m * (p->radix[i] - 1) + p->radix[i]) * 2;
  }
  p->roots = malloc((size_t)total * bytes_of(p));
  if (p->roots == NULL)
    return AC_FAIL(e, OOM, "no memory for a transform of %lld", (long long)p->n);
  int64_t at = 0, n = p->n;
  double c, s;
  for (int i = 0; i < p->n_stages; i++) {
    const int r = p->radix[i];
    p->at[i] = at;
    for (int64_t k = 0; k < n / r; k++)
      for (int j = 1; j < r; j++) {
        aci_fft_root(k * j, n, &c, &s);
        put(p, p->roots, at++, c);
        put(p, p->roots, at++, s);
      }
    p->unity[i] = at;
    for (int k = 0; k < r; k++) {
      aci_fft_root(k, r, &c, &s);
      put(p, p->roots, at++, c);
      put(p, p->roots, at++, s);
    }
    n /= r;
  }
  return AC_OK;
}

static void plan_free(aci_fft_plan *p) {
  if (p == NULL) return;
  aci_fft_plan_release(p->inner);
  free(p->roots);
  free(p->chirp);
  free(p->filter);
  free(p);
}

/* The chirp is e^(-pi i j^2 / n). Its conjugate, periodic in m, is transformed once, in f64. */
static ac_status chirps(aci_fft_plan *p, ac_err *e) {
  int64_t m = 1;
  const int64_t n = p->n;
  aci_fft_plan *wide = NULL;
  while (m < 2 * n - 1) m *= 2;
  AC_TRY(aci_fft_plan_get(m, p->f64, &p->inner, e));
  AC_TRY(aci_fft_plan_get(m, true, &wide, e));
  double *v = calloc((size_t)m * 2, sizeof *v), *scratch = malloc((size_t)m * 2 * sizeof *v);
  p->chirp = malloc((size_t)n * 2 * bytes_of(p));
  p->filter = malloc((size_t)m * 2 * bytes_of(p));
  ac_status st = AC_OK;
  if (v == NULL || scratch == NULL || p->chirp == NULL || p->filter == NULL) {
    st = AC_FAIL(e, OOM, "no memory for a transform of %lld", (long long)n);
  } else {
    int64_t square = 0; /* j^2 modulo 2 n */
    for (int64_t j = 0; j < n; j++) {
      double c, s;
      aci_fft_root(square, 2 * n, &c, &s);
      put(p, p->chirp, j, c);
      put(p, p->chirp, n + j, s);
      v[j] = c;
      v[m + j] = -s;
      if (j > 0) {
        v[m - j] = c;
        v[2 * m - j] = -s;
      }
      square = (square + 2 * j + 1) % (2 * n);
    }
    aci_fft_run_f64(wide, v, v + m, 1, scratch);
    for (int64_t k = 0; k < 2 * m; k++) put(p, p->filter, k, v[k] / (double)m);
  }
  free(v);
  free(scratch);
  aci_fft_plan_release(wide);
  return st;
}

static ac_status plan_new(int64_t n, bool f64, aci_fft_plan **out, ac_err *e) {
  aci_fft_plan *p = calloc(1, sizeof *p);
  *out = NULL;
  if (p == NULL) return AC_FAIL(e, OOM, "no memory for a transform of %lld", (long long)n);
  p->n = n;
  p->f64 = f64;
  p->ref = 1;
  const ac_status st = factor(p) ? stage_roots(p, e) : chirps(p, e);
  if (st == AC_OK) *out = p;
  else plan_free(p);
  return st;
}

/* ---- the cache: state of the process, since plans follow from length and dtype alone ---- */

enum { KEPT = 16 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static aci_fft_plan *kept[KEPT]; /* the last one used comes first. Each holds a reference */

static aci_fft_plan *take(int64_t n, bool f64) {
  aci_fft_plan *p = NULL;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < KEPT && kept[i] != NULL && p == NULL; i++) {
    if (kept[i]->n != n || kept[i]->f64 != f64) continue;
    p = kept[i];
    p->ref++;
    memmove(kept + 1, kept, (size_t)i * sizeof *kept);
    kept[0] = p;
  }
  pthread_mutex_unlock(&lock);
  return p;
}

static void keep(aci_fft_plan *p) {
  pthread_mutex_lock(&lock);
  aci_fft_plan *last = kept[KEPT - 1];
  memmove(kept + 1, kept, (KEPT - 1) * sizeof *kept);
  kept[0] = p;
  p->ref++;
  pthread_mutex_unlock(&lock);
  aci_fft_plan_release(last);
}

ac_status aci_fft_plan_get(int64_t n, bool f64, aci_fft_plan **out, ac_err *e) {
  enum { MOST = 1 << 18 }; /* the tables of longer ones are made anew each time */
  *out = take(n, f64);
  if (*out != NULL) return AC_OK;
  AC_TRY(plan_new(n, f64, out, e));
  if (n <= MOST) keep(*out);
  return AC_OK;
}

void aci_fft_plan_release(aci_fft_plan *p) {
  if (p == NULL) return;
  pthread_mutex_lock(&lock);
  const bool last = --p->ref == 0;
  pthread_mutex_unlock(&lock);
  if (last) plan_free(p);
}

int64_t aci_fft_scratch(const aci_fft_plan *p) {
  return p->inner != NULL ? 4 * p->inner->n : 2 * p->n;
}
