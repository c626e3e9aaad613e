/* From the sums of a tile to the result of a convolution: bias, conversion, and the positions' way
 * into the result. Called by conv_product.c and conv_direct.c. */
#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/conv_impl.h"

int64_t aci_conv_kernel_tap(const aci_conv_product *p, int64_t t) {
  const aci_conv_axis *a = p->w.a;
  const int64_t d = t / a[2].taps / a[1].taps, h = t / a[2].taps % a[1].taps, x = t % a[2].taps;
  return ((a[0].tap0 + d * a[0].dtap) * p->k[1] + a[1].tap0 + h * a[1].dtap) * p->k[2] + a[2].tap0 +
         x * a[2].dtap;
}

#define SAME(x) (x)
#define STORE(NAME, T, ACC, PUT)                                                        \
  AC_ISA_FN(NAME, (T *restrict d, int64_t by, const ACC *restrict s, int64_t n, ACC b), \
            (d, by, s, n, b)) {                                                         \
    if (by == 1)                                                                        \
      for (int64_t i = 0; i < n; i++) d[i] = PUT(s[i] + b);                             \
    else                                                                                \
      for (int64_t i = 0; i < n; i++) d[i * by] = PUT(s[i] + b);                        \
  }
STORE(store_f64, double, double, SAME)
STORE(store_f32, float, float, SAME)
STORE(store_bf16, uint16_t, float, aci_f32_to_bf16)
STORE(store_f16, uint16_t, float, aci_f32_to_f16)

static void store(aci_gemm_type t, void *d, int64_t at, int64_t by, const char *acc, int64_t col,
                  int64_t n, double b) {
  switch (t) {
    case ACI_GEMM_F64:
      store_f64((double *)d + at, by, (const double *)(const void *)acc + col, n, b);
      break;
    case ACI_GEMM_F32:
      store_f32((float *)d + at, by, (const float *)(const void *)acc + col, n, (float)b);
      break;
    case ACI_GEMM_BF16:
      store_bf16((uint16_t *)d + at, by, (const float *)(const void *)acc + col, n, (float)b);
      break;
    default:
      store_f16((uint16_t *)d + at, by, (const float *)(const void *)acc + col, n, (float)b);
      break;
  }
}

void aci_conv_store(const aci_conv_product *p, const aci_conv_tile *t, int64_t g, int64_t r0,
                    int64_t rows, const char *sums, int64_t ldt) {
  const aci_conv_axis *a = p->w.a;
  const int64_t plane = a[0].dst * a[1].dst * a[2].dst, ab = aci_gemm_type_bytes(p->acc);
  const int64_t channels = p->groups * p->rows;
  bool full = true; /* positions follow each other in the result */
  for (int d = 0; d < ACI_CONV_DIMS; d++)
    full = full && a[d].by == 1 && a[d].at == 0 && a[d].q == a[d].dst;
  for (int64_t r = 0; r < rows; r++) {
    const int64_t channel = g * p->rows + r0 + r;
    const double b = p->bias == NULL ? 0 : aci_gemm_load(p->w.type, p->bias, channel);
    const char *acc = sums + r * ldt * ab;
    for (int i = 0; i < t->n_runs;) {
      const aci_conv_run *run = &t->run[i++];
      int64_t at = (run->image * channels + channel) * plane, n = run->len;
      if (full) {
        at += run->position;
        while (i < t->n_runs && t->run[i].image == run->image) n += t->run[i++].len;
      } else {
        const int64_t d = run->position / (a[1].q * a[2].q), h = run->position / a[2].q % a[1].q,
                      x = run->position % a[2].q;
        at += ((a[0].at + d * a[0].by) * a[1].dst + a[1].at + h * a[1].by) * a[2].dst + a[2].at +
              x * a[2].by;
      }
      store(p->w.type, p->dst, at, a[2].by, acc, run->col, n, b);
    }
  }
}
