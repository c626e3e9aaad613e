/* oneDNN for large products of bf16 if the CPU multiplies tiles (AMX), and for products of int8.
 * onednn_load.c is part of the library: it decides, cuts into tiles, and opens the module
 * accel_onednn.so (onednn.c, linked with libdnnl) on first use. Without the module our own kernels
 * do everything. The two talk through one versioned table, and no type of oneDNN appears in it. */
#ifndef ACI_ONEDNN_H
#define ACI_ONEDNN_H
#include <stdbool.h>
#include <stddef.h>

#include "device/cpu/gemm.h"

/* True if a product of this shape is faster there and the module is present (loads it). */
bool aci_onednn_wants(const aci_gemm *g);
/* Computes it, or returns false with C untouched. */
bool aci_onednn_gemm(ac_team *team, const aci_gemm *g);
/* For tests: takes products of bf16 and int8 of any size on any CPU while on, and convolutions in
 * f32 too. */
void aci_onednn_force(bool on);
bool aci_onednn_forced(void);
/* Does the CPU multiply bf16 tiles? */
bool aci_onednn_amx(void);

/* ---- between onednn_load.c and the module ---- */

/* One tile: C (m x n, row stride c_rs) = A B (+ C) (+ bias). Of each operand one stride is 1. */
typedef struct aci_onednn_shape {
  int64_t m, n, k;
  int64_t a_rs, a_cs, b_rs, b_cs, c_rs;
  int32_t in_type, out_type; /* aci_gemm_type */
  int32_t bias_type;         /* aci_gemm_type, -1 without */
  int32_t add;               /* to the contents of C */
} aci_onednn_shape;

/* The state kept for a tile or a convolution of one shape. */
typedef struct aci_onednn_plan {
  /* of B, or of the weights that are read, in the layout that the primitive wants. 0: used in
   * place */
  size_t packed_bytes;
  size_t scratch_bytes; /* of packing and of running, per thread */
} aci_onednn_plan;

/* A convolution of contiguous tensors as aci_conv describes it (device/cpu/kernels/conv.h), unused
 * leading dims being 1. Weights' gradients come out in f32. */
typedef enum aci_onednn_direction {
  ACI_ONEDNN_CONV_FORWARD, /* x, w, bias -> y */
  ACI_ONEDNN_CONV_INPUT,   /* y, w -> x */
  ACI_ONEDNN_CONV_WEIGHT   /* x, y -> w */
} aci_onednn_direction;
typedef struct aci_onednn_conv_shape {
  int64_t n, groups, ci, co; /* channels per group */
  int64_t in[3], k[3], out[3], stride[3], pad[3], dil[3];
  int32_t direction, type; /* type: aci_gemm_type */
  int32_t bias;            /* of the same type. Forward only */
  int32_t unused;          /* 0: shapes of both kinds are compared byte by byte */
} aci_onednn_conv_shape;

#define ACI_ONEDNN_API_VERSION 4
typedef struct aci_onednn_api {
  uint32_t version;
  /* sums of int8 products hold every bit: VNNI and AMX. Older instructions saturate sums of two in
   * 16 bits */
  bool exact_int8;
  const char *library; /* "2.6.3" */
  /* The plan of a shape, made on first demand (0.2 to 10 ms) and cached. NULL if there is none. Any
   * thread. Each get is paired with one put. */
  const aci_onednn_plan *(*get)(const aci_onednn_shape *s);
  const aci_onednn_plan *(*conv_get)(const aci_onednn_conv_shape *s);
  void (*put)(const aci_onednn_plan *p);
  /* Any thread. Single-threaded inside. Buffers are 64-byte aligned. False: failed. */
  bool (*pack_b)(const aci_onednn_plan *p, const void *b, void *packed, void *scratch);
  bool (*run)(const aci_onednn_plan *p, const void *a, const void *b, const void *bias, void *c,
              void *scratch);
  /* Convolutions, likewise. x, y and w are read or written according to the direction. */
  bool (*conv_pack)(const aci_onednn_plan *p, const void *w, void *packed, void *scratch);
  bool (*conv_run)(const aci_onednn_plan *p, const void *x, const void *w, const void *bias,
                   const void *y, void *scratch);
} aci_onednn_api;

/* The module's table, loaded on first use. NULL without the module. */
const aci_onednn_api *aci_onednn_api_get(void);

/* The one symbol of the module. NULL when oneDNN cannot start. */
typedef const aci_onednn_api *(*aci_onednn_open_fn)(void);
#define ACI_ONEDNN_SYMBOL "accel_onednn_open"

#endif
