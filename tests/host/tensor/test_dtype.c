/* dtypes: sizes, classes, and every name under which they are known. */
#include "support/test.h"

#include "tensor/tensor_impl.h"

static void knows_sizes_and_classes(void **state) {
  static const struct {
    ac_dtype d;
    const char *name;
    size_t bytes;
    bool is_float, is_int;
  } rows[] = {{AC_F64, "f64", 8, true, false},
              {AC_F32, "f32", 4, true, false},
              {AC_F16, "f16", 2, true, false},
              {AC_BF16, "bf16", 2, true, false},
              {AC_I64, "i64", 8, false, true},
              {AC_I32, "i32", 4, false, true},
              {AC_I16, "i16", 2, false, true},
              {AC_I8, "i8", 1, false, true},
              {AC_U8, "u8", 1, false, true},
              {AC_BOOL, "bool", 1, false, false},
              {AC_U16, "u16", 2, false, false},
              {AC_U32, "u32", 4, false, false},
              {AC_F8_E4M3, "f8_e4m3", 1, false, false},
              {AC_F8_E5M2, "f8_e5m2", 1, false, false},
              {AC_C64, "c64", 8, false, false},
              {AC_C128, "c128", 16, false, false}};
  assert_int_equal(sizeof rows / sizeof rows[0], AC_DTYPE_COUNT);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    assert_string_equal(ac_dtype_name(rows[i].d), rows[i].name);
    assert_int_equal(ac_dtype_bytes(rows[i].d), rows[i].bytes);
    assert_int_equal(aci_dsize(rows[i].d), rows[i].bytes);
    assert_int_equal(ac_dtype_is_float(rows[i].d), rows[i].is_float);
    assert_int_equal(ac_dtype_is_int(rows[i].d), rows[i].is_int);
  }
}

static void finds_names(void **state) {
  static const struct {
    const char *name;
    ac_dtype d;
  } rows[] = {{"f32", AC_F32},
              {"float32", AC_F32},
              {"float", AC_F32},
              {"double", AC_F64},
              {"float64", AC_F64},
              {"half", AC_F16},
              {"float16", AC_F16},
              {"bf16", AC_BF16},
              {"bfloat16", AC_BF16},
              {"long", AC_I64},
              {"int64", AC_I64},
              {"int", AC_I32},
              {"int32", AC_I32},
              {"short", AC_I16},
              {"int16", AC_I16},
              {"int8", AC_I8},
              {"uint8", AC_U8},
              {"bool", AC_BOOL},
              {"uint16", AC_U16},
              {"uint32", AC_U32},
              {"float8_e4m3fn", AC_F8_E4M3},
              {"float8_e5m2", AC_F8_E5M2}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ac_dtype d = AC_DTYPE_COUNT;
    assert_true(ac_dtype_find(rows[i].name, &d));
    assert_int_equal(d, rows[i].d);
  }
  ac_dtype d = AC_I8;
  assert_false(ac_dtype_find("f31", &d));
  assert_false(ac_dtype_find("", &d));
  assert_false(ac_dtype_find("F32", &d));
  assert_int_equal(d, AC_I8);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(knows_sizes_and_classes),
                                     cmocka_unit_test(finds_names)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
