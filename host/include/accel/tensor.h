/* accel/tensor.h - the meaning of bytes: dtype, storage, strided view.
 *
 * tensor -> storage -> block. A tensor is a dtype, shape, strides and an offset into a storage.
 * Several tensors may view one storage. A storage knows its memory, its provider, and a version
 * that every in-place write raises. Tensors and storages are reference counted (atomic); "new"
 * functions return one reference. Shapes are in elements, dims are 0-based in C. Gradient state
 * (requires_grad, the node that made a tensor, hooks) is kept in the tensor and driven by
 * accel/autograd.h. */
#ifndef ACCEL_TENSOR_H
#define ACCEL_TENSOR_H
#include "accel/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AC_MAX_DIMS 16

/* X(NAME, name, PyTorch's name, bytes, class): class f = float, i = integer, b = bool, s = storage
 * only, c = complex: real and imaginary part of f32 or f64, next to each other */
#define AC_DTYPE_LIST(X)                         \
  X(F64, "f64", "float64", 8, 'f')               \
  X(F32, "f32", "float32", 4, 'f')               \
  X(F16, "f16", "float16", 2, 'f')               \
  X(BF16, "bf16", "bfloat16", 2, 'f')            \
  X(I64, "i64", "int64", 8, 'i')                 \
  X(I32, "i32", "int32", 4, 'i')                 \
  X(I16, "i16", "int16", 2, 'i')                 \
  X(I8, "i8", "int8", 1, 'i')                    \
  X(U8, "u8", "uint8", 1, 'i')                   \
  X(BOOL, "bool", "bool", 1, 'b')                \
  X(U16, "u16", "uint16", 2, 's')                \
  X(U32, "u32", "uint32", 4, 's')                \
  X(F8_E4M3, "f8_e4m3", "float8_e4m3fn", 1, 's') \
  X(F8_E5M2, "f8_e5m2", "float8_e5m2", 1, 's')   \
  X(C64, "c64", "complex64", 8, 'c')             \
  X(C128, "c128", "complex128", 16, 'c')

typedef enum ac_dtype {
#define AC_X(name, s, t, bytes, cls) AC_##name,
  AC_DTYPE_LIST(AC_X)
#undef AC_X
      AC_DTYPE_COUNT
} ac_dtype;

AC_API const char *ac_dtype_name(ac_dtype d);
AC_API size_t ac_dtype_bytes(ac_dtype d);
AC_API bool ac_dtype_is_float(ac_dtype d);   /* f64 f32 f16 bf16 */
AC_API bool ac_dtype_is_int(ac_dtype d);     /* i64 i32 i16 i8 u8, not bool */
AC_API bool ac_dtype_is_complex(ac_dtype d); /* c64 c128 */
/* "f32", "float32", "float", "half", ...: false when no dtype has that name. */
AC_API bool ac_dtype_find(const char *name, ac_dtype *out);

/* A number from a script. It keeps its original type, so that promotion can treat it as weak. */
/* NONE: a mistake */
typedef enum ac_scalar_kind {
  AC_SCALAR_INT,
  AC_SCALAR_FLOAT,
  AC_SCALAR_BOOL,
  AC_SCALAR_NONE
} ac_scalar_kind;
typedef struct ac_scalar {
  ac_scalar_kind kind;
  union {
    int64_t i; /* INT and BOOL (0 or 1) */
    double f;
  };
} ac_scalar;

typedef struct ac_storage ac_storage;
typedef struct ac_tensor ac_tensor;

/* The source of a storage's bytes. Asked at every dispatch, so that bytes may move between
 * calls. */
typedef struct ac_provider {
  size_t struct_size;
  const char *name; /* "host", "file", "sharded" */
  /* acquire: makes the bytes resident on the storage's device until release. May block. Returns
   * their address in *ptr. */
  ac_status (*acquire)(ac_storage *s, void **ptr, ac_err *e);
  void (*release)(ac_storage *s, bool written);
  void (*free)(ac_storage *s); /* last reference to the storage is gone */
} ac_provider;

/* ---- storage ---- */
AC_API ac_status ac_storage_new(ac_device *d, size_t bytes, ac_mem_class c, ac_storage **out,
                                ac_err *e);
/* Foreign memory, zero copy: free_fn(user) runs when the last reference goes (any thread). NULL:
 * nothing runs. On meta ptr is NULL. */
AC_API ac_status ac_storage_wrap(ac_device *d, void *ptr, size_t bytes, void (*free_fn)(void *user),
                                 void *user, ac_storage **out, ac_err *e);
AC_API ac_status ac_storage_provided(ac_device *d, size_t bytes, const ac_provider *p, void *impl,
                                     ac_storage **out, ac_err *e);
AC_API void ac_storage_retain(ac_storage *s);
AC_API void ac_storage_release(ac_storage *s);
AC_API size_t ac_storage_bytes(const ac_storage *s);
AC_API uint32_t ac_storage_version(const ac_storage *s);

/* ---- tensor ---- */
/* Contiguous, contents undefined. */
AC_API ac_status ac_tensor_new(ac_device *d, ac_dtype dt, int ndim, const int64_t *shape,
                               ac_tensor **out, ac_err *e);
AC_API ac_status ac_tensor_new_class(ac_device *d, ac_dtype dt, int ndim, const int64_t *shape,
                                     ac_mem_class c, ac_tensor **out, ac_err *e);
/* View of a storage. stride NULL = contiguous. INVALID when it would reach outside the storage. */
AC_API ac_status ac_tensor_view(ac_storage *s, ac_dtype dt, int ndim, const int64_t *shape,
                                const int64_t *stride, int64_t offset, ac_tensor **out, ac_err *e);
/* Copies n host values of the same dtype in (row-major), any device. */
AC_API ac_status ac_tensor_from_host(ac_device *d, ac_dtype dt, int ndim, const int64_t *shape,
                                     const void *data, ac_tensor **out, ac_err *e);
/* Zero copy around foreign host memory, contiguous. See ac_storage_wrap. */
AC_API ac_status ac_tensor_wrap(ac_device *d, ac_dtype dt, int ndim, const int64_t *shape,
                                void *data, void (*free_fn)(void *user), void *user,
                                ac_tensor **out, ac_err *e);
AC_API void ac_tensor_retain(ac_tensor *t);
AC_API void ac_tensor_release(ac_tensor *t); /* NULL is fine */

AC_API ac_dtype ac_tensor_dtype(const ac_tensor *t);
AC_API int ac_tensor_ndim(const ac_tensor *t);
AC_API const int64_t *ac_tensor_shape(const ac_tensor *t);
AC_API const int64_t *ac_tensor_stride(const ac_tensor *t);
AC_API int64_t ac_tensor_offset(const ac_tensor *t); /* in elements */
AC_API int64_t ac_tensor_numel(const ac_tensor *t);
AC_API ac_device *ac_tensor_device(const ac_tensor *t);
AC_API ac_storage *ac_tensor_storage(const ac_tensor *t);
AC_API bool ac_tensor_is_contiguous(const ac_tensor *t);
/* Address of element [0,...] of a resident tensor. NULL on a phantom device. Valid until the next
 * call into accel. */
AC_API void *ac_tensor_data(const ac_tensor *t);
/* Element at flat row-major position i, converted. On other devices it waits for the value. DEVICE
 * if there are no values. */
AC_API ac_status ac_tensor_item(const ac_tensor *t, int64_t i, ac_scalar *out, ac_err *e);
/* Live tensors of the process made by this library and not yet freed (tests: zero at the end). */
AC_API int64_t ac_tensor_live(void);

/* ---- quantised tensors: a layout of storage ---- A quantised tensor is one tensor of bytes, u8 of one dim, that takes the whole of a
 * storage with a layout: which values of which shape the bytes stand for. It is moved, copied, saved, offloaded and shared as these
 * bytes. dequantize and linear_quantized read its values, and ops that calculate refuse it. Values and byte order match bitsandbytes. */
typedef enum ac_quant_type {
  /* 4 bits: quantiles of a normal distribution (Dettmers and others, "QLoRA"). Element 2i in the
   * high half of a byte */
  AC_QUANT_NF4,
  AC_QUANT_FP4, /* 4 bits: sign, two bits of exponent, one of fraction */
  /* i8, a block is a row: value = q * absmax / 127 (Dettmers and others, "LLM.int8()") */
  AC_QUANT_INT8,
  /* 8 bits: exponent of varying length (Dettmers, "8-Bit Approximations for Parallelism in Deep
   * Learning") */
  AC_QUANT_DYNAMIC,
  AC_QUANT_UDYNAMIC, /* the same without a sign */
  AC_QUANT_COUNT
} ac_quant_type;

typedef struct ac_layout {
  ac_quant_type type;
  ac_dtype dtype;    /* of the values before they were quantised: f32, f16 or bf16 */
  bool nested;       /* absmax is quantised itself: less its mean, DYNAMIC, in blocks of 256 */
  int ndim;          /* of the values */
  int64_t blocksize; /* values that share one absmax */
  int64_t shape[AC_MAX_DIMS];
} ac_layout;

/* The arrays in the bytes of a quantised tensor. Each begins at a multiple of 64. */
typedef enum ac_layout_part {
  AC_PART_VALUES,        /* u8 (bytes), or i8 (rows, columns) of INT8 */
  AC_PART_ABSMAX,        /* f32 (blocks), u8 if nested: the largest magnitude of each block */
  AC_PART_NESTED_ABSMAX, /* f32 (blocks of absmax), if nested */
  AC_PART_OFFSET,        /* f32 (), if nested: the mean of absmax */
  AC_PART_COUNT
} ac_layout_part;

/* "nf4" "fp4" "int8" "dynamic" "udynamic" */
AC_API const char *ac_quant_type_name(ac_quant_type q);
AC_API bool ac_quant_type_find(const char *name, ac_quant_type *out);
/* The 16 or 256 values that a code of this type stands for, ascending except for FP4. NULL for
 * INT8, whose codes are numbers. */
AC_API const float *ac_quant_map(ac_quant_type q, int *n);
/* INVALID, DTYPE or SHAPE name a property that a quantised tensor cannot have. */
AC_API ac_status ac_layout_check(const ac_layout *l, ac_err *e);
AC_API size_t ac_layout_bytes(const ac_layout *l);
/* Of a quantised tensor. NULL for every other one, including a view of a part of its bytes. */
AC_API const ac_layout *ac_tensor_layout(const ac_tensor *t);
/* A quantised tensor with undefined contents. */
AC_API ac_status ac_tensor_new_quantized(ac_device *d, const ac_layout *l, ac_tensor **out,
                                         ac_err *e);
/* Gives a layout to a tensor of u8 that takes the whole of a storage without one, for memory of
 * another kind that is to hold a quantised tensor. */
AC_API ac_status ac_tensor_quantize_as(ac_tensor *t, const ac_layout *l, ac_err *e);
/* A view of one of its arrays. NOT_FOUND if the layout has none. */
AC_API ac_status ac_tensor_part(const ac_tensor *t, ac_layout_part part, ac_tensor **out,
                                ac_err *e);

/* ---- DLPack: the same bytes in another library (its header declares the structs; C++ and C alike) ---- CPU tensors of dtypes that
 * both know, strides and all, without a copy. Neither side's bookkeeping sees writes of the other: do not write tensors that the other
 * side's graph has saved. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;
/* *out keeps t's memory until its deleter is called (any thread). GRAD for a tensor that requires
 * gradients: detach it first. */
AC_API ac_status ac_tensor_to_dlpack(ac_tensor *t, struct DLManagedTensor **out, ac_err *e);
AC_API ac_status ac_tensor_to_dlpack_versioned(ac_tensor *t, struct DLManagedTensorVersioned **out,
                                               ac_err *e);
/* d: the CPU device the tensor is to be on. On success m is ours: its deleter runs when the last
 * reference to the memory goes (any thread). On failure the caller keeps it. */
AC_API ac_status ac_tensor_from_dlpack(ac_device *d, struct DLManagedTensor *m, ac_tensor **out,
                                       ac_err *e);
AC_API ac_status ac_tensor_from_dlpack_versioned(ac_device *d, struct DLManagedTensorVersioned *m,
                                                 ac_tensor **out, ac_err *e);

/* Text as PyTorch prints it (precision 4, threshold 1000, edge items 3, line width 80). Malloc'ed,
 * the caller frees. NULL: out of memory. */
AC_API char *ac_tensor_format(const ac_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
