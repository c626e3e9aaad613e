/* The values of quantised tensors' codes. The tables of DYNAMIC are made once per process from
 * their definition: 7 bits of exponent are shared out between the power of ten and a fraction that
 * is cut evenly between 0.1 and 1. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "tensor/tensor_impl.h"

/* The quantiles of N(0, 1) that QLoRA's appendix lists. */
static const float nf4[16] = {-1.0f,
                              -0.6961928009986877f,
                              -0.5250730514526367f,
                              -0.39491748809814453f,
                              -0.28444138169288635f,
                              -0.18477343022823334f,
                              -0.09105003625154495f,
                              0.0f,
                              0.07958029955625534f,
                              0.16093020141124725f,
                              0.24611230194568634f,
                              0.33791524171829224f,
                              0.44070982933044434f,
                              0.5626170039176941f,
                              0.7229568362236023f,
                              1.0f};
/* Twelfths: the largest, 12, is one. Bit 3 is the sign. */
static const float fp4[16] = {
    0.0f, 0.0625f / 12,  8.0f / 12,  1.0f,  4.0f / 12,  6.0f / 12,  2.0f / 12,  3.0f / 12,
    0.0f, -0.0625f / 12, -8.0f / 12, -1.0f, -4.0f / 12, -6.0f / 12, -2.0f / 12, -3.0f / 12};

static float maps[2][256]; /* signed, unsigned */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int ascending(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* Step i of an even cut of [0.1, 1] into n, from the nearer end, in f32. */
static float cut(int i, int n) {
  const float step = (1.0f - 0.1f) / (float)n;
  return i < (n + 1) / 2 ? fmaf(step, (float)i, 0.1f) : fmaf(-step, (float)(n - i), 1.0f);
}

static void make_maps(void) {
  for (int sign = 0; sign < 2; sign++) { /* 0: signed */
    float *m = maps[sign];
    int n = 0;
    for (int i = 0; i < 7; i++) {
      const int items = 1 << (sign == 0 ? i : i + 1);
      const double scale = pow(10, i - 6);
      for (int k = 0; k < items; k++) {
        const float mean = (cut(k, items) + cut(k + 1, items)) / 2.0f;
        m[n++] = (float)scale * mean;
        if (sign == 0) m[n++] = -((float)scale * mean);
      }
    }
    m[n++] = 0;
    m[n++] = 1;
    if (!AC_HOLDS(n == 256)) return;
    qsort(m, 256, sizeof *m, ascending);
  }
}

const float *ac_quant_map(ac_quant_type q, int *n) {
  *n = 0;
  switch (q) {
    case AC_QUANT_NF4: *n = 16; return nf4;
    case AC_QUANT_FP4: *n = 16; return fp4;
    case AC_QUANT_DYNAMIC:
    case AC_QUANT_UDYNAMIC:
      pthread_once(&once, make_maps);
      *n = 256;
      return maps[q == AC_QUANT_UDYNAMIC];
    default: return NULL;
  }
}
