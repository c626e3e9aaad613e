/* LAPACK, loaded on first use (lapack.h, base/library.h). OpenBLAS is told to use one thread: matrices of a batch are spread over
 * accel's own threads, and its bits must not depend on their number. */
#include "ops/linalg/lapack.h"

#include <pthread.h>

#include "base/library.h"

typedef int32_t fint; /* of Fortran. The packages' default libraries have 32 bits */
typedef void svd_fn(const char *job, const fint *m, const fint *n, double *a, const fint *lda,
                    double *s, double *u, const fint *ldu, double *vt, const fint *ldvt,
                    double *work, const fint *lwork, fint *iwork, fint *info, size_t job_length);
typedef void eigh_fn(const char *job, const char *uplo, const fint *n, double *a, const fint *lda,
                     double *w, double *work, const fint *lwork, fint *iwork, const fint *liwork,
                     fint *info, size_t job_length, size_t uplo_length);

typedef void eig_fn(const char *left, const char *right, const fint *n, double *a, const fint *lda,
                    double *wr, double *wi, double *vl, const fint *ldvl, double *vr,
                    const fint *ldvr, double *work, const fint *lwork, fint *info,
                    size_t left_length, size_t right_length);
typedef void eig_complex_fn(const char *left, const char *right, const fint *n, double *a,
                            const fint *lda, double *w, double *vl, const fint *ldvl, double *vr,
                            const fint *ldvr, double *work, const fint *lwork, double *rwork,
                            fint *info, size_t left_length, size_t right_length);

typedef void eigh_complex_fn(const char *job, const char *uplo, const fint *n, double *a,
                             const fint *lda, double *w, double *work, const fint *lwork,
                             double *rwork, const fint *lrwork, fint *iwork, const fint *liwork,
                             fint *info, size_t job_length, size_t uplo_length);
typedef void svd_complex_fn(const char *job, const fint *m, const fint *n, double *a,
                            const fint *lda, double *s, double *u, const fint *ldu, double *vt,
                            const fint *ldvt, double *work, const fint *lwork, double *rwork,
                            fint *iwork, fint *info, size_t job_length);
typedef void lu_complex_fn(const fint *m, const fint *n, double *a, const fint *lda, fint *pivots,
                           fint *info);
typedef void qr_complex_fn(const fint *m, const fint *n, double *a, const fint *lda, double *tau,
                           double *work, const fint *lwork, fint *info);
typedef void q_complex_fn(const fint *m, const fint *n, const fint *k, double *a, const fint *lda,
                          const double *tau, double *work, const fint *lwork, fint *info);

/* process-wide, like the library: written once by load, read after that */
static svd_fn *svd;
static eigh_fn *eigh;
static eig_fn *eig;
static eig_complex_fn *eig_complex;
static eigh_complex_fn *eigh_complex;
static svd_complex_fn *svd_complex;
static lu_complex_fn *lu_complex;
static qr_complex_fn *qr_complex;
static q_complex_fn *q_complex;
static bool usable;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  const aci_symbol symbols[] = {
      {"dgesdd_", &svd},        {"dsyevd_", &eigh},         {"dgeev_", &eig},
      {"zgeev_", &eig_complex}, {"zheevd_", &eigh_complex}, {"zgesdd_", &svd_complex},
      {"zgetrf_", &lu_complex}, {"zgeqrf_", &qr_complex},   {"zungqr_", &q_complex}};
  const int n = (int)(sizeof symbols / sizeof *symbols);
  void (*threads)(int);
  const aci_symbol openblas = {"openblas_set_num_threads", &threads};
  usable = aci_library_open("lapack", symbols, n, NULL) == AC_OK;
  if (usable && aci_library_open("lapack", &openblas, 1, NULL) == AC_OK) threads(1);
}

bool aci_lapack_for(int64_t n) {
  if (n >= 1 << 14) return false;
  pthread_once(&once, load);
  return usable;
}

bool aci_lapack(int64_t least) { return least >= ACI_LAPACK_FROM && aci_lapack_for(least); }

static int64_t svd_work(int64_t m, int64_t n) {
  const fint fm = (fint)m, fn = (fint)n, k = m < n ? fm : fn, ask = -1;
  double work = 0;
  fint none, info;
  svd("S", &fm, &fn, &work, &fm, &work, &work, &fm, &work, &k, &work, &ask, &none, &info, 1);
  return (int64_t)work;
}

int64_t aci_lapack_svd_scratch(int64_t m, int64_t n) {
  return svd_work(m, n) + 4 * (m < n ? m : n); /* and 8 integers for each value */
}

bool aci_lapack_svd(int64_t m, int64_t n, double *a, double *u, double *s, double *vt,
                    double *scratch) {
  const fint fm = (fint)m, fn = (fint)n, k = m < n ? fm : fn, lwork = (fint)svd_work(m, n);
  fint info;
  svd("S", &fm, &fn, a, &fm, s, u, &fm, vt, &k, scratch, &lwork, (fint *)(void *)(scratch + lwork),
      &info, 1);
  return info == 0;
}

int64_t aci_lapack_eigh_scratch(int64_t n) { return 1 + 6 * n + 2 * n * n + 3 + 5 * n; }

bool aci_lapack_eigh(int64_t n, double *a, double *w, double *scratch) {
  const fint fn = (fint)n, lwork = (fint)(1 + 6 * n + 2 * n * n), liwork = 3 + 5 * fn;
  fint info;
  eigh("V", "L", &fn, a, &fn, w, scratch, &lwork, (fint *)(void *)(scratch + lwork), &liwork, &info,
       1, 1);
  return info == 0;
}

/* work holds 34 n numbers: enough for its blocks of 32 columns. */
bool aci_lapack_eig(int64_t n, double *a, double *w, double *v, double *scratch) {
  const fint fn = (fint)n, lwork = 34 * fn, one = 1;
  double *wr = scratch + lwork, *wi = wr + n, none;
  fint info;
  eig("N", "V", &fn, a, &fn, wr, wi, &none, &one, v, &fn, scratch, &lwork, &info, 1, 1);
  for (int64_t c = n - 1; c >= 0;
       c--) { /* columns of n numbers become n pairs, the last one first */
    double *to = v + 2 * c * n;
    const bool second =
        wi[c]<0, first = wi[c]> 0; /* of a conjugate pair: columns x and y of x +- i y */
    const double *x = v + (second ? c - 1 : c) * n, *y = x + n;
    w[2 * c] = wr[c];
    w[2 * c + 1] = wi[c];
    if (first) continue; /* made with its second one */
    if (!second) {
      for (int64_t r = n - 1; r >= 0; r--) {
        to[2 * r] = x[r];
        to[2 * r + 1] = 0;
      }
      continue;
    }
    double *copy = scratch; /* x and y lie where the results go */
    for (int64_t r = 0; r < n; r++) {
      copy[2 * r] = x[r];
      copy[2 * r + 1] = y[r];
    }
    for (int64_t r = 0; r < n; r++) {
      to[2 * r - 2 * n] = to[2 * r] = copy[2 * r];
      to[2 * r - 2 * n + 1] = copy[2 * r + 1];
      to[2 * r + 1] = -copy[2 * r + 1];
    }
  }
  return info == 0;
}

bool aci_lapack_eig_complex(int64_t n, double *a, double *w, double *v, double *scratch) {
  const fint fn = (fint)n, lwork = 34 * fn, one = 1;
  double none[2];
  fint info;
  eig_complex("N", "V", &fn, a, &fn, w, none, &one, v, &fn, scratch, &lwork, scratch + 2 * lwork,
              &info, 1, 1);
  return info == 0;
}

/* ---- complex matrices ---- */

int64_t aci_lapack_eigh_complex_scratch(int64_t n) {
  return 2 * (2 * n + n * n) + (1 + 5 * n + 2 * n * n) + (3 + 5 * n);
}

bool aci_lapack_eigh_complex(int64_t n, bool upper, double *a, double *w, double *scratch) {
  const fint fn = (fint)n, lwork = 2 * fn + fn * fn, lrwork = 1 + 5 * fn + 2 * fn * fn,
             liwork = 3 + 5 * fn;
  double *rwork = scratch + 2 * (int64_t)lwork;
  fint info;
  eigh_complex("V", upper ? "U" : "L", &fn, a, &fn, w, scratch, &lwork, rwork, &lrwork,
               (fint *)(void *)(rwork + lrwork), &liwork, &info, 1, 1);
  return info == 0;
}

static int64_t svd_complex_work(int64_t m, int64_t n) {
  const fint fm = (fint)m, fn = (fint)n, k = m < n ? fm : fn, ask = -1;
  double work[2] = {0}, none;
  fint whole, info;
  svd_complex("S", &fm, &fn, work, &fm, &none, work, &fm, work, &k, work, &ask, &none, &whole,
              &info, 1);
  return (int64_t)work[0];
}

static int64_t svd_complex_rwork(int64_t m, int64_t n) {
  const int64_t least = m < n ? m : n, most = m < n ? n : m, wide = 2 * most + 2 * least + 1;
  return least * (wide > 5 * least + 7 ? wide : 5 * least + 7);
}

int64_t aci_lapack_svd_complex_scratch(int64_t m, int64_t n) {
  return 2 * svd_complex_work(m, n) + svd_complex_rwork(m, n) +
         4 * (m < n ? m : n); /* and 8 integers for each value */
}

bool aci_lapack_svd_complex(int64_t m, int64_t n, double *a, double *u, double *s, double *vh,
                            double *scratch) {
  const fint fm = (fint)m, fn = (fint)n, k = m < n ? fm : fn, lwork = (fint)svd_complex_work(m, n);
  double *rwork = scratch + 2 * (int64_t)lwork;
  fint info;
  svd_complex("S", &fm, &fn, a, &fm, s, u, &fm, vh, &k, scratch, &lwork, rwork,
              (fint *)(void *)(rwork + svd_complex_rwork(m, n)), &info, 1);
  return info == 0;
}

int32_t aci_lapack_lu_complex(int64_t m, int64_t n, double *a, int32_t *pivots) {
  const fint fm = (fint)m, fn = (fint)n;
  fint info;
  lu_complex(&fm, &fn, a, &fm, pivots, &info);
  return info;
}

int64_t aci_lapack_qr_complex_scratch(int64_t n) { return 2 * 32 * n; }

bool aci_lapack_qr_complex(int64_t m, int64_t n, double *a, double *tau, double *scratch) {
  const fint fm = (fint)m, fn = (fint)n, lwork = 32 * fn;
  fint info;
  qr_complex(&fm, &fn, a, &fm, tau, scratch, &lwork, &info);
  return info == 0;
}

bool aci_lapack_q_complex(int64_t m, int64_t n, int64_t k, double *a, const double *tau,
                          double *scratch) {
  const fint fm = (fint)m, fn = (fint)n, fk = (fint)k, lwork = 32 * fn;
  fint info;
  q_complex(&fm, &fn, &fk, a, &fm, tau, scratch, &lwork, &info);
  return info == 0;
}
