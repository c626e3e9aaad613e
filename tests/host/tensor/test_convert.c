/* Single elements: every code of the small formats, rounding at the ties, and the edges of integers. f8 tables and codes are
 * PyTorch's (reference/tensor/cases.py). */
#include "support/test.h"

#include <math.h>
#include <string.h>

#include "tensor/convert.h"

#include "reference/tensor/f8_cases.h"

static void check_values(ac_dtype d, const float *want) {
  for (int i = 0; i < 256; i++) {
    uint8_t b = (uint8_t)i;
    double v = aci_item_load_f64(d, &b);
    if (isnan(want[i])) assert_true(isnan(v));
    else assert_true(v == (double)want[i] && !signbit(v) == !signbit(want[i]));
  }
}

static void check_codes(ac_dtype d, const float *x, const unsigned char *want, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint8_t b = 0;
    aci_item_store_f64(d, &b, (double)x[i]);
    if (b != want[i]) fail_msg("%s of %a is 0x%02x, not 0x%02x", ac_dtype_name(d), (double)x[i], want[i], b);
  }
}

static void f8_as_pytorch(void **state) {
  check_values(AC_F8_E4M3, e4m3_values);
  check_values(AC_F8_E5M2, e5m2_values);
  check_codes(AC_F8_E4M3, e4m3_inputs, e4m3_codes, sizeof e4m3_codes);
  check_codes(AC_F8_E5M2, e5m2_inputs, e5m2_codes, sizeof e5m2_codes);
  uint8_t b = 0;
  aci_item_store_f64(AC_F8_E5M2, &b, (double)NAN);
  assert_true(isnan(aci_item_load_f64(AC_F8_E5M2, &b)));
  aci_item_store_f64(AC_F8_E4M3, &b, -(double)NAN);
  assert_true(isnan(aci_item_load_f64(AC_F8_E4M3, &b)));
}

/* A value goes in and out unchanged whenever the format has it. */
static void half_formats_round_trip(void **state) {
  for (int d = AC_F16; d <= AC_BF16; d++) {
    for (uint32_t i = 0; i < 65536; i++) {
      uint16_t bits = (uint16_t)i, back = 0;
      double v = aci_item_load_f64((ac_dtype)d, &bits);
      aci_item_store_f64((ac_dtype)d, &back, v);
      if (isnan(v)) assert_true(isnan(aci_item_load_f64((ac_dtype)d, &back)));
      else assert_int_equal(back, bits);
    }
  }
}

static void half_formats_round_to_even(void **state) {
  static const struct {
    ac_dtype d;
    double x, want;
  } rows[] = {{AC_F16, 2049, 2048},      {AC_F16, 2051, 2052},         {AC_F16, 65519, 65504},
              {AC_F16, 65520, HUGE_VAL}, {AC_F16, 0x1p-25, 0},         {AC_F16, 0x1.8p-25, 0x1p-24},
              {AC_BF16, 257, 256},       {AC_BF16, 259, 260},          {AC_BF16, 3.5e38, HUGE_VAL},
              {AC_F16, -0.0, -0.0},      {AC_BF16, 0x1p-133, 0x1p-133}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    uint16_t b = 0;
    aci_item_store_f64(rows[i].d, &b, rows[i].x);
    assert_true(aci_item_load_f64(rows[i].d, &b) == rows[i].want);
  }
}

static int64_t stored(ac_dtype d, ac_scalar s) {
  uint64_t room = 0;
  aci_item_store(d, &room, s);
  ac_scalar out = aci_item_load(d, &room);
  assert_int_equal(out.kind, d == AC_BOOL ? AC_SCALAR_BOOL : AC_SCALAR_INT);
  return out.i;
}
static ac_scalar number(double f) { return (ac_scalar){.kind = AC_SCALAR_FLOAT, .f = f}; }
static ac_scalar integer(int64_t i) { return (ac_scalar){.kind = AC_SCALAR_INT, .i = i}; }

static void integers(void **state) {
  assert_true(stored(AC_I64, integer(INT64_MIN)) == INT64_MIN);
  assert_true(stored(AC_I64, integer(INT64_MAX)) == INT64_MAX); /* not through a double */
  assert_int_equal(stored(AC_I32, integer(0x100000005)), 5);
  assert_int_equal(stored(AC_I8, integer(200)), -56);
  assert_int_equal(stored(AC_U8, integer(-1)), 255);
  assert_int_equal(stored(AC_U16, integer(-1)), 65535);
  assert_int_equal(stored(AC_U32, integer(-1)), 4294967295);
  assert_int_equal(stored(AC_I16, number(-2.9)), -2);
  assert_int_equal(stored(AC_I64, number(2.9)), 2);
  assert_true(stored(AC_I64, number(1e30)) == INT64_MIN);
  assert_true(stored(AC_I64, number((double)NAN)) == INT64_MIN);
  assert_true(stored(AC_I64, number(-0x1p63)) == INT64_MIN);
  assert_int_equal(stored(AC_BOOL, number(0.1)), 1);
  assert_int_equal(stored(AC_BOOL, number((double)NAN)), 1);
  assert_int_equal(stored(AC_BOOL, number(-0.0)), 0);
  assert_int_equal(stored(AC_BOOL, integer(256)), 1);
}

static void numbers_into_floats(void **state) {
  float f = 0;
  double d = 0;
  aci_item_store(AC_F32, &f, integer(16777217));
  assert_true(f == 16777216.0f);
  aci_item_store(AC_F64, &d, integer(INT64_MAX));
  assert_true(d == 0x1p63);
  aci_item_store(AC_F32, &f, (ac_scalar){.kind = AC_SCALAR_BOOL, .i = 1});
  assert_true(f == 1.0f && aci_item_load(AC_F32, &f).kind == AC_SCALAR_FLOAT);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(f8_as_pytorch),
                                     cmocka_unit_test(half_formats_round_trip),
                                     cmocka_unit_test(half_formats_round_to_even), cmocka_unit_test(integers),
                                     cmocka_unit_test(numbers_into_floats)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
