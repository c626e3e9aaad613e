/* Pools over three dims of space as two pools over planes: (H, W) of every position of depth, then
 * (D) of every column. Largest elements and means of boxes are those of their rows' largest
 * elements and means, and the first of equals is found in the same order. Called by the files of
 * the 3-d pools. */
#ifndef ACI_OPS_POOL3D_H
#define ACI_OPS_POOL3D_H
#include "ops/conv/pool.h"

/* Argument `arg`, one number or three, as three. INVALID names it. */
static inline bool aci_pool3_list(ac_expr *x, const ac_value *a, int arg, const char *name,
                                  int64_t *v) {
  if (x->st != AC_OK) return false;
  if (a[arg].n != 1 && a[arg].n != 3)
    x->st = AC_FAIL(x->e, INVALID, "%s must be one number or 3, got %d", name, a[arg].n);
  for (int i = 0; x->st == AC_OK && i < 3; i++) v[i] = a[arg].ints[a[arg].n == 1 ? 0 : i];
  return x->st == AC_OK;
}

/* x (N, C, D, H, W) or (C, D, H, W) as (planes, D, H, W). NULL for other ranks. */
static inline ac_tensor *aci_pool3_planes(ac_expr *x, ac_tensor *t) {
  char s[128];
  if (x->st == AC_OK && t->ndim != 4 && t->ndim != 5)
    x->st = AC_FAIL(x->e, SHAPE, "expected an input (N, C, D, H, W) or (C, D, H, W), got shape %s",
                    aci_shape_str(t->ndim, t->shape, s, sizeof s));
  for (int i = t->ndim - 4; x->st == AC_OK && i < t->ndim; i++)
    if (t->shape[i] == 0)
      x->st = AC_FAIL(x->e, SHAPE, "there is nothing to pool in an input of shape %s",
                      aci_shape_str(t->ndim, t->shape, s, sizeof s));
  if (x->st != AC_OK) return NULL;
  const int64_t *d = t->shape + t->ndim - 3;
  const int64_t planes = t->ndim == 5 ? t->shape[0] * t->shape[1] : t->shape[0];
  return x_reshape(x, t, (int64_t[]){planes, d[0], d[1], d[2]}, 4);
}

/* The results of the first pass, (planes, D, H', W'), as (planes, 1, D, H' W'). */
static inline ac_tensor *aci_pool3_columns(ac_expr *x, ac_tensor *y) {
  if (y == NULL) return NULL;
  const int64_t *s = y->shape;
  return x_reshape(x, y, (int64_t[]){s[0], 1, s[1], s[2] * s[3]}, 4);
}

/* A result of the second pass, (planes, 1, D', H' W'), in the dims of t. plane: (planes, D, H',
 * W'). */
static inline ac_tensor *aci_pool3_result(ac_expr *x, const ac_tensor *t, const ac_tensor *plane,
                                          ac_tensor *y) {
  int64_t s[AC_MAX_DIMS];
  if (y == NULL || plane == NULL) return NULL;
  memcpy(s, t->shape, (size_t)t->ndim * 8);
  s[t->ndim - 3] = y->shape[2];
  memcpy(s + t->ndim - 2, plane->shape + 2, 2 * 8);
  return x_reshape(x, y, s, t->ndim);
}

/* Positions in the volume of t, of its dims: from those in a plane, `in` (planes, D, H', W'), and
 * those in a column, `deep` (planes, 1, D', H' W'). A window that is all padding has position -1 in
 * both, which becomes 0. */
static inline ac_tensor *aci_pool3_positions(ac_expr *x, const ac_tensor *t, ac_tensor *in,
                                             ac_tensor *deep) {
  if (in == NULL || deep == NULL) return NULL;
  const int64_t columns = in->shape[2] * in->shape[3], planes = in->shape[0];
  const int64_t area = t->shape[t->ndim - 2] * t->shape[t->ndim - 1];
  const ac_operand zero = ac_operand_int(0);
  const ac_scalar one = {.kind = AC_SCALAR_INT, .i = 1};
  ac_tensor *flat = x_reshape(x, deep, (int64_t[]){planes, deep->shape[2] * columns}, 2);
  flat = x_clamp(x, flat, &zero, NULL);
  ac_tensor *all = x_reshape(x, in, (int64_t[]){planes, in->shape[1] * columns}, 2);
  ac_tensor *depth = x_floor_divide(x, T(flat), ac_operand_int(columns > 0 ? columns : 1));
  ac_tensor *p = x_add(x, T(x_clamp(x, x_gather(x, all, 1, flat), &zero, NULL)),
                       T(x_mul(x, T(depth), ac_operand_int(area))), one);
  return p == NULL ? NULL : aci_pool3_result(x, t, in, x_reshape(x, p, deep->shape, deep->ndim));
}

#endif
