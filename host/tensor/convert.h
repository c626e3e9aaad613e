/* One element in and out of memory, whatever its dtype. For single values (item, fill values,
 * printing). Kernels that touch many elements have typed loops of their own. p points at the
 * element and is aligned for its dtype. */
#ifndef ACI_TENSOR_CONVERT_H
#define ACI_TENSOR_CONVERT_H
#include "accel/tensor.h"

/* BOOL for bool, INT for integers (u16 and u32 as well), FLOAT for the rest (f8 as well). Of a
 * complex element the real part. Storing one leaves the imaginary part 0. */
ac_scalar aci_item_load(ac_dtype d, const void *p);
double aci_item_load_f64(ac_dtype d, const void *p);
/* Floats: rounded to nearest even (16-bit and 8-bit ones through f32, as PyTorch does). Integers:
 * truncated and reduced to their width, with INT64_MIN for values that an i64 cannot hold. bool:
 * compared with zero. */
void aci_item_store(ac_dtype d, void *p, ac_scalar s);
void aci_item_store_f64(ac_dtype d, void *p, double v);

/* 8-bit floats, as PyTorch: in e4m3, which has no infinity, values above 448 become 448. e5m2
 * overflows to infinity. */
float aci_f8_e4m3_to_f32(uint8_t b);
float aci_f8_e5m2_to_f32(uint8_t b);
uint8_t aci_f32_to_f8_e4m3(float x);
uint8_t aci_f32_to_f8_e5m2(float x);

#endif
