/* Sharded safetensors: every box of a tensor cut into chunks in several ways equals the closed form of its
 * elements; every rule C1 to C6; checksums of whole chunks; wide rows beyond the reader's window. */
#include "host/file/st_file.h"

#include <unistd.h>

#include "file/sharded.h"
#include "tensor/tensor_impl.h"

static ac_device *cpu;
static int open_devices(void **state) {
  ac_err e;
  return ac_device_open(ac_device_cpu_vtable(), 0, 1 << 26, NULL, &cpu, &e) != AC_OK;
}
static int close_devices(void **state) {
  ac_device_release(cpu);
  return 0;
}

static const char *path_of(int i) {
  static char paths[9][512];
  char name[20], *p;
  snprintf(name, sizeof name, "s%d.safetensors", i);
  snprintf(paths[i], sizeof paths[i], "%s", p = ac_test_tmp_path(name));
  free(p);
  return paths[i];
}

/* Element (i, j) of the whole tensor of `cols` columns. */
#define ELEMENT(i, j) ((float)((i)*1000 + (j)))

/* One file with the chunk "w" at (r, c) of (nr, nc), and "offset" as its saved_offsets; "" for none. */
static void put_chunk(int file, int64_t r, int64_t c, int64_t nr, int64_t nc, const char *info) {
  ac_err e;
  ac_tensor *t;
  float *v = malloc((size_t)(nr * nc + 1) * sizeof *v);
  for (int64_t i = 0; i < nr; i++)
    for (int64_t j = 0; j < nc; j++) v[i * nc + j] = ELEMENT(r + i, c + j);
  assert_ok(ac_tensor_from_host(cpu, AC_F32, 2, (int64_t[]){nr, nc}, v, &t, &e), e);
  const char *names[] = {"w"}, *keys[] = {ACI_SHARDING_KEY}, *values[] = {info};
  assert_ok(ac_safetensors_write(path_of(file), 1, names, &t, info[0] != 0, keys, values, &e), e);
  ac_tensor_release(t);
  free(v);
}
static void put_cut(int file, int64_t r, int64_t c, int64_t nr, int64_t nc) {
  char info[100];
  snprintf(info, sizeof info, "{\"w\": {\"saved_offsets\": [%d, %d]}}", (int)r, (int)c);
  put_chunk(file, r, c, nr, nc, info);
}

static aci_sharded *open_n(int n) {
  const char *paths[9];
  ac_err e;
  aci_sharded *s = NULL;
  for (int i = 0; i < n; i++) paths[i] = path_of(i);
  assert_ok(aci_sharded_open(n, paths, &s, &e), e);
  return s;
}

static void check_read(aci_sharded *s, int64_t r, int64_t c, int64_t nr, int64_t nc) {
  ac_err e;
  ac_tensor *x = NULL;
  const int64_t at[] = {r, c}, shape[] = {nr, nc};
  assert_ok(ac_tensor_new(cpu, AC_F32, 2, shape, &x, &e), e);
  assert_ok(aci_sharded_read(s, aci_sharded_find(s, "w"), at, shape, x, &e), e);
  const float *v = ac_tensor_data(x);
  for (int64_t i = 0; i < nr; i++)
    for (int64_t j = 0; j < nc; j++)
      if (v[i * nc + j] != ELEMENT(r + i, c + j))
        fail_msg("box (%d,%d)+(%d,%d): element (%d,%d) is %g", (int)r, (int)c, (int)nr, (int)nc, (int)i,
                 (int)j, (double)v[i * nc + j]);
  ac_tensor_release(x);
}

static void every_box_of_every_cut(void **state) {
  enum { R = 5, C = 7 };
  for (int cut = 0; cut < 4; cut++) {
    int n = 0;
    if (cut == 0) put_chunk(n++, 0, 0, R, C, "");
    if (cut == 1)
      put_cut(n++, 0, 0, 2, C), put_cut(n++, 2, 0, 2, C), put_cut(n++, 4, 0, 1, C), put_cut(n++, 5, 0, 0, C);
    if (cut == 2) put_cut(n++, 0, 4, R, 3), put_cut(n++, 0, 0, R, 3), put_cut(n++, 0, 3, R, 1);
    if (cut ==
        3) /* a range of rows in the middle of the row-major order, as flat units are saved: at most 3 boxes each */
      put_cut(n++, 0, 0, 1, C), put_cut(n++, 1, 0, 1, 4), put_cut(n++, 1, 4, 1, 3), put_cut(n++, 2, 0, 2, C),
          put_cut(n++, 4, 0, 1, 5), put_cut(n++, 4, 5, 1, 2);
    aci_sharded *s = open_n(n);
    assert_int_equal(aci_sharded_count(s), 1);
    const aci_sharded_tensor *t = aci_sharded_at(s, 0);
    assert_string_equal(t->name, "w");
    assert_memory_equal(t->shape, ((int64_t[]){R, C}), 16);
    assert_int_equal(t->n_chunks, n);
    assert_ptr_equal(aci_sharded_find(s, "w"), t);
    assert_null(aci_sharded_find(s, "v"));
    for (int r = 0; r <= R; r++)
      for (int c = 0; c <= C; c++)
        for (int nr = 0; r + nr <= R; nr++)
          for (int nc = 0; c + nc <= C; nc++) check_read(s, r, c, nr, nc);
    aci_sharded_close(s);
  }
}

static void rows_longer_than_the_window(void **state) {
  enum { R = 3, C = 300000 }; /* 1.2 MB a row */
  put_cut(0, 0, 0, R, 200000);
  put_cut(1, 0, 200000, R, 99990);
  put_cut(2, 0, 299990, R, 10);
  aci_sharded *s = open_n(3);
  check_read(s, 0, 0, R, C);
  check_read(s, 1, 199990, 2, 99998);
  check_read(s, 0, 150000, R, 10);
  aci_sharded_close(s);
  put_cut(0, 0, 0, 60000, 8); /* many short rows: several windows */
  put_cut(1, 0, 8, 60000, 3);
  s = open_n(2);
  check_read(s, 0, 0, 60000, 11);
  check_read(s, 100, 3, 59000, 6);
  aci_sharded_close(s);
}

static void ranks_and_names(void **state) {
  /* rank 0, rank 1 with an empty chunk, a dtype without tensors, and one name in one file only */
  ac_err e;
  const char *paths[] = {path_of(0), path_of(1)};
  st_put("{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"v\\\":{\\\"saved_offsets\\\":[0]}}\"}," T(
             "s", "I32", "[]", "0", "4") "," T("v", "U8", "[1]", "4", "5") "," T("c", "F6_E3M2", "[4]", "5",
                                                                                 "8") "}",
         8);
  assert_int_equal(rename(st_path(), paths[0]), 0);
  st_put("{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"v\\\":{\\\"saved_offsets\\\":[1]}}\"}," T(
             "v", "U8", "[0]", "0", "0") "}",
         0);
  assert_int_equal(rename(st_path(), paths[1]), 0);
  aci_sharded *s = open_n(2);
  assert_int_equal(aci_sharded_count(s), 3);
  const aci_sharded_tensor *v = aci_sharded_find(s, "v"), *scalar = aci_sharded_find(s, "s"),
                           *c = aci_sharded_find(s, "c");
  assert_int_equal(v->shape[0], 1);
  assert_false(c->has_dtype);
  ac_tensor *x;
  assert_ok(ac_tensor_new(cpu, AC_I32, 0, NULL, &x, &e), e);
  assert_ok(aci_sharded_read(s, scalar, NULL, NULL, x, &e), e);
  assert_memory_equal(ac_tensor_data(x), "\0\1\2\3", 4);
  assert_fails(aci_sharded_read(s, c, (int64_t[]){0}, (int64_t[]){4}, x, &e), DTYPE, "F6_E3M2", e);
  assert_fails(aci_sharded_read(s, v, (int64_t[]){0}, (int64_t[]){1}, x, &e), INVALID,
               "does not fit its destination", e);
  assert_fails(aci_sharded_read(s, v, (int64_t[]){1}, (int64_t[]){1}, x, &e), INVALID, "leaves it", e);
  assert_fails(aci_sharded_read(s, v, (int64_t[]){-1}, (int64_t[]){1}, x, &e), INVALID, "leaves it", e);
  ac_tensor_release(x);
  aci_sharded_close(s);
  aci_sharded_close(open_n(0));
}

static void refused(int n, const char *file, const char *rule, const char *says) {
  const char *paths[9];
  char expected[80];
  ac_err e;
  aci_sharded *s = (aci_sharded *)&e;
  for (int i = 0; i < n; i++) paths[i] = path_of(i);
  assert_int_equal(aci_sharded_open(n, paths, &s, &e), AC_PARSE);
  assert_null(s);
  snprintf(expected, sizeof expected, "%s: rule %s: ", file, rule);
  if (strstr(e.msg, expected) == NULL || strstr(e.msg, says) == NULL)
    fail_msg("says \"%s\", not \"%s\" and \"%s\"", e.msg, expected, says);
}

static void every_rule(void **state) {
  static const struct {
    const char *info, *rule, *says;
  } bad[] = {
      {"nonsense", "C1", "DCP_SHARDING_INFO"},
      {"[]", "C1", "is not an object"},
      {"{\"w\":3}", "C1", "'w' has no saved_offsets"},
      {"{\"w\":{\"saved_offsets\":3}}", "C1", "not a list"},
      {"{\"w\":{\"saved_offsets\":[0,0.5]}}", "C1", "integers"},
      {"{\"w\":{\"saved_offsets\":[0,-1]}}", "C1", "integers"},
      {"{\"v\":{\"saved_offsets\":[0,0]}}", "C2", "'v', which the file does not have"},
      {"{\"w\":{\"saved_offsets\":[0]}}", "C3", "2 dims and 1 saved_offsets"},
      {"{\"w\":{\"saved_offsets\":[0,0,0]}}", "C3", "2 dims and 3 saved_offsets"},
      {"{\"w\":{\"saved_offsets\":[9223372036854775807,0]}}", "C3", "beyond 2^63 in dim 0"},
      {"{\"w\":{\"saved_offsets\":[1,0]}}", "C6", "the chunks of tensor 'w' have 6 of its elements"},
      {"{\"w\":{\"saved_offsets\":[9223372036854775800,9223372036854775800]}}", "C6", "6 of its elements"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    put_chunk(0, 0, 0, 2, 3, bad[i].info);
    refused(1, "s0.safetensors", bad[i].rule, bad[i].says);
  }
  put_cut(0, 0, 0, 2, 3);
  put_cut(1, 1, 0, 2, 3);
  refused(2, "s1.safetensors", "C5", "tensor 'w' overlaps its chunk in ");
  put_chunk(1, 0, 0, 2, 3, ""); /* twice whole */
  refused(2, "s1.safetensors", "C5", "overlaps");
  put_cut(1, 3, 0, 2, 3);
  refused(2, "s0.safetensors", "C6", "have 12 of its elements");
  put_cut(0, 0, 0, 1, 2); /* the elements of the whole, but two of them twice */
  put_cut(1, 0, 1, 1, 2);
  put_cut(2, 1, 0, 1, 2);
  refused(3, "s1.safetensors", "C5", "overlaps");
  put_cut(0, 0, 0, 2, 3);
  st_put("{" T("w", "F32", "[6]", "0", "24") "}", 24);
  assert_int_equal(rename(st_path(), path_of(1)), 0);
  refused(2, "s1.safetensors", "C4", "is F32 of 1 dims, in a file before F32 of 2");
  st_put("{" T("w", "I32", "[2,3]", "0", "24") "}", 24);
  assert_int_equal(rename(st_path(), path_of(1)), 0);
  refused(2, "s1.safetensors", "C4", "is I32");
  /* a file that is none: its own message */
  const char *paths[] = {path_of(0), path_of(7)};
  ac_err e;
  aci_sharded *s;
  assert_fails(aci_sharded_open(2, paths, &s, &e), NOT_FOUND, "s7.safetensors", e);
}

static void damage_is_found(void **state) {
  ac_err e;
  ac_tensor *x;
  size_t n;
  put_cut(0, 0, 0, 4, 3);
  put_cut(1, 0, 3, 4, 2);
  char *bytes = ac_test_read(path_of(1), &n);
  bytes[n - 1] ^= 0x20;
  ac_test_write(path_of(1), bytes, n);
  free(bytes);
  aci_sharded *s = open_n(2);
  const aci_sharded_tensor *t = aci_sharded_find(s, "w");
  assert_ok(ac_tensor_new(cpu, AC_F32, 2, (int64_t[]){4, 5}, &x, &e), e);
  assert_fails(aci_sharded_read(s, t, (int64_t[]){0, 0}, t->shape, x, &e), PARSE, "rule R15", e);
  assert_non_null(strstr(e.msg, "s1.safetensors"));
  ac_tensor_release(x);
  check_read(s, 0, 0, 4, 3); /* the other chunk */
  aci_sharded_close(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_box_of_every_cut), cmocka_unit_test(rows_longer_than_the_window),
      cmocka_unit_test(ranks_and_names),        cmocka_unit_test(every_rule),
      cmocka_unit_test(damage_is_found),
  };
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}
