/* Inner loops of products with quantised weights, by instruction set: dot_4bit.c, dot_int8.c. */
#ifndef ACI_OPS_DOT_H
#define ACI_OPS_DOT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ACI_DOT_ROWS = 4 /* of x at a time */ };

/* ---- 4 bits ---- */
/* Whether rows of k values in blocks of blocksize have a kernel on this CPU. */
bool aci_dot_4bit_fits(int64_t k, int64_t blocksize);
/* Floats that a row of k values takes in the order that the kernel reads. */
int64_t aci_dot_4bit_row(int64_t k);
/* dtype of rounded weights, and of x */
typedef enum aci_dot_round { ACI_DOT_F32, ACI_DOT_BF16, ACI_DOT_F16 } aci_dot_round;
void aci_dot_4bit_arrange(aci_dot_round round, const float *x, int64_t k, float *to);
typedef struct aci_dot_4bit_args {
  const uint8_t *q;    /* n rows of k / 2 bytes with element 2i in the high half of byte i */
  const float *absmax; /* of their blocks */
  const float *map;    /* 16 values */
  const float *x;      /* m <= ACI_DOT_ROWS arranged rows, stride floats apart */
  int64_t stride, k, blocksize;
  aci_dot_round round;
  int m;
  int64_t n;
  float *y; /* y[r * ldy + j] = sum over i of map[q_ji] absmax_j[i / blocksize] x_r[i] */
  int64_t ldy;
} aci_dot_4bit_args;
void aci_dot_4bit(const aci_dot_4bit_args *g);
/* dot_4bit_bf16.c: the kernels for ACI_DOT_BF16 if the CPU has dot products of bf16. */
bool aci_dot_4bit_bf16_fits(void);
void aci_dot_4bit_bf16_arrange(const float *x, int64_t k, float *to);
void aci_dot_4bit_bf16(const aci_dot_4bit_args *g);

/* ---- int8 ---- */
/* y[r * n + j] = sum over i of w_j[i] x_r[i] for n rows of w, k bytes apart. sums[r] = sum over i
 * of x_r[i]. Rows of x are stride bytes apart, m <= ACI_DOT_ROWS. Exact. */
void aci_dot_int8(const int8_t *w, int64_t n, const int8_t *x, int64_t stride, const int64_t *sums,
                  int m, int64_t k, int64_t *y);

#endif
