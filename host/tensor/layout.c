/* Layouts of quantised tensors: the position of each array in their bytes. Called by the ops of
 * ops/quant, by printing and bindings. */
#include "tensor/layout.h"

#include <stdlib.h>

#include "tensor/geometry.h"

static const char *const names[AC_QUANT_COUNT] = {"nf4", "fp4", "int8", "dynamic", "udynamic"};

const char *ac_quant_type_name(ac_quant_type q) {
  return (unsigned)q < AC_QUANT_COUNT ? names[q] : "?";
}

bool ac_quant_type_find(const char *name, ac_quant_type *out) {
  for (int i = 0; i < AC_QUANT_COUNT; i++) {
    if (strcmp(names[i], name) != 0) continue;
    *out = (ac_quant_type)i;
    return true;
  }
  return false;
}

int64_t aci_layout_numel(const ac_layout *l) { return aci_numel(l->ndim, l->shape); }

int64_t aci_layout_blocks(const ac_layout *l) {
  const int64_t n = aci_layout_numel(l);
  return n == 0 ? 0 : (n - 1) / l->blocksize + 1;
}

ac_status ac_layout_check(const ac_layout *l, ac_err *e) {
  char a[AC_MAX_DIMS * 22 + 8];
  if ((unsigned)l->type >= AC_QUANT_COUNT)
    return AC_FAIL(e, INVALID, "there is no quantisation number %d", (int)l->type);
  if (l->dtype != AC_F32 && l->dtype != AC_F16 && l->dtype != AC_BF16)
    return AC_FAIL(e, DTYPE, "values that are quantised are f32, f16 or bf16, not %s",
                   (unsigned)l->dtype < AC_DTYPE_COUNT ? ac_dtype_name(l->dtype) : "?");
  AC_TRY(aci_shape_check(l->ndim, l->shape, e));
  const int64_t n = aci_layout_numel(l);
  if (n > INT64_MAX / 8)
    return AC_FAIL(e, SHAPE, "too many values to quantise: %lld", (long long)n);
  if (l->type == AC_QUANT_INT8) {
    if (l->ndim != 2)
      return AC_FAIL(e, SHAPE, "int8 by row is of matrices (rows, columns), not of shape %s",
                     aci_shape_str(l->ndim, l->shape, a, sizeof a));
    if (l->nested)
      return AC_FAIL(e, INVALID, "int8 has a scale a row; they are not quantised themselves");
    if (l->blocksize != l->shape[1])
      return AC_FAIL(e, INVALID, "a block of int8 is a row of %lld, not %lld values",
                     (long long)l->shape[1], (long long)l->blocksize);
    return AC_OK;
  }
  if (l->blocksize < 32 || l->blocksize > 4096 || (l->blocksize & (l->blocksize - 1)) != 0)
    return AC_FAIL(e, INVALID, "blocksize must be a power of two from 32 to 4096, got %lld",
                   (long long)l->blocksize);
  return AC_OK;
}

static size_t align(size_t n) {
  return (n + ACI_LAYOUT_ALIGN - 1) & ~(size_t)(ACI_LAYOUT_ALIGN - 1);
}

aci_part aci_layout_part(const ac_layout *l, ac_layout_part part) {
  const int64_t n = aci_layout_numel(l),
                blocks = l->type == AC_QUANT_INT8 ? l->shape[0] : aci_layout_blocks(l);
  const int64_t bytes = aci_layout_is_4bit(l) ? (n + 1) / 2 : n,
                outer = l->nested ? (blocks + ACI_NESTED_BLOCK - 1) / ACI_NESTED_BLOCK : 0;
  aci_part p[AC_PART_COUNT] = {
      {.dtype = l->type == AC_QUANT_INT8 ? AC_I8 : AC_U8, .ndim = 1, .shape = {bytes}, .n = bytes},
      {.dtype = l->nested ? AC_U8 : AC_F32, .ndim = 1, .shape = {blocks}, .n = blocks},
      {.dtype = AC_F32, .ndim = 1, .shape = {outer}, .n = outer},
      {.dtype = AC_F32, .n = l->nested ? 1 : 0},
  };
  if (l->type == AC_QUANT_INT8) {
    p[0].ndim = 2;
    p[0].shape[0] = l->shape[0];
    p[0].shape[1] = l->shape[1];
  }
  for (int i = 1; i < AC_PART_COUNT; i++)
    p[i].at = align(p[i - 1].at + (size_t)p[i - 1].n * aci_dsize(p[i - 1].dtype));
  return p[part];
}

size_t ac_layout_bytes(const ac_layout *l) {
  const aci_part last = aci_layout_part(l, AC_PART_OFFSET);
  if (l->nested) return last.at + 4;
  const aci_part absmax = aci_layout_part(l, AC_PART_ABSMAX);
  return absmax.at + (size_t)absmax.n * aci_dsize(absmax.dtype);
}

bool aci_layout_same(const ac_layout *a, const ac_layout *b) {
  return a->type == b->type && a->dtype == b->dtype && a->nested == b->nested &&
         a->ndim == b->ndim && a->blocksize == b->blocksize &&
         memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0;
}

const ac_layout *ac_tensor_layout(const ac_tensor *t) {
  const ac_storage *s = t->storage;
  if (s == NULL || s->layout == NULL || t->dtype != AC_U8 || t->offset != 0 ||
      (size_t)t->numel != s->bytes || !aci_is_contiguous(t))
    return NULL;
  return s->layout;
}

ac_status aci_layout_give(ac_tensor *t, const ac_layout *l, ac_err *e) {
  AC_CHECK(t->storage == NULL && t->layout == NULL && t->dtype == AC_U8 &&
               (size_t)t->numel == ac_layout_bytes(l),
           e);
  t->layout = malloc(sizeof *t->layout);
  if (t->layout == NULL) return AC_FAIL(e, OOM, "no memory for a layout");
  *t->layout = *l;
  return AC_OK;
}

ac_status ac_tensor_new_quantized(ac_device *d, const ac_layout *l, ac_tensor **out, ac_err *e) {
  *out = NULL;
  AC_TRY(ac_layout_check(l, e));
  const int64_t n = (int64_t)ac_layout_bytes(l);
  ac_tensor *t = aci_tensor_shell(d, AC_U8, 1, &n);
  if (t == NULL) return AC_FAIL(e, OOM, "no memory for a tensor's head");
  ac_status st = aci_layout_give(t, l, e);
  if (st == AC_OK) st = aci_tensor_alloc(t, AC_MEM_PARAMETER, e);
  if (st != AC_OK) {
    ac_tensor_release(t);
    return st;
  }
  *out = t;
  return AC_OK;
}

ac_status ac_tensor_quantize_as(ac_tensor *t, const ac_layout *l, ac_err *e) {
  ac_storage *s = t->storage;
  if (l == NULL) return AC_FAIL(e, INVALID, "the tensor that gives the layout is not quantised");
  if (t->dtype != AC_U8 || t->offset != 0 || (size_t)t->numel != s->bytes ||
      s->bytes != ac_layout_bytes(l) || !aci_is_contiguous(t))
    return AC_FAIL(
        e, INVALID,
        "the layout takes the whole of a storage of %zu bytes of u8, this tensor is %s of %zu bytes",
        ac_layout_bytes(l), ac_dtype_name((ac_dtype)t->dtype), s->bytes);
  if (s->layout == NULL) s->layout = malloc(sizeof *s->layout);
  if (s->layout == NULL) return AC_FAIL(e, OOM, "no memory for a layout");
  *s->layout = *l;
  return AC_OK;
}

ac_status ac_tensor_part(const ac_tensor *t, ac_layout_part part, ac_tensor **out, ac_err *e) {
  static const char *const part_names[AC_PART_COUNT] = {"values", "absmax", "nested_absmax",
                                                        "offset"};
  const ac_layout *l = ac_tensor_layout(t);
  *out = NULL;
  if (l == NULL) return AC_FAIL(e, INVALID, "this tensor is not quantised");
  if ((unsigned)part >= AC_PART_COUNT)
    return AC_FAIL(e, INVALID, "there is no part number %d", (int)part);
  const aci_part p = aci_layout_part(l, part);
  if (p.n == 0 && part >= AC_PART_NESTED_ABSMAX)
    return AC_FAIL(e, NOT_FOUND, "a %s tensor whose absmax is not quantised has no %s",
                   ac_quant_type_name(l->type), part_names[part]);
  return ac_tensor_view(t->storage, p.dtype, p.ndim, p.shape, NULL,
                        (int64_t)(p.at / aci_dsize(p.dtype)), out, e);
}
