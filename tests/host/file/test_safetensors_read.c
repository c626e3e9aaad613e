/* Reading safetensors: every legal corner of the format, destinations that do not fit, files that change
 * while they are open, checksums. */
#include "host/file/st_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tensor/tensor_impl.h"

static ac_device *cpu, *meta;
static int open_devices(void **state) {
  ac_err e;
  return ac_device_open(ac_device_cpu_vtable(), 0, 1 << 24, NULL, &cpu, &e) != AC_OK ||
         ac_device_open(ac_device_meta_vtable(), 0, 0, NULL, &meta, &e) != AC_OK;
}
static int close_devices(void **state) {
  unlink(st_path());
  ac_device_release(cpu);
  ac_device_release(meta);
  return 0;
}

static ac_tensor *read_one(ac_safetensors *f, const char *name) {
  ac_err e;
  ac_tensor *t = NULL;
  const ac_safetensors_entry *x = ac_safetensors_find(f, name);
  assert_non_null(x);
  assert_ok(ac_tensor_new(cpu, x->dtype, x->ndim, x->shape, &t, &e), e);
  assert_ok(ac_safetensors_read(f, x, t, &e), e);
  return t;
}

/* ---- what is legal ---- */
static void header_may_be_anything_legal(void **state) {
  ac_safetensors *f = st_good("{}", 0);
  assert_int_equal(ac_safetensors_count(f), 0);
  assert_null(ac_safetensors_find(f, "a"));
  assert_int_equal(ac_safetensors_n_metadata(f), 0);
  ac_safetensors_close(f);
  ac_safetensors_close(st_good(" \t\r\n{} \t\r\n   ", 0));
  ac_safetensors_close(st_good("{\"__metadata__\":{}}", 0));
  f = st_good(" {\n\"a\" : { \"data_offsets\" : [ 0 , 1 ] , \"shape\" : [ ] , \"dtype\" : \"U8\" } , "
              "\"__metadata__\" : { } }\r\n\t ",
              1);
  assert_int_equal(ac_safetensors_count(f), 1);
  ac_safetensors_close(f);
}

static void ranks_and_empty_tensors(void **state) {
  /* several empty tensors share a place with a full one; the header's order is not that of the bytes */
  ac_safetensors *f = st_good(
      "{" T("z", "F32", "[3,0,2]", "4", "4") "," T("w", "U8", "[2,2]", "4", "8") "," T(
          "y", "I64", "[0]", "0", "0") "," T("s", "F32", "[]", "0",
                                             "4") "," T("x", "U8", "[0,9223372036854775807]", "8", "8") "}",
      8);
  static const char *const order[] = {"y", "s", "z", "w", "x"};
  assert_int_equal(ac_safetensors_count(f), 5);
  for (int i = 0; i < 5; i++) {
    assert_string_equal(ac_safetensors_at(f, i)->name, order[i]);
    assert_ptr_equal(ac_safetensors_find(f, order[i]), ac_safetensors_at(f, i));
  }
  const ac_safetensors_entry *z = ac_safetensors_find(f, "z"), *s = ac_safetensors_find(f, "s");
  assert_int_equal(z->ndim, 3);
  assert_memory_equal(z->shape, ((int64_t[]){3, 0, 2}), 24);
  assert_int_equal(s->ndim, 0);
  ac_tensor *t = read_one(f, "z");
  assert_int_equal(t->numel, 0);
  ac_tensor_release(t);
  t = read_one(f, "s");
  assert_int_equal(t->ndim, 0);
  assert_memory_equal(ac_tensor_data(t), "\0\1\2\3", 4);
  ac_tensor_release(t);
  t = read_one(f, "w");
  assert_memory_equal(ac_tensor_data(t), "\4\5\6\7", 4);
  ac_tensor_release(t);
  ac_safetensors_close(f);
  f = st_good(
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"
      "\"data_offsets\":[0,1]}}",
      1);
  assert_int_equal(ac_safetensors_at(f, 0)->ndim, 32);
  ac_safetensors_close(f);
}

/* The data may begin and lie anywhere: values are copied to where they are aligned. */
static void unaligned_data(void **state) {
  char header[200];
  for (int pad = 0; pad < 9; pad++) {
    snprintf(header, sizeof header,
             "{" T("a", "U8", "[3]", "0", "3") "," T("d", "F64", "[2]", "3", "19") "," T("h", "I16", "[1]",
                                                                                         "19", "21") "}%*s",
             pad, "");
    ac_safetensors *f = st_good(header, 21);
    ac_tensor *d = read_one(f, "d"), *h = read_one(f, "h");
    double v[2];
    int16_t w;
    memcpy(v, "\3\4\5\6\7\x8\x9\xa\xb\xc\xd\xe\xf\x10\x11\x12", 16);
    memcpy(&w, "\x13\x14", 2);
    assert_true(((const double *)ac_tensor_data(d))[0] == v[0] &&
                ((const double *)ac_tensor_data(d))[1] == v[1]);
    assert_int_equal(*(const int16_t *)ac_tensor_data(h), w);
    ac_tensor_release(d);
    ac_tensor_release(h);
    ac_safetensors_close(f);
  }
}

static void every_dtype(void **state) {
#define AS(dtype) (-2 - (int)(dtype)) /* its values become this dtype's */
  static const struct {
    const char *name;
    int n, bytes, dtype; /* n elements are that many bytes. -1: no tensors of it */
  } all[] = {{"BOOL", 3, 3, AC_BOOL},
             {"F4", 2, 1, AS(AC_F32)},
             {"F6_E2M3", 4, 3, -1},
             {"F6_E3M2", 4, 3, -1},
             {"U8", 3, 3, AC_U8},
             {"I8", 3, 3, AC_I8},
             {"F8_E5M2", 3, 3, AC_F8_E5M2},
             {"F8_E4M3", 3, 3, AC_F8_E4M3},
             {"F8_E8M0", 3, 3, AS(AC_F32)},
             {"F8_E4M3FNUZ", 3, 3, AS(AC_F32)},
             {"F8_E5M2FNUZ", 3, 3, AS(AC_F32)},
             {"I16", 3, 6, AC_I16},
             {"U16", 3, 6, AC_U16},
             {"F16", 3, 6, AC_F16},
             {"BF16", 3, 6, AC_BF16},
             {"I32", 3, 12, AC_I32},
             {"U32", 3, 12, AC_U32},
             {"F32", 3, 12, AC_F32},
             {"C64", 3, 24, AC_C64},
             {"F64", 3, 24, AC_F64},
             {"I64", 3, 24, AC_I64},
             {"U64", 3, 24, AS(AC_I64)}};
#undef AS
  ac_err e;
  char header[200];
  assert_int_equal(sizeof all / sizeof *all, 22);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
             all[i].name, all[i].n, all[i].bytes);
    ac_safetensors *f = st_good(header, (size_t)all[i].bytes);
    const ac_safetensors_entry *t = ac_safetensors_at(f, 0);
    assert_string_equal(t->dtype_name, all[i].name);
    assert_int_equal(t->has_dtype, all[i].dtype >= 0);
    if (t->has_dtype) {
      assert_int_equal(t->dtype, all[i].dtype);
      ac_tensor *x = read_one(f, "a");
      if (t->dtype == AC_BOOL)
        assert_memory_equal(ac_tensor_data(x), "\0\1\1", 3); /* any byte but 0 is true */
      else
        assert_memory_equal(ac_tensor_data(x),
                            "\0\1\2\3\4\5\6\7\x8\x9\xa\xb\xc\xd\xe\xf\x10\x11\x12\x13\x14\x15\x16\x17",
                            all[i].bytes);
      ac_tensor_release(x);
    } else if (all[i].dtype < -1) {
      assert_true(t->widens && (int)t->dtype == -2 - all[i].dtype);
      ac_tensor *x = read_one(f, "a");
      if (t->dtype == AC_I64) assert_true(((const int64_t *)ac_tensor_data(x))[1] == 0x0f0e0d0c0b0a0908);
      else assert_true(((const float *)ac_tensor_data(x))[0] == (all[i].n == 2 ? 0.0f : i == 8 ? 0x1p-127f : 0.0f));
      ac_tensor_release(x);
    } else {
      ac_tensor *x;
      assert_false(t->widens);
      assert_ok(ac_tensor_new(cpu, AC_U8, 1, (int64_t[]){all[i].bytes}, &x, &e), e);
      assert_fails(ac_safetensors_read(f, t, x, &e), DTYPE, "which has no tensors here", e);
      ac_tensor_release(x);
    }
    ac_safetensors_close(f);
  }
}

static void names_and_metadata(void **state) {
  char header[3000], name[1025];
  const char *k, *v;
  memset(name, 'n', 1024);
  name[1024] = 0;
  snprintf(header, sizeof header,
           "{\"__metadata__\":{\"\":\"\",\"q\\\"\\\\\":\"a\\nb\\u00e9\\ud834\\udd1e\",\"\xc3\xa9\":\"x\"}," T(
               "", "U8", "[]", "0",
               "1") "," T("h.0.\\u0061ttn", "U8", "[]", "1",
                          "2") ",\"%s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[2,3]}}",
           name);
  ac_safetensors *f = st_good(header, 3);
  assert_non_null(ac_safetensors_find(f, ""));
  assert_non_null(ac_safetensors_find(f, "h.0.attn"));
  assert_non_null(ac_safetensors_find(f, name));
  assert_null(ac_safetensors_find(f, "h.0"));
  assert_null(ac_safetensors_find(f, "__metadata__"));
  assert_int_equal(ac_safetensors_n_metadata(f), 3);
  ac_safetensors_metadata(f, 0, &k, &v);
  assert_string_equal(k, "");
  assert_string_equal(v, "");
  ac_safetensors_metadata(f, 1, &k, &v);
  assert_string_equal(k, "q\"\\");
  assert_string_equal(v, "a\nb\xc3\xa9\xf0\x9d\x84\x9e");
  ac_safetensors_metadata(f, 2, &k, &v);
  assert_string_equal(k, "\xc3\xa9");
  ac_safetensors_close(f);
}

/* ---- reading ---- */
static void destination_must_fit(void **state) {
  ac_err e;
  ac_tensor *x;
  ac_safetensors *f = st_good("{" T("a", "F32", "[2,2]", "0", "16") "}", 16);
  const ac_safetensors_entry *t = ac_safetensors_at(f, 0);
  assert_ok(ac_tensor_new(cpu, AC_F32, 1, (int64_t[]){3}, &x, &e), e);
  assert_fails(ac_safetensors_read(f, t, x, &e), INVALID,
               "tensor 'a', 16 bytes of f32, does not fit its destination: f32 (3) on cpu", e);
  ac_tensor_release(x);
  assert_ok(ac_tensor_new(cpu, AC_I32, 1, (int64_t[]){4}, &x, &e), e);
  assert_fails(ac_safetensors_read(f, t, x, &e), INVALID, "i32 (4) on cpu", e);
  ac_tensor_release(x);
  assert_ok(ac_tensor_new(meta, AC_F32, 1, (int64_t[]){4}, &x, &e), e);
  assert_fails(ac_safetensors_read(f, t, x, &e), DEVICE, "tensor 'a' cannot be read into a tensor on meta",
               e);
  ac_tensor_release(x);
  assert_ok(ac_tensor_new(cpu, AC_F32, 2, (int64_t[]){2, 2}, &x, &e), e);
  ac_tensor *turned = aci_tensor_alias(x, 2, (int64_t[]){2, 2}, (int64_t[]){1, 2}, 0);
  assert_fails(ac_safetensors_read(f, t, turned, &e), INVALID, "not contiguous", e);
  ac_tensor_release(turned);
  uint32_t version = ac_storage_version(ac_tensor_storage(x));
  assert_ok(ac_safetensors_read(f, t, x, &e), e);
  assert_true(ac_storage_version(ac_tensor_storage(x)) > version); /* it was written in place */
  ac_tensor_release(x);
  ac_safetensors_close(f);
}

/* R14: what happens to the file after it was opened is an error or nothing, never a signal. */
static void r14_file_changes_while_open(void **state) {
  ac_err e;
  ac_tensor *x;
  ac_safetensors *f = st_good("{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[4]", "4", "8") "}", 8);
  assert_ok(ac_tensor_new(cpu, AC_U8, 1, (int64_t[]){4}, &x, &e), e);
  struct stat sb;
  assert_int_equal(stat(st_path(), &sb), 0);
  assert_int_equal(truncate(st_path(), sb.st_size - 1), 0);
  assert_ok(ac_safetensors_read(f, ac_safetensors_find(f, "a"), x, &e), e); /* still there */
  assert_memory_equal(ac_tensor_data(x), "\0\1\2\3", 4);
  assert_fails(ac_safetensors_read(f, ac_safetensors_find(f, "b"), x, &e), IO, "1 bytes too early", e);
  assert_int_equal(truncate(st_path(), 3), 0);
  assert_fails(ac_safetensors_read(f, ac_safetensors_find(f, "a"), x, &e), IO, "too early", e);
  ac_safetensors_close(f);
  /* replaced by rename, or removed: the open file stays what it was */
  f = st_good("{" T("a", "U8", "[4]", "0", "4") "}", 4);
  unlink(st_path());
  ac_test_write(st_path(), "", 0);
  assert_ok(ac_safetensors_read(f, ac_safetensors_at(f, 0), x, &e), e);
  assert_memory_equal(ac_tensor_data(x), "\0\1\2\3", 4);
  ac_safetensors_close(f);
  ac_tensor_release(x);
}

/* CRC-32C bit by bit, for want of the code under test. */
static uint32_t crc(const unsigned char *p, size_t n) {
  uint32_t c = ~0u;
  for (size_t i = 0; i < n; i++) {
    c ^= p[i];
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (0x82F63B78u & (0u - (c & 1)));
  }
  return ~c;
}

static void r15_checksums(void **state) {
  ac_err e;
  ac_tensor *x;
  char header[400];
  uint32_t a = crc((const unsigned char *)"\0\1\2\3", 4), b = crc((const unsigned char *)"\4\5\6\7", 4);
#define SUMMED                                                                        \
  "{\"__metadata__\":{\"accel.crc32c\":\"%s\",\"k\":\"v\"}," T("a", "U8", "[4]", "0", \
                                                               "4") "," T("b", "U8", "[4]", "4", "8") "}"
  char both[40];
  snprintf(both, sizeof both, "%08x\\n%08x", a, b);
  snprintf(header, sizeof header, SUMMED, both);
  ac_safetensors *f = st_good(header, 8);
  assert_int_equal(ac_safetensors_n_metadata(f), 1); /* the checksums are not the script's */
  ac_tensor *t = read_one(f, "b");
  ac_tensor_release(t);
  ac_safetensors_close(f);

  snprintf(both, sizeof both, "%08x\\n%08x", a, b ^ 1);
  snprintf(header, sizeof header, SUMMED, both);
  f = st_good(header, 8);
  t = read_one(f, "a");
  ac_tensor_release(t);
  assert_ok(ac_tensor_new(cpu, AC_U8, 1, (int64_t[]){4}, &x, &e), e);
  char where[100];
  snprintf(where, sizeof where, "rule R15 at byte %zu: tensor 'b' does not match its checksum",
           8 + strlen(header) + 4);
  assert_fails(ac_safetensors_read(f, ac_safetensors_find(f, "b"), x, &e), PARSE, where, e);
  ac_tensor_release(x);
  ac_safetensors_close(f);

  static const struct {
    const char *sums, *says;
  } bad[] = {{"", "no checksum for tensor 'a'"},
             {"00000000", "no checksum for tensor 'b'"},
             {"00000000\\n", "no checksum for tensor 'b'"},
             {"00000000\\n0000000", "no checksum for tensor 'b'"},
             {"00000000\\n0000000G", "no checksum for tensor 'b'"},
             {"+0000000\\n00000000", "no checksum for tensor 'a'"},
             {"0x000000\\n00000000", "no checksum for tensor 'a'"},
             {"ABCDEF00\\n00000000", "no checksum for tensor 'a'"},
             {"00000000 00000000", "no checksum for tensor 'b'"},
             {"00000000\\n00000000\\n", "more lines"},
             {"00000000\\n00000000\\n00000000", "more lines"},
             {"00000000\\n000000000", "more lines"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    snprintf(header, sizeof header, SUMMED, bad[i].sums);
    st_put(header, 8);
    st_refused_file("R15", 8 + strlen("{\"__metadata__\":{\"accel.crc32c\":"), bad[i].says, bad[i].sums);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(header_may_be_anything_legal),
      cmocka_unit_test(ranks_and_empty_tensors),
      cmocka_unit_test(unaligned_data),
      cmocka_unit_test(every_dtype),
      cmocka_unit_test(names_and_metadata),
      cmocka_unit_test(destination_must_fit),
      cmocka_unit_test(r14_file_changes_while_open),
      cmocka_unit_test(r15_checksums),
  };
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}
