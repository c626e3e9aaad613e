/* Writing safetensors: the exact bytes, which the Python package reads; a file of that package is read
 * here; what cannot be written is refused before the target is touched. The golden bytes were made and
 * checked with safetensors 0.8.0. */
#include "host/file/st_file.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/tensor_impl.h"

static ac_device *cpu, *meta;
static int open_devices(void **state) {
  ac_err e;
  return ac_device_open(ac_device_cpu_vtable(), 0, 1 << 26, NULL, &cpu, &e) != AC_OK ||
         ac_device_open(ac_device_meta_vtable(), 0, 0, NULL, &meta, &e) != AC_OK;
}
static int close_devices(void **state) {
  unlink(st_path());
  ac_device_release(cpu);
  ac_device_release(meta);
  return 0;
}

static ac_tensor *make(ac_dtype dt, int ndim, const int64_t *shape, const void *data) {
  ac_err e;
  ac_tensor *t = NULL;
  assert_ok(ac_tensor_from_host(cpu, dt, ndim, shape, data, &t, &e), e);
  return t;
}
#define SHAPE(...) \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

/* ---- golden files ---- */
static void reads_what_python_wrote(void **state) {
  static const char header[] = "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"q\\\"\\\\\\n\xc3\xa9\"},"
                               "\"i\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
                               "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[16,16]},"
                               "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],"
                               "\"data_offsets\":[16,20]},\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_"
                               "offsets\":[20,44]},\"h\":{\"dtype\":\"BF16\",\"shape\":[2],"
                               "\"data_offsets\":[44,48]},\"f8\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_"
                               "offsets\":[48,50]},\"b\":{\"dtype\":\"BOOL\",\"shape\":[3],"
                               "\"data_offsets\":[50,53]}}  ";
  static const unsigned char data[] = {255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0,   0,  0,   1,
                                       0,   0,   0,   0,   192, 63,  0,   0,   0, 0, 0,   0,  128, 63,
                                       0,   0,   0,   64,  0,   0,   64,  64,  0, 0, 128, 64, 0,   0,
                                       160, 64,  128, 63,  0,   192, 56,  64,  1, 0, 1};
  static const struct {
    const char *name;
    ac_dtype dt;
    int ndim;
    int64_t shape[2];
    double v[6];
  } want[] = {{"i", AC_I64, 1, {2}, {-1, 1099511627776.0}},
              {"empty", AC_F32, 2, {0, 3}, {0}},
              {"scalar", AC_F32, 0, {0}, {1.5}},
              {"w", AC_F32, 2, {2, 3}, {0, 1, 2, 3, 4, 5}},
              {"h", AC_BF16, 1, {2}, {1, -2}},
              {"f8", AC_F8_E4M3, 1, {2}, {1, 2}},
              {"b", AC_BOOL, 1, {3}, {1, 0, 1}}};
  unsigned char file[8 + sizeof header - 1 + sizeof data] = {(sizeof header - 1) & 255,
                                                             (sizeof header - 1) >> 8};
  ac_err e;
  ac_safetensors *f;
  const char *k, *v;
  memcpy(file + 8, header, sizeof header - 1);
  memcpy(file + 8 + sizeof header - 1, data, sizeof data);
  ac_test_write(st_path(), file, sizeof file);
  assert_ok(ac_safetensors_open(st_path(), &f, &e), e);
  assert_int_equal(ac_safetensors_count(f), 7);
  for (int i = 0; i < 7; i++) {
    const ac_safetensors_entry *x = ac_safetensors_at(f, i);
    ac_tensor *t = NULL;
    assert_string_equal(x->name, want[i].name);
    assert_int_equal(x->dtype, want[i].dt);
    assert_int_equal(x->ndim, want[i].ndim);
    assert_memory_equal(x->shape, want[i].shape, (size_t)x->ndim * 8);
    assert_ok(ac_tensor_new(cpu, x->dtype, x->ndim, x->shape, &t, &e), e);
    assert_ok(ac_safetensors_read(f, x, t, &e), e);
    for (int64_t j = 0; j < ac_tensor_numel(t); j++) {
      ac_scalar s;
      assert_ok(ac_tensor_item(t, j, &s, &e), e);
      assert_true((s.kind == AC_SCALAR_FLOAT ? s.f : (double)s.i) == want[i].v[j]);
    }
    ac_tensor_release(t);
  }
  assert_int_equal(ac_safetensors_n_metadata(f), 2);
  ac_safetensors_metadata(f, 1, &k, &v);
  assert_string_equal(k, "note");
  assert_string_equal(v, "q\"\\\n\xc3\xa9");
  ac_safetensors_close(f);
}

/* The same tensors written here. R12: '{' first, header padded to 8 bytes, widest elements first, then by
 * name. */
static void writes_what_python_reads(void **state) {
  static const char header[] =
      "{\"__metadata__\":{\"note\":\"q\\\"\\\\\\n\xc3\xa9\",\"format\":\"pt\",\"accel.crc32c\":"
      "\"8e212723\\n00000000\\n224302af\\n78743a5d\\n040d780e\\n374eb207\\n6d40bb55\"},"
      "\"i\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
      "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[16,16]},"
      "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
      "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[20,44]},"
      "\"h\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[44,48]},"
      "\"b\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[48,51]},"
      "\"f8\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[51,53]}}";
  static const unsigned char data[] = {255, 255, 255, 255, 255, 255, 255, 255, 0, 0,  0,   0,  0,   1,
                                       0,   0,   0,   0,   192, 63,  0,   0,   0, 0,  0,   0,  128, 63,
                                       0,   0,   0,   64,  0,   0,   64,  64,  0, 0,  128, 64, 0,   0,
                                       160, 64,  128, 63,  0,   192, 1,   0,   1, 56, 64};
  ac_tensor *t[] = {make(AC_BOOL, SHAPE(3), "\1\0\1"),
                    make(AC_F32, 0, NULL, &(float){1.5f}),
                    make(AC_F32, SHAPE(0, 3), NULL),
                    make(AC_F8_E4M3, SHAPE(2), "\x38\x40"),
                    make(AC_F32, SHAPE(2, 3), (float[]){0, 1, 2, 3, 4, 5}),
                    make(AC_BF16, SHAPE(2), "\x80\x3f\x00\xc0"),
                    make(AC_I64, SHAPE(2), (int64_t[]){-1, (int64_t)1 << 40})};
  static const char *const names[] = {"b", "scalar", "empty", "f8", "w", "h", "i"};
  static const char *const keys[] = {"note", "format"}, *const values[] = {"q\"\\\n\xc3\xa9", "pt"};
  ac_err e;
  size_t n, n_header = (sizeof header - 1 + 7) / 8 * 8;
  assert_ok(ac_safetensors_write(st_path(), 7, names, t, 2, keys, values, &e), e);
  unsigned char *file = (unsigned char *)ac_test_read(st_path(), &n);
  assert_int_equal(n, 8 + n_header + sizeof data);
  assert_int_equal(file[0] | file[1] << 8, n_header);
  assert_memory_equal(file + 2, "\0\0\0\0\0", 6);
  if (memcmp(file + 8, header, sizeof header - 1) != 0)
    fail_msg("header: %.*s", (int)n_header, (char *)file + 8);
  for (size_t i = 8 + sizeof header - 1; i < 8 + n_header; i++) assert_int_equal(file[i], ' ');
  assert_memory_equal(file + 8 + n_header, data, sizeof data);
  free(file);
  for (int i = 0; i < 7; i++) ac_tensor_release(t[i]);
}

/* ---- round trips ---- */
static void every_dtype_comes_back(void **state) {
  ac_err e;
  enum { N = AC_C128 }; /* which the format does not have */
  ac_tensor *t[N], *wide = NULL;
  const char *names[N], *z = "z";
  uint64_t seed = 7;
  for (int d = 0; d < N; d++) {
    unsigned char bytes[5 * 7 * 8];
    for (size_t i = 0; i < sizeof bytes; i++)
      bytes[i] = (unsigned char)(d == AC_BOOL ? ac_test_random(&seed) >> 63 : ac_test_random(&seed) >> 40);
    t[d] = make((ac_dtype)d, SHAPE(5, 7), bytes);
    names[d] = ac_dtype_name((ac_dtype)d);
  }
  assert_ok(ac_safetensors_write(st_path(), N, names, t, 0, NULL, NULL, &e), e);
  assert_ok(ac_tensor_new(cpu, AC_C128, 0, NULL, &wide, &e), e);
  assert_fails(ac_safetensors_write("refused.safetensors", 1, &z, &wide, 0, NULL, NULL, &e), UNSUPPORTED, "c128", e);
  ac_tensor_release(wide);
  ac_safetensors *f;
  assert_ok(ac_safetensors_open(st_path(), &f, &e), e);
  assert_int_equal(ac_safetensors_count(f), N);
  assert_int_equal(ac_safetensors_n_metadata(f), 0);
  for (int d = 0; d < N; d++) {
    const ac_safetensors_entry *x = ac_safetensors_find(f, names[d]);
    ac_tensor *y;
    assert_int_equal(x->dtype, d);
    assert_ok(ac_tensor_new(cpu, x->dtype, x->ndim, x->shape, &y, &e), e);
    assert_ok(ac_safetensors_read(f, x, y, &e), e);
    assert_memory_equal(ac_tensor_data(y), ac_tensor_data(t[d]), 35 * ac_dtype_bytes((ac_dtype)d));
    ac_tensor_release(y);
    ac_tensor_release(t[d]);
  }
  ac_safetensors_close(f);
}

static void nothing_and_odd_names(void **state) {
  ac_err e;
  ac_safetensors *f;
  size_t n;
  assert_ok(ac_safetensors_write(st_path(), 0, NULL, NULL, 0, NULL, NULL, &e), e);
  char *bytes = ac_test_read(st_path(), &n);
  assert_int_equal(n, 16);
  assert_memory_equal(bytes, "\x8\0\0\0\0\0\0\0{}      ", 16);
  free(bytes);
  ac_tensor *t = make(AC_U8, SHAPE(1), "x"), *same[] = {t, t, t, t};
  char most[1025];
  memset(most, 'n', 1024);
  most[1024] = 0;
  const char *names[] = {"", "q\"\\\x01\n", "\xe2\x82\xac",
                         most}; /* one tensor under four names is four tensors */
  assert_ok(ac_safetensors_write(st_path(), 4, names, same, 0, NULL, NULL, &e), e);
  assert_ok(ac_safetensors_open(st_path(), &f, &e), e);
  for (int i = 0; i < 4; i++) assert_non_null(ac_safetensors_find(f, names[i]));
  ac_safetensors_close(f);
  ac_tensor_release(t);
}

/* A byte that rots is noticed, whichever it is, and in the tensor where it is. */
static void every_flipped_data_byte_is_noticed(void **state) {
  ac_err e;
  ac_safetensors *f;
  size_t n;
  ac_tensor *t[] = {make(AC_F32, SHAPE(5), (float[]){1, 2, 3, 4, 5}), make(AC_U8, SHAPE(3), "abc")};
  static const char *const names[] = {"first", "second"};
  assert_ok(ac_safetensors_write(st_path(), 2, names, t, 0, NULL, NULL, &e), e);
  char *bytes = ac_test_read(st_path(), &n);
  size_t data = 8 + ((unsigned char)bytes[0] | (size_t)(unsigned char)bytes[1] << 8);
  assert_int_equal(n - data, 23);
  for (size_t i = data; i < n; i++) {
    bytes[i] ^= 1 << (i % 8);
    ac_test_write(st_path(), bytes, n);
    bytes[i] ^= 1 << (i % 8);
    bool second = i - data >= 20;
    assert_ok(ac_safetensors_open(st_path(), &f, &e), e);
    assert_ok(ac_safetensors_read(f, ac_safetensors_find(f, names[!second]), t[!second], &e), e);
    assert_fails(ac_safetensors_read(f, ac_safetensors_find(f, names[second]), t[second], &e), PARSE,
                 second ? "tensor 'second' does not match" : "tensor 'first' does not match", e);
    ac_safetensors_close(f);
  }
  free(bytes);
  ac_tensor_release(t[0]);
  ac_tensor_release(t[1]);
}

/* ---- refusals ---- */
static int files_in_folder(void) {
  char *path = ac_test_tmp_path(".");
  DIR *d = opendir(path);
  int n = 0;
  for (struct dirent *x; (x = readdir(d)) != NULL;) n += strstr(x->d_name, ".tmp-") != NULL;
  closedir(d);
  free(path);
  return n;
}

static void refusals_touch_nothing(void **state) {
  ac_err e;
  ac_tensor *a = make(AC_F32, SHAPE(2, 2), (float[]){1, 2, 3, 4}), *m = NULL, *pair[] = {a, a};
  ac_test_write(st_path(), "keep", 4);
  int before = files_in_folder();
#define WRITE(tensors, n, ...) \
  ac_safetensors_write(st_path(), n, (const char *[]){__VA_ARGS__}, tensors, 0, NULL, NULL, &e)
  assert_fails(WRITE(pair, 2, "x", "x"), INVALID, "two tensors are named 'x'", e);
  assert_fails(WRITE(pair, 1, "__metadata__"), INVALID, "'__metadata__' cannot be a tensor's name", e);
  char many[1026];
  memset(many, 'n', 1025);
  many[1025] = 0;
  assert_fails(WRITE(pair, 1, many), INVALID, "longer than 1024 bytes", e);
  assert_fails(WRITE(pair, 1, "\xff"), INVALID, "UTF-8", e);
  ac_tensor *turned = aci_tensor_alias(a, 2, (int64_t[]){2, 2}, (int64_t[]){1, 2}, 0);
  assert_fails(WRITE(&turned, 1, "t"), INVALID, "tensor 't' is f32 (2, 2) on cpu; only contiguous", e);
  assert_ok(ac_tensor_new(meta, AC_F32, SHAPE(2), &m, &e), e);
  assert_fails(WRITE(&m, 1, "m"), INVALID, "tensor 'm' is f32 (2) on meta; only", e);
  assert_fails(ac_safetensors_write(st_path(), 0, NULL, NULL, 2, (const char *[]){"k", "k"},
                                    (const char *[]){"1", "2"}, &e),
               INVALID, "two metadata values are named 'k'", e);
  assert_fails(ac_safetensors_write(st_path(), 0, NULL, NULL, 1, (const char *[]){"accel.crc32c"},
                                    (const char *[]){"1"}, &e),
               INVALID, "'accel.crc32c' is reserved", e);
  assert_fails(
      ac_safetensors_write(st_path(), 0, NULL, NULL, 1, (const char *[]){"k"}, (const char *[]){"\xc0"}, &e),
      INVALID, "UTF-8", e);
  ac_tensor_release(turned);
  ac_tensor_release(m);
  ac_tensor_release(a);
  size_t n;
  char *bytes = ac_test_read(st_path(), &n);
  assert_string_equal(bytes, "keep");
  free(bytes);
  assert_int_equal(files_in_folder(), before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_what_python_wrote), cmocka_unit_test(writes_what_python_reads),
      cmocka_unit_test(every_dtype_comes_back),  cmocka_unit_test(nothing_and_odd_names),
      cmocka_unit_test(refusals_touch_nothing),  cmocka_unit_test(every_flipped_data_byte_is_noticed),
  };
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}
