/* Transposed convolutions with few result channels, or with a wide stride. First the products of
 * weights and positions, one matrix of (result channel and tap) rows per image, then its rows are
 * added to their positions in the result. Gathering them, as conv_product.c does, would stage all
 * source channels for little work each. Called by conv.c.
 *
 * Large batches are shared out by images. In small batches the threads share every image. Positions
 * that meet in one element of the result are added in the order of taps, whatever the number of
 * threads. */
#include <stdatomic.h>
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/conv_impl.h"

enum { MANY_IMAGES = 8 };
static const int64_t COLUMNS_BYTES = 8 << 20; /* of products of an image at a time */

typedef struct conv_fold_job {
  const aci_conv *c;
  const void *dy, *w, *bias;
  void *dx;
  aci_gemm_type acc;
  ac_team *inner; /* for the work on one image */
  int64_t rows;   /* positions (depth, row) of dy whose products are held at a time */
  _Atomic int st; /* the first failure's status */
} conv_fold_job;

/* One image: the places of its products and, for 16-bit types, its sums. */
typedef struct image {
  const conv_fold_job *j;
  int64_t n;          /* which */
  int64_t row0, rows; /* of dy, of the products held */
  const char *columns;
  char *sums;
} image;

#define ADD(NAME, T)                                                             \
  AC_ISA_FN(NAME, (T *restrict d, const T *restrict s, int64_t step, int64_t n), \
            (d, s, step, n)) {                                                   \
    if (step == 1)                                                               \
      for (int64_t i = 0; i < n; i++) d[i] += s[i];                              \
    else                                                                         \
      for (int64_t i = 0; i < n; i++) d[i * step] += s[i];                       \
  }
ADD(add_f32, float)
ADD(add_f64, double)

/* The position q of a dim whose tap k lands at position p of the result: q * stride + k * dil - pad
 * = p. -1: none. */
static int64_t position_of(const aci_conv *c, int d, int64_t p, int64_t k) {
  const int64_t at = p + c->pad[d] - k * c->dil[d];
  return at >= 0 && at % c->stride[d] == 0 && at / c->stride[d] < c->out[d] ? at / c->stride[d]
                                                                            : -1;
}

/* Rows [begin, end) of the result, (channel, depth, height) of them. */
static void add_rows(void *arg, int64_t begin, int64_t end) {
  const image *m = arg;
  const aci_conv *c = m->j->c;
  const int64_t ab = aci_gemm_type_bytes(m->j->acc), ld = m->rows * c->out[2],
                stride = c->stride[2];
  for (int64_t r = begin; r < end; r++) {
    const int64_t h = r % c->in[1], d = r / c->in[1] % c->in[0], channel = r / c->in[1] / c->in[0];
    char *to = m->sums + r * c->in[2] * ab;
    for (int64_t kd = 0; kd < c->k[0]; kd++) {
      const int64_t qd = position_of(c, 0, d, kd);
      for (int64_t kh = 0; qd >= 0 && kh < c->k[1]; kh++) {
        const int64_t qh = position_of(c, 1, h, kh), row = qd * c->out[1] + qh - m->row0;
        if (qh < 0 || row < 0 || row >= m->rows) continue;
        for (int64_t kw = 0; kw < c->k[2]; kw++) {
          const int64_t off = kw * c->dil[2] - c->pad[2], k = (kd * c->k[1] + kh) * c->k[2] + kw;
          const int64_t lo = off >= 0 ? 0 : aci_conv_ceil(-off, stride);
          const int64_t hi =
              off >= c->in[2] ? 0 : aci_conv_min((c->in[2] - 1 - off) / stride + 1, c->out[2]);
          if (hi <= lo) continue;
          const char *from =
              m->columns + ((channel * aci_conv_size(c->k) + k) * ld + row * c->out[2] + lo) * ab;
          char *at = to + (lo * stride + off) * ab;
          if (ab == 8)
            add_f64((double *)(void *)at, (const double *)(const void *)from, stride, hi - lo);
          else add_f32((float *)(void *)at, (const float *)(const void *)from, stride, hi - lo);
        }
      }
    }
  }
}

#define FILL(NAME, T)                                   \
  AC_ISA_FN(NAME, (T * d, T v, int64_t n), (d, v, n)) { \
    for (int64_t i = 0; i < n; i++) d[i] = v;           \
  }
FILL(fill_f32, float)
FILL(fill_f64, double)
#define STORE(NAME, PUT)                                                                   \
  AC_ISA_FN(NAME, (uint16_t *restrict d, const float *restrict s, int64_t n), (d, s, n)) { \
    for (int64_t i = 0; i < n; i++) d[i] = PUT(s[i]);                                      \
  }
STORE(store_bf16, aci_f32_to_bf16)
STORE(store_f16, aci_f32_to_f16)

/* dx of image n: columns (ci * taps, positions) = weights' dy, some rows of positions at a time,
 * and then each row of the result adds the taps that fall on it (col2im). Sums are made in dx
 * itself if it has the accumulator's type, otherwise in scratch, and rounded once. */
static ac_status run_image(const conv_fold_job *j, int64_t n, ac_err *e) {
  const aci_conv *c = j->c;
  const int64_t es = aci_gemm_type_bytes(c->type), ab = aci_gemm_type_bytes(j->acc),
                plane = aci_conv_size(c->in);
  const int64_t positions = aci_conv_size(c->out), taps = aci_conv_size(c->k),
                rows = c->out[0] * c->out[1];
  const int64_t bytes = (c->ci * taps * j->rows * c->out[2] * ab + 63) / 64 * 64;
  char *columns =
      aci_scratch(ACI_SCRATCH_COLUMNS, (size_t)(bytes + (es < ab ? c->ci * plane * ab : 0)));
  if (columns == NULL) return AC_FAIL(e, OOM, "out of memory for the products of a convolution");
  image m = {.j = j, .n = n, .columns = columns};
  m.sums = es < ab ? columns + bytes : (char *)j->dx + n * c->ci * plane * es;
  for (int64_t ch = 0; ch < c->ci; ch++) {
    const double b = j->bias == NULL ? 0 : aci_gemm_load(c->type, j->bias, ch);
    if (ab == 8) fill_f64((double *)(void *)m.sums + ch * plane, b, plane);
    else fill_f32((float *)(void *)m.sums + ch * plane, (float)b, plane);
  }
  for (m.row0 = 0; m.row0 < rows; m.row0 += j->rows) {
    m.rows = aci_conv_min(j->rows, rows - m.row0);
    const void *a = j->w,
               *b = (const char *)j->dy + (n * c->co * positions + m.row0 * c->out[2]) * es;
    void *out = columns;
    const aci_gemm g = {.in_type = c->type,
                        .out_type = j->acc,
                        .m = c->ci * taps,
                        .n = m.rows * c->out[2],
                        .k = c->co,
                        .a_rs = 1,
                        .a_cs = c->ci * taps,
                        .b_rs = positions,
                        .b_cs = 1,
                        .c_rs = m.rows * c->out[2],
                        .n_batch = 1,
                        .a = &a,
                        .b = &b,
                        .c = &out,
                        .alpha = 1};
    AC_TRY(aci_cpu_gemm(j->inner, &g, e));
    const int64_t all = c->ci * c->in[0] * c->in[1];
    ac_parallel_for(j->inner, all, aci_conv_max((1 << 14) / (c->in[2] * c->k[2]), 1), add_rows, &m);
  }
  if (es == ab) return AC_OK;
  uint16_t *to = (uint16_t *)j->dx + n * c->ci * plane;
  if (c->type == ACI_GEMM_BF16) store_bf16(to, (const float *)(const void *)m.sums, c->ci * plane);
  else store_f16(to, (const float *)(const void *)m.sums, c->ci * plane);
  return AC_OK;
}

static void image_piece(void *arg, int64_t begin, int64_t end) {
  conv_fold_job *j = arg;
  ac_err e;
  for (int64_t n = begin; n < end; n++) {
    ac_status st = run_image(j, n, &e);
    if (st != AC_OK) j->st = (int)st;
  }
}

/* Bytes of the products of one row of positions. */
static int64_t row_bytes(const aci_conv *c) {
  return c->ci * aci_conv_size(c->k) * c->out[2] * (c->type == ACI_GEMM_F64 ? 8 : 4);
}

bool aci_conv_wants_fold(const aci_conv *c) {
  if (c->groups != 1 || c->co == 0 || aci_conv_size(c->out) == 0 ||
      row_bytes(c) > 4 * COLUMNS_BYTES)
    return false;
  return c->ci <= 2 * ACI_CONV_DIRECT ||
         (aci_conv_size(c->stride) >= 64 && aci_conv_size(c->k) >= 64);
}

ac_status aci_conv_run_fold(ac_team *team, const aci_conv *c, const void *dy, const void *w,
                            const void *bias, void *dx, ac_err *e) {
  conv_fold_job j = {.c = c, .dy = dy, .w = w, .bias = bias, .dx = dx, .st = AC_OK};
  j.acc = c->type == ACI_GEMM_F64 ? ACI_GEMM_F64 : ACI_GEMM_F32;
  if (c->n * c->ci * aci_conv_size(c->in) == 0) return AC_OK;
  j.rows = aci_conv_min(aci_conv_max(COLUMNS_BYTES / row_bytes(c), 1), c->out[0] * c->out[1]);
  if (c->n >= MANY_IMAGES) {
    ac_parallel_for(team, c->n, 1, image_piece, &j);
    return j.st == AC_OK ? AC_OK
                         : AC_FAIL(e, OOM, "out of memory for the products of a convolution");
  }
  j.inner = team;
  for (int64_t n = 0; n < c->n; n++) AC_TRY(run_image(&j, n, e));
  return AC_OK;
}
