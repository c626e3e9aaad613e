/* Discrete Fourier transforms of lines of complex numbers, of any length, in f32 and f64.
 *
 * A length whose prime factors are all at most ACI_FFT_PRIME is transformed in stages of radix 4, 2,
 * 3, 5 or the factor itself (Stockham's order, which sorts as it goes). Any other length is a
 * convolution with a chirp (Bluestein), by transforms of a power of two. Several lines are
 * transformed at once, element by element next to each other, which makes vectors of every stage.
 * The bits of a line do not depend on the lines next to it.
 *
 * plan.c makes and caches plans, stages.h has the stages, lines.c runs lines in tasks. Used by
 * fft_c2c, fft_r2c and fft_c2r. KISS FFT is not used: Debian's package has no f64, and prime
 * lengths cost n^2 there (f32, one core, package 131.1.0: n = 10007 takes 120 ms, here 0.6 ms). */
#ifndef ACI_OPS_FFT_PLAN_H
#define ACI_OPS_FFT_PLAN_H
#include "ops/core/op.h"

enum { ACI_FFT_PRIME = 31, ACI_FFT_STAGES = 64 };

typedef struct aci_fft_plan {
  int64_t n;
  bool f64;
  int n_stages;
  int radix[ACI_FFT_STAGES];
  /* per stage, m positions of (radix - 1) roots, real parts then imaginary parts: offsets into
   * `roots`. Then the radix roots of unity of a radix above 5 */
  int64_t at[ACI_FFT_STAGES], unity[ACI_FFT_STAGES];
  void *roots;
  /* Bluestein: the length is in `inner`, the chirp w^(j^2 / 2) of n, the transform of its
   * conjugate of inner->n, divided by inner->n */
  struct aci_fft_plan *inner;
  void *chirp, *filter; /* real parts, then imaginary parts */
  int ref;
} aci_fft_plan;

/* A plan from the process's cache, or a new one. OOM. Released by aci_fft_plan_release. */
ac_status aci_fft_plan_get(int64_t n, bool f64, aci_fft_plan **out, ac_err *e);
void aci_fft_plan_release(aci_fft_plan *p);
/* e^(-2 pi i k / n) */
void aci_fft_root(int64_t k, int64_t n, double *re, double *im);

/* Numbers of scratch memory that a line takes. */
int64_t aci_fft_scratch(const aci_fft_plan *p);
/* Transforms `lines` lines, element j of line l at [j * lines + l], in place, without a factor. An
 * inverse transform is one with re and im exchanged. scratch: aci_fft_scratch * lines. */
void aci_fft_run_f32(const aci_fft_plan *p, float *re, float *im, int64_t lines, float *scratch);
void aci_fft_run_f64(const aci_fft_plan *p, double *re, double *im, int64_t lines, double *scratch);

/* ---- lines of tensors (lines.c) ---- */

/* One dim of a tensor, and the positions along the other dims. */
typedef struct aci_fft_axis {
  char *ptr;
  int64_t step; /* between elements of a line, in floats */
  int ndim;
  int64_t stride[AC_MAX_DIMS]; /* of the other dims, in floats */
} aci_fft_axis;

typedef struct aci_fft_job aci_fft_job;
struct aci_fft_job {
  const aci_fft_plan *plan;
  /* fills or empties n numbers of each of `lines` lines, which start at in[l] and out[l] */
  void (*load)(const aci_fft_job *j, const char *const *in, int64_t lines, void *re, void *im);
  void (*store)(const aci_fft_job *j, char *const *out, int64_t lines, const void *re,
                const void *im);
  bool inverse;
  bool weighted; /* doubled or halved, see fft_r2c and fft_c2r */
  int64_t n;     /* of the transform, n / 2 in the plan if n is even and one side is real */
  double scale;
  const double *turn; /* e^(-2 pi i k / n), k = 0 .. n / 2: pairs, if one side is real */
  aci_fft_axis in, out;
  int64_t shape[AC_MAX_DIMS]; /* of the other dims */
  int64_t n_lines;
};

/* The axis `dim` of t. pairs: its last dim is real and imaginary part, and stays out. */
void aci_fft_axis_of(const ac_tensor *t, int dim, bool pairs, aci_fft_axis *a, int64_t *shape,
                     int64_t *n_lines);
ac_status aci_fft_lines(ac_frame *f, aci_fft_job *j, ac_err *e);
/* The pairs of one line, or a real one: shared by the three ops. */
#define ACI_FFT_EACH(j, CALL) \
  do {                        \
    if ((j)->plan->f64) {     \
      typedef double T;       \
      CALL                    \
    } else {                  \
      typedef float T;        \
      CALL                    \
    }                         \
  } while (0)

/* Checks x (..., 2) or real, and its dim. */
ac_status aci_fft_check(const ac_frame *f, const ac_tensor *x, int64_t dim, bool pairs, ac_err *e);

#endif
