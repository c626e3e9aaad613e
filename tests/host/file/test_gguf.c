/* The reader of GGUF files: every rule has a file that breaks it and is named by it; good files; files that are cut at every byte. The
 * writer: what it takes, and that it is over with commit or a write that failed.
 * tier: every change, memory */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "accel/file.h"
#include "support/test.h"

/* ---- a file being made ---- */
static unsigned char buf[1 << 16];
static size_t len;
static char path[512];

static void bytes(const void *p, size_t n) {
  memcpy(buf + len, p, n);
  len += n;
}
static void num(uint64_t v, int n) {
  for (int i = 0; i < n; i++) buf[len++] = (unsigned char)(v >> (8 * i));
}
static void text(const char *s) {
  num(strlen(s), 8);
  bytes(s, strlen(s));
}
static void begin(uint64_t n_tensors, uint64_t n_meta) {
  len = 0;
  bytes("GGUF", 4);
  num(3, 4);
  num(n_tensors, 8);
  num(n_meta, 8);
}
static void tensor(const char *name, int ndim, const uint64_t *dims, uint32_t type, uint64_t at) {
  text(name);
  num((uint64_t)ndim, 4);
  for (int i = 0; i < ndim; i++) num(dims[i], 8);
  num(type, 4);
  num(at, 8);
}
static void data(size_t n) {
  while (len % 32 != 0) buf[len++] = 0;
  memset(buf + len, 0x3c, n);
  len += n;
}
static void save(size_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(buf, 1, n, f), n);
  fclose(f);
}

static void refused(const char *rule) {
  ac_err e;
  ac_gguf *f;
  char want[80];
  save(len);
  const ac_status st = ac_gguf_open(path, &f, &e);
  snprintf(want, sizeof want, "not a GGUF file that can be read: rule %s at byte", rule);
  if (st != AC_PARSE || strstr(e.msg, want) == NULL) fail_msg("wanted rule %s, got %d: %s", rule, st, st == AC_OK ? "" : e.msg);
  assert_null(f);
}

static const uint64_t ROW[2] = {32, 2};

/* A good file: two values, tensors of f32 and Q8_0. */
static void good(void) {
  begin(2, 2);
  text("a.b");
  num(AC_GGUF_U32, 4);
  num(7, 4);
  text("list");
  num(AC_GGUF_ARRAY, 4);
  num(AC_GGUF_STRING, 4);
  num(2, 8);
  text("one");
  text("");
  tensor("x", 2, ROW, 0, 0);
  tensor("y", 2, ROW, 8, 256);
  data(256 + 68);
}

static void test_good(void **state) {
  (void)state;
  ac_err e;
  ac_gguf *f;
  good();
  save(len);
  assert_int_equal(ac_gguf_open(path, &f, &e), AC_OK);
  assert_int_equal(ac_gguf_n_meta(f), 2);
  const ac_gguf_value *v = ac_gguf_find_meta(f, "list");
  assert_true(v != NULL && v->kind == AC_GGUF_ARRAY && v->item_kind == AC_GGUF_STRING && v->n == 2);
  assert_memory_equal(v->at + 8, "one", 3);
  assert_null(ac_gguf_find_meta(f, "a"));
  const ac_gguf_entry *t = ac_gguf_tensor(f, 1);
  assert_true(strcmp(t->name, "y") == 0 && strcmp(t->type_name, "Q8_0") == 0 && t->ndim == 2 && t->shape[0] == 2 && t->shape[1] == 32);
  assert_true(t->dtype == AC_F32 && t->bytes == 68);
  ac_gguf_close(f);
  for (size_t n = 0; n < len; n++) { /* cut anywhere */
    save(n);
    assert_int_equal(ac_gguf_open(path, &f, &e), AC_PARSE);
  }
}

static void test_head(void **state) {
  (void)state;
  good();
  buf[0] = 'X';
  refused("magic");
  good();
  buf[4] = 1;
  refused("version");
  good();
  memmove(buf + 4, "\0\0\0\3", 4);
  refused("version");
  begin(0, 1ull << 40);
  refused("count");
  begin(70000, 0);
  len = 1 << 15;
  refused("count");
  begin(0, 1);
  refused("truncated");
  text("");
  refused("key");
  begin(0, 1);
  num(4, 8);
  bytes("a\0bc", 4);
  len += 40;
  refused("key");
  begin(0, 1);
  text("\xff");
  len += 40;
  refused("key");
  begin(0, 1);
  num(1025, 8);
  len += 2000;
  refused("key");
  begin(0, 2);
  for (int i = 0; i < 2; i++) {
    text("twice");
    num(AC_GGUF_U8, 4);
    num(1, 1);
  }
  refused("key");
}

/* One value of this kind, followed by what the caller adds. */
static void value(uint32_t kind) {
  begin(0, 1);
  text("general.alignment");
  num(kind, 4);
}

static void test_values(void **state) {
  (void)state;
  value(13);
  num(0, 8);
  refused("type");
  value(77777);
  num(0, 8);
  refused("type");
  value(AC_GGUF_BOOL);
  num(2, 1);
  refused("value");
  value(AC_GGUF_STRING);
  num(1ull << 62, 8);
  refused("value");
  value(AC_GGUF_ARRAY);
  num(AC_GGUF_ARRAY, 4);
  num(1, 8);
  refused("value");
  value(AC_GGUF_ARRAY);
  num(99, 4);
  num(1, 8);
  refused("type");
  value(AC_GGUF_ARRAY);
  num(AC_GGUF_U64, 4);
  num(1ull << 61, 8);
  refused("count");
  value(AC_GGUF_ARRAY);
  num(AC_GGUF_STRING, 4);
  num(2, 8);
  text("x");
  num(50, 8);
  refused("truncated");
  value(AC_GGUF_ARRAY);
  num(AC_GGUF_BOOL, 4);
  num(2, 8);
  num(3, 2);
  refused("value");
  for (int i = 0; i < 3; i++) {
    static const uint32_t wrong[] = {0, 24, 1 << 17};
    value(AC_GGUF_U32);
    num(wrong[i], 4);
    refused("alignment");
  }
  value(AC_GGUF_U16);
  num(32, 2);
  refused("alignment");
}

static void test_tensors(void **state) {
  (void)state;
  static const uint64_t huge[4] = {1ull << 40, 1ull << 40, 1, 1}, odd[1] = {33}, five[5] = {1, 1, 1, 1, 1}, large[1] = {1ull << 63};
  begin(1, 0);
  tensor("x", 5, five, 0, 0);
  refused("shape");
  begin(1, 0);
  tensor("x", 4, huge, 0, 0);
  refused("shape");
  begin(1, 0);
  tensor("x", 1, large, 0, 0);
  refused("shape");
  begin(1, 0);
  tensor("x", 1, odd, 8, 0);
  refused("shape");
  begin(1, 0);
  tensor("x", 2, ROW, 4, 0);
  refused("type");
  begin(1, 0);
  tensor("x", 2, ROW, 4000000000u, 0);
  refused("type");
  begin(1, 0);
  tensor("x", 2, ROW, 0, 8);
  data(512);
  refused("place");
  begin(1, 0);
  tensor("x", 2, ROW, 0, 1ull << 62);
  data(512);
  refused("place");
  begin(2, 0);
  tensor("x", 2, ROW, 0, 0);
  tensor("y", 2, ROW, 0, 32);
  data(512);
  refused("place");
  begin(2, 0);
  tensor("x", 2, ROW, 0, 0);
  tensor("x", 2, ROW, 0, 256);
  data(512);
  refused("key");
  begin(1, 0);
  tensor("x", 2, ROW, 0, 0);
  data(255);
  refused("place");
}

static void test_read(void **state) {
  (void)state;
  ac_err e;
  ac_gguf *f;
  ac_device *cpu;
  ac_tensor *t = NULL;
  assert_int_equal(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 24, NULL, &cpu, &e), AC_OK);
  good();
  save(len);
  assert_int_equal(ac_gguf_open(path, &f, &e), AC_OK);
  const int64_t shape[2] = {2, 32}, wrong[1] = {63};
  assert_int_equal(ac_tensor_new(cpu, AC_F32, 1, wrong, &t, &e), AC_OK);
  assert_int_equal(ac_gguf_read(f, 1, t, &e), AC_INVALID);
  ac_tensor_release(t);
  assert_int_equal(ac_tensor_new(cpu, AC_F32, 2, shape, &t, &e), AC_OK);
  assert_int_equal(ac_gguf_read(f, 1, t, &e), AC_OK); /* 0x3c3c is a half of 1.05859375, 0x3c 60 */
  const float *p = ac_tensor_data(t);
  for (int i = 0; i < 64; i++) assert_true(p[i] == 1.05859375f * 60);
  assert_int_equal(truncate(path, (off_t)(len - 10)), 0); /* cut while it is open */
  assert_int_equal(ac_gguf_read(f, 1, t, &e), AC_IO);
  ac_tensor_release(t);
  ac_gguf_close(f);
  begin(1, 0);
  static const uint64_t k[1] = {256};
  tensor("k", 1, k, 16, 0); /* IQ2_XXS: 0x3c numbers a point and has 2 minuses of 7 bits, 3 is the scale */
  data(66);
  save(len);
  assert_int_equal(ac_gguf_open(path, &f, &e), AC_OK);
  const int64_t n = 256;
  assert_int_equal(ac_tensor_new(cpu, AC_F32, 1, &n, &t, &e), AC_OK);
  assert_int_equal(ac_gguf_read(f, 0, t, &e), AC_OK);
  p = ac_tensor_data(t);
  for (int i = 0; i < 256; i++) {
    const float v = fabsf(p[i]) / (1.05859375f * 3.5f / 4);
    assert_true(v == 8 || v == 25 || v == 43);
  }
  ac_tensor_release(t);
  ac_gguf_close(f);
  ac_device_release(cpu);
}

static void test_writer(void **state) {
  ac_gguf_writer *w;
  ac_device *cpu;
  ac_tensor *some, *most;
  ac_err e;
  struct rlimit was, now;
  const int64_t one = 1, many = 1 << 18; /* of f32: 1 MiB */
  (void)state;
  assert_int_equal(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 24, NULL, &cpu, &e), AC_OK);
  assert_int_equal(ac_tensor_new(cpu, AC_F32, 1, &one, &some, &e), AC_OK);
  assert_int_equal(ac_tensor_new(cpu, AC_F32, 1, &many, &most, &e), AC_OK);
  memset(ac_tensor_data(some), 1, 4);
  memset(ac_tensor_data(most), 1, (size_t)many * 4);
  remove(path);
  assert_fails(ac_gguf_create(path, "head", 4, 32, 4, &w, &e), INVALID, "4 bytes of tensors are not a multiple of the alignment 32", e);
  assert_int_equal(ac_gguf_create(path, "head", 4, 32, 32, &w, &e), AC_OK);
  assert_int_equal(ac_gguf_append(w, some, &e), AC_OK);
  assert_fails(ac_gguf_append(w, some, &e), INVALID, "4 bytes are more than were announced", e);
  assert_int_equal(ac_gguf_commit(w, &e), AC_OK);
  assert_fails(ac_gguf_commit(w, &e), RELEASED, "has been committed", e);
  assert_fails(ac_gguf_append(w, some, &e), RELEASED, "has been committed", e);
  ac_gguf_abort(w);
  assert_int_equal(access(path, F_OK), 0);
  /* too few bytes: over as well */
  assert_int_equal(ac_gguf_create(path, "head", 4, 32, 64, &w, &e), AC_OK);
  assert_int_equal(ac_gguf_append(w, some, &e), AC_OK);
  assert_fails(ac_gguf_commit(w, &e), INVALID, "32 bytes of tensors were written, 64 announced", e);
  assert_fails(ac_gguf_append(w, some, &e), RELEASED, "has been committed", e);
  assert_fails(ac_gguf_commit(w, &e), RELEASED, "has been committed", e);
  ac_gguf_abort(w);
  /* a tensor of which a part was written: nothing may come behind it, though the disk has room again */
  remove(path);
  assert_int_equal(ac_gguf_create(path, "head", 4, 32, 4 << 20, &w, &e), AC_OK);
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
  now = was;
  now.rlim_cur = 4096;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
  const ac_status st = ac_gguf_append(w, most, &e);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
  signal(SIGXFSZ, SIG_DFL);
  assert_int_equal(st, AC_IO);
  assert_fails(ac_gguf_append(w, some, &e), IO, "not whole", e);
  assert_fails(ac_gguf_commit(w, &e), IO, "not whole", e);
  ac_gguf_abort(w);
  assert_int_not_equal(access(path, F_OK), 0);
  ac_tensor_release(some);
  ac_tensor_release(most);
  ac_device_release(cpu);
}

int main(void) {
  snprintf(path, sizeof path, "%s/x.gguf", getenv("ACCEL_TEST_TMP") != NULL ? getenv("ACCEL_TEST_TMP") : ".");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_good), cmocka_unit_test(test_head), cmocka_unit_test(test_values), cmocka_unit_test(test_tensors),
      cmocka_unit_test(test_read),   cmocka_unit_test(test_writer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
