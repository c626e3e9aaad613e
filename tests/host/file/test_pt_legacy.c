/* torch.save before PyTorch 1.6: a good file, every rule of the layout with its byte, every truncation;
 * pickles longer than the first piece that is read. */
#include "host/file/pt_file.h"

static ac_device *cpu;
static int open_cpu(void **state) {
  ac_err e;
  return ac_device_open(ac_device_cpu_vtable(), 0, 1 << 24, NULL, &cpu, &e) != AC_OK;
}
static int close_cpu(void **state) {
  ac_device_release(cpu);
  return 0;
}

#define MAGIC "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
#define VERSION "\x80\2M\xe9\3."
#define SIZES "\x80\2}X\r\0\0\0little_endian\x88s."
#define PID                                          \
  "(X\7\0\0\0storagectorch\nFloatStorage\nX\2\0\0\0" \
  "77X\3\0\0\0cpuK\4NtQ"
#define TREE PT_HEAD PID PT_TAIL
#define KEYS         \
  "\x80\2]X\2\0\0\0" \
  "77a."
#define DATA "\4\0\0\0\0\0\0\0"

/* Literals one after the other, and the storage's 16 bytes. */
#define PUT(o, text, with_data)                          \
  do {                                                   \
    (o)->n = 0;                                          \
    pt_add((o), text, sizeof(text) - 1);                 \
    if (with_data) pt_add((o), pt_four, sizeof pt_four); \
  } while (0)
enum {
  AT_VERSION = sizeof MAGIC - 1,
  AT_SIZES = AT_VERSION + sizeof VERSION - 1,
  AT_TREE = AT_SIZES + sizeof SIZES - 1,
  AT_KEYS = AT_TREE + sizeof TREE - 1,
  AT_DATA = AT_KEYS + sizeof KEYS - 1
};

static void good(void **state) {
  pt_bytes o;
  ac_err e;
  ac_pt *f;
  ac_tensor *x;
  PUT(&o, MAGIC VERSION SIZES TREE KEYS DATA, true);
  assert_ok(ac_pt_open(pt_mem(o.b, o.n), &f, &e), e);
  assert_int_equal(ac_pt_n_storages(f), 1);
  assert_ok(ac_tensor_new(cpu, AC_U8, 1, (int64_t[]){16}, &x, &e), e);
  assert_ok(ac_pt_read(f, 0, x, &e), e);
  assert_memory_equal(ac_tensor_data(x), pt_four, 16);
  ac_tensor_release(x);
  ac_pt_close(f);
}

static void every_rule(void **state) {
  pt_bytes o;
#define REFUSED(text, rule, at, says) \
  PUT(&o, text, true);                \
  pt_refused(&o, rule, at, says, says)
  REFUSED("hello", "format", 0, "neither an archive nor a pickle");
  REFUSED("\x80\2]." VERSION, "format", 0, "begins with a list, not with torch.save's magic number");
  REFUSED("\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x18." VERSION, "format", 0, "magic number");
  REFUSED(MAGIC "\x80\2M\xe8\3." SIZES TREE KEYS DATA, "format", AT_VERSION, "other than 1001");
  REFUSED(MAGIC VERSION "\x80\2]." TREE KEYS DATA, "format", AT_SIZES, "not a dict");
  REFUSED(MAGIC VERSION SIZES TREE "\x80\2}.", "format", AT_KEYS, "not a list");
  REFUSED(MAGIC VERSION SIZES TREE "\x80\2]." DATA, "missing", AT_TREE + sizeof(PT_HEAD PID) - 2,
          "storage '77' is not in the file");
  REFUSED(MAGIC VERSION SIZES TREE "\x80\2]X\2\0\0\0"
                                   "78a." DATA,
          "missing", AT_KEYS + 3, "a key of no storage, or twice");
  REFUSED(MAGIC VERSION SIZES TREE "\x80\2]K\1a." DATA, "missing", AT_KEYS + 3, "a key of no storage");
  REFUSED(MAGIC VERSION SIZES TREE "\x80\2](X\2\0\0\0"
                                   "77X\2\0\0\0"
                                   "77e." DATA,
          "missing", AT_KEYS + 11, "or twice");
  REFUSED(MAGIC VERSION SIZES TREE KEYS "\5\0\0\0\0\0\0\0", "size", AT_DATA, "of 4 elements has 5 here");
  REFUSED(MAGIC VERSION SIZES TREE KEYS "\4\0\0\0\0\0\0\x80", "size", AT_DATA,
          "has 9223372036854775812 here");
  REFUSED(MAGIC VERSION SIZES "\x80\2cos\nsystem\n)R." KEYS DATA, "unknown_global", AT_TREE + 2, "os.system");
  PUT(&o, MAGIC VERSION SIZES TREE KEYS DATA, true);
  pt_add(&o, "z", 1);
  pt_refused(&o, "size", o.n - 1, "1 bytes after the last storage", "a byte behind");
  memset(o.b, 0, 512); /* tar */
  memcpy(o.b + 257, "ustar", 5);
  o.n = 512;
  pt_refused(&o, "format", 0, "the tar layout", "tar");
}

static void every_truncation(void **state) {
  pt_bytes o;
  PUT(&o, MAGIC VERSION SIZES TREE KEYS DATA, true);
  const size_t n = o.n;
  for (o.n = 0; o.n < n; o.n++) {
    ac_err e;
    ac_pt *f;
    const ac_status st = ac_pt_open(pt_mem(o.b, o.n), &f, &e);
    assert_null(f);
    assert_int_equal(st, AC_PARSE);
    if (strstr(e.msg, "rule truncated at byte ") == NULL) fail_msg("%zu bytes: %s", o.n, e.msg);
  }
}

/* A tree of some MiB is read in pieces that grow. */
static void long_pickles(void **state) {
  enum { N = 5 << 20 };
  const size_t head = AT_TREE;
  unsigned char *p = malloc(N + 4096);
  ac_err e;
  ac_pt *f;
  memcpy(p, MAGIC VERSION SIZES, head);
  size_t n = head;
  memcpy(p + n, "\x80\2](", 4);
  n += 4;
  uint32_t items = 0;
  while (n < N) { /* groups, so that the stack stays small */
    if (++items % 1000 == 0) p[n++] = 'e', p[n++] = '(';
    memcpy(p + n, "K\7", 2);
    n += 2;
  }
  memcpy(p + n, "e.\x80\2].", 6);
  n += 6;
  assert_ok(ac_pt_open(pt_mem(p, n), &f, &e), e);
  const ac_pt_value *root = ac_pt_at(f, ac_pt_root(f));
  assert_int_equal(root->n, items);
  assert_int_equal(ac_pt_at(f, root->item[items - 1])->i, 7);
  ac_pt_close(f);
  assert_int_equal(ac_pt_open(pt_mem(p, n - 6), &f, &e), AC_PARSE);
  assert_non_null(strstr(e.msg, "rule truncated"));
  free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(good),
      cmocka_unit_test(every_rule),
      cmocka_unit_test(every_truncation),
      cmocka_unit_test(long_pickles),
  };
  return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
