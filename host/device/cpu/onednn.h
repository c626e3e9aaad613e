/* oneDNN for large products where the CPU multiplies bf16 tiles (AMX). onednn_load.c is part of the library:
 * it decides, cuts into tiles, and opens the module accel_onednn.so (onednn.c, linked with libdnnl) on first
 * use; without the module our own kernels do everything. The two talk through one versioned table, and no
 * type of oneDNN appears in it. */
#ifndef ACI_ONEDNN_H
#define ACI_ONEDNN_H
#include <stdbool.h>
#include <stddef.h>

#include "device/cpu/gemm.h"

/* True if a product of this shape is faster there and the module is present (loads it). */
bool aci_onednn_wants(const aci_gemm *g);
/* Computes it, or returns false with C untouched. */
bool aci_onednn_gemm(ac_team *team, const aci_gemm *g);
/* For tests: takes bf16 products of any size on any CPU while on. */
void aci_onednn_force(bool on);

/* ---- between onednn_load.c and the module ---- */

/* One tile: C (m x n, row stride c_rs) = A B (+ C) (+ bias). Of each operand one stride is 1. */
typedef struct aci_onednn_shape {
  int64_t m, n, k;
  int64_t a_rs, a_cs, b_rs, b_cs, c_rs;
  int32_t in_type, out_type; /* aci_gemm_type */
  int32_t bias_type;         /* aci_gemm_type, -1 without */
  int32_t add;               /* to what C holds */
} aci_onednn_shape;

typedef struct aci_onednn_plan {
  size_t b_bytes;       /* of B in the layout the primitive wants; 0: it takes B as it lies */
  size_t scratch_bytes; /* of pack_b and of run, per thread */
} aci_onednn_plan;

#define ACI_ONEDNN_API_VERSION 1
typedef struct aci_onednn_api {
  uint32_t version;
  const char *library; /* "2.6.3" */
  /* The plan of a shape, made on first demand (0.2 to 10 ms) and cached; NULL if there is none. Any thread.
   * Each get is paired with one put. */
  const aci_onednn_plan *(*get)(const aci_onednn_shape *s);
  void (*put)(const aci_onednn_plan *p);
  /* Any thread; single-threaded inside; buffers are 64-byte aligned. false: failed. */
  bool (*pack_b)(const aci_onednn_plan *p, const void *b, void *packed, void *scratch);
  bool (*run)(const aci_onednn_plan *p, const void *a, const void *b, const void *bias, void *c,
              void *scratch);
} aci_onednn_api;

/* The one symbol of the module. NULL when oneDNN cannot start. */
typedef const aci_onednn_api *(*aci_onednn_open_fn)(void);
#define ACI_ONEDNN_SYMBOL "accel_onednn_open"

#endif
