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

/* process-wide, like the library: written once by load, read after that */
static svd_fn *svd;
static eigh_fn *eigh;
static bool usable;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  const aci_symbol symbols[] = {{"dgesdd_", &svd}, {"dsyevd_", &eigh}};
  void (*threads)(int);
  const aci_symbol openblas = {"openblas_set_num_threads", &threads};
  usable = aci_library_open("lapack", symbols, 2, NULL) == AC_OK;
  if (usable && aci_library_open("lapack", &openblas, 1, NULL) == AC_OK) threads(1);
}

bool aci_lapack(int64_t least) {
  if (least < ACI_LAPACK_FROM || least >= 1 << 14) return false;
  pthread_once(&once, load);
  return usable;
}

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
