/* The archive of torch.save: both ways of writing it, every rule of its directory with byte and message,
 * every truncation, every flipped bit. */
#include "host/file/pt_file.h"

#include "tensor/tensor_impl.h"

static ac_device *cpu;
static int open_cpu(void **state) {
  ac_err e;
  return ac_device_open(ac_device_cpu_vtable(), 0, 1 << 24, NULL, &cpu, &e) != AC_OK;
}
static int close_cpu(void **state) {
  ac_device_release(cpu);
  return 0;
}

static void check_good(const void *p, size_t n) {
  ac_err e;
  ac_pt *f;
  assert_ok(ac_pt_open(pt_mem(p, n), &f, &e), e);
  const ac_pt_value *root = ac_pt_at(f, ac_pt_root(f));
  assert_int_equal(root->kind, AC_PT_DICT);
  assert_int_equal(root->n, 2);
  const ac_pt_value *k = ac_pt_at(f, root->item[0]), *v = ac_pt_at(f, root->item[1]);
  assert_true(k->kind == AC_PT_STR && k->n == 1 && k->s[0] == 'w' && v->kind == AC_PT_TENSOR);
  const ac_pt_tensor *t = ac_pt_tensor_at(f, v->i);
  assert_true(t->dtype == AC_F32 && t->ndim == 1 && t->shape[0] == 4 && t->stride[0] == 1 && t->offset == 0);
  assert_int_equal(ac_pt_n_storages(f), 1);
  assert_int_equal(ac_pt_storage_bytes(f, t->storage), 16);
  ac_tensor *x;
  assert_ok(ac_tensor_new(cpu, AC_U8, 1, (int64_t[]){16}, &x, &e), e);
  assert_ok(ac_pt_read(f, t->storage, x, &e), e);
  assert_memory_equal(ac_tensor_data(x), pt_four, 16);
  ac_tensor_release(x);
  assert_ok(ac_tensor_new(cpu, AC_U8, 1, (int64_t[]){15}, &x, &e), e);
  assert_fails(ac_pt_read(f, t->storage, x, &e), INVALID, "does not fit its destination", e);
  ac_tensor_release(x);
  ac_pt_close(f);
}

static void both_writers(void **state) {
  for (int k = 0; k < 4; k++) {
    pt_bytes o;
    pt_archive a = {.descriptors = k & 1, .zip64 = k & 2};
    pt_entry x[] = PT_GOOD_ENTRIES;
    pt_put(&o, &a, x, PT_GOOD);
    check_good(o.b, o.n);
  }
}

/* Each rule: a good archive with a few bytes of it changed. */
static void every_rule(void **state) {
  pt_bytes good, o;
  pt_archive a = {0};
  pt_entry x[] = PT_GOOD_ENTRIES;
  pt_put(&good, &a, x, PT_GOOD);
  const size_t c0 = x[0].central_at, c2 = x[2].central_at, h2 = x[2].header_at, end = a.end_at;
  const struct {
    size_t at;
    uint64_t v;
    int n;
    const char *rule;
    uint64_t says_at;
    const char *says;
  } bad[] = {
      {end, 0, 4, "truncated", end, "does not end with the file"},
      {end + 20, 1, 2, "truncated", end, "does not end with the file"},
      {end + 4, 1, 2, "format", end, "several files"},
      {end + 6, 1, 2, "format", end, "several files"},
      {end + 8, 4, 2, "size", end, "numbers of entries differ"},
      {end + 12, 1, 4, "size", end, "do not end at its end record"},
      {end + 16, 0x7fffffff, 4, "truncated", end, "begins at 2147483647, after the end"},
      {end + 16, a.central_at - 1, 4, "size", end, "do not end at its end record"},
      {c0, 0, 4, "size", c0, "no entry of the directory is here"},
      {c0 + 28, 60000, 2, "size", c0, "leaves the directory"},
      {c0 + 32, 1, 2, "size", c0, "leaves the directory"},
      {c0 + 10, 8, 2, "compressed", c0, "'a/data.pkl' is compressed"},
      {c0 + 8, 1, 2, "compressed", c0, "'a/data.pkl' is encrypted"},
      {c0 + 8, 0x2000, 2, "format", c0, "flags 0x2000"},
      {c0 + 34, 1, 2, "format", c0, "lies in another file"},
      {c2 + 20, 17, 4, "size", c2, "contradictory sizes"},
      {c2 + 42, 0xffffffff, 4, "size", c2, "contradictory sizes"},
      {c2 + 16, 1, 4, "size", h2, "'a/data/0' is described otherwise"},
      {h2 + 18, 15, 4, "size", h2, "'a/data/0' is described otherwise"},
      {h2 + 6, 0x800, 2, "size", h2, "'a/data/0' is described otherwise"},
      {h2 + 8, 8, 2, "size", h2, "'a/data/0' is described otherwise"},
      {h2, 0, 4, "name", h2, "no entry 'a/data/0' begins here"},
      {h2 + 30 + 7, '1', 1, "name", h2, "entry 'a/data/1' is 'a/data/0' in the directory"},
      {h2 + 26, 60000, 2, "size", h2, "overlaps what follows"},
      {c2 + 42, h2 + 1, 4, "size", x[1].data_at + 6, "1 bytes after entry 'a/byteorder'"},
      {c2 + 42, x[1].header_at, 4, "size", x[1].header_at, "overlaps what follows"},
      {c0 + 42, 1, 4, "size", 0, "bytes before the first entry"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char what[64];
    o = good;
    pt_set(&o, bad[i].at, bad[i].v, bad[i].n);
    snprintf(what, sizeof what, "case %zu", i);
    pt_refused(&o, bad[i].rule, bad[i].says_at, bad[i].says, what);
  }
}

static void zip64_and_descriptors(void **state) {
  pt_bytes good, o;
  pt_archive a = {.descriptors = true, .zip64 = true};
  pt_entry x[] = PT_GOOD_ENTRIES;
  pt_put(&good, &a, x, PT_GOOD);
  const size_t end = a.end_at, end64 = end - 76, d = x[2].data_at + 16;
  const struct {
    size_t at;
    uint64_t v;
    int n;
    const char *rule;
    uint64_t says_at;
    const char *says;
  } bad[] = {
      {end - 12, end64 - 1, 8, "truncated", end - 20, "not before its locator"},
      {end - 4, 2, 4, "format", end - 20, "several files"},
      {end64 + 4, 45, 8, "truncated", end - 20, "not before its locator"},
      {end64 + 16, 1, 4, "format", end64, "several files"},
      {end64 + 24, 6, 8, "size", end64, "two ends differ"},
      {end64 + 48, UINT64_MAX, 8, "size", end64, "two ends differ"},
      {d, 0, 4, "size", d, "does not describe it"},
      {d + 4, 0, 4, "size", d, "does not describe it"},
      {d + 12, 15, 4, "size", d, "does not describe it"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char what[64];
    o = good;
    pt_set(&o, bad[i].at, bad[i].v, bad[i].n);
    snprintf(what, sizeof what, "case %zu", i);
    pt_refused(&o, bad[i].rule, bad[i].says_at, bad[i].says, what);
  }
  o = good; /* sentinels point to the zip64 record, whose numbers are checked */
  pt_set(&o, end + 8, 0xffffffff, 4);
  pt_set(&o, end + 12, UINT64_MAX, 8);
  check_good(o.b, o.n);
  pt_set(&o, end64 + 48, UINT64_MAX - 10, 8);
  pt_refused(&o, "size", end64, "do not end at its end record", "a directory that wraps");
}

/* Entries that torch.save does not write, or not so. */
static void every_name(void **state) {
  static const struct {
    const char *name, *rule, *says;
  } bad[] = {
      {"/a/data/1", "name", "'/a/data/1' is not in the archive's folder"},
      {"a", "name", "not in the archive's folder"},
      {"a\\b/data/1", "name", "not in the archive's folder"},
      {"a/../b", "name", "leaves the archive's folder"},
      {"a/data/..", "name", "leaves the archive's folder"},
      {"b/data/1", "name", "'b/data/1' is in another folder than 'a'"},
      {"a/data/1x", "name", "is not written by torch.save"},
      {"a/data/", "name", "is not written by torch.save"},
      {"a/data/-1", "name", "is not written by torch.save"},
      {"a/more", "name", "is not written by torch.save"},
      {"a/code/x.py", "format", "TorchScript"},
      {"a/constants.pkl", "format", "TorchScript"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    pt_bytes o;
    pt_archive a = {0};
    pt_entry x[PT_GOOD + 1] = PT_GOOD_ENTRIES;
    x[PT_GOOD] = (pt_entry){bad[i].name, "z", 1, 0, 0, 0};
    pt_put(&o, &a, x, PT_GOOD + 1);
    pt_refused(&o, bad[i].rule, x[PT_GOOD].header_at, bad[i].says, bad[i].name);
  }
  pt_bytes o;
  pt_archive a = {0};
  pt_entry x[PT_GOOD + 1] = PT_GOOD_ENTRIES;
  x[PT_GOOD] = x[2];
  pt_put(&o, &a, x, PT_GOOD + 1);
  pt_refused(&o, "name", x[PT_GOOD].header_at, "duplicate entry 'data/0'", "twice");
  pt_entry none[] = {{"a/version", "3\n", 2, 0, 0, 0}};
  pt_put(&o, &a, none, 1);
  pt_refused(&o, "missing", 0, "no data.pkl", "no pickle");
  pt_entry order[] = PT_GOOD_ENTRIES;
  order[1].data = "middle";
  pt_put(&o, &a, order, PT_GOOD);
  pt_refused(&o, "format", 0, "byteorder 'middle'", "byte order");
  pt_entry less[] = PT_GOOD_ENTRIES;
  less[2].n = 12;
  pt_put(&o, &a, less, PT_GOOD);
  pt_refused(&o, "size", less[0].data_at + sizeof(PT_HEAD PT_PID) - 2, "16 bytes: its entry has 12",
             "short storage");
}

static void every_truncation(void **state) {
  for (int k = 0; k < 2; k++) {
    pt_bytes o;
    pt_archive a = {.descriptors = k, .zip64 = k};
    pt_entry x[] = PT_GOOD_ENTRIES;
    pt_put(&o, &a, x, PT_GOOD);
    const size_t n = o.n;
    for (o.n = 0; o.n < n; o.n++) {
      char what[64];
      snprintf(what, sizeof what, "%zu of %zu bytes", o.n, n);
      ac_err e;
      ac_pt *f;
      const ac_status st = ac_pt_open(pt_mem(o.b, o.n), &f, &e);
      assert_null(f);
      const bool bare = o.n > 0 && o.n < 4; /* not yet an archive's first bytes */
      const uint64_t at = bare ? 0 : o.n < 22 ? o.n : o.n - 22;
      pt_expect(st, &e, bare ? "format" : "truncated", at, "", what);
    }
    o.n = n;
    o.b[o.n++] = 0; /* and one byte more */
    pt_refused(&o, "truncated", n + 1 - 22, "something follows it", "a byte behind");
  }
}

/* A flipped bit is found, or is none that anything reads: version needed, time, attributes, padding. */
static void every_bit(void **state) {
  for (int k = 0; k < 2; k++) {
    pt_bytes o;
    pt_archive a = {.descriptors = k, .zip64 = k};
    pt_entry x[] = PT_GOOD_ENTRIES;
    pt_put(&o, &a, x, PT_GOOD);
    int found = 0, same = 0;
    for (size_t i = 0; i < o.n * 8; i++) {
      ac_err e;
      ac_pt *f;
      o.b[i / 8] ^= (unsigned char)(1 << i % 8);
      ac_status st = ac_pt_open(pt_mem(o.b, o.n), &f, &e);
      if (st == AC_OK) {
        st = pt_read_all(f, cpu, &e);
        ac_pt_close(f);
      }
      if (st == AC_OK) check_good(o.b, o.n);
      else assert_int_equal(st, AC_PARSE);
      const size_t at = i / 8;
      for (int d = 0; d < PT_GOOD; d++)
        if (at >= x[d].data_at && at < x[d].data_at + x[d].n)
          assert_int_equal(st, AC_PARSE); /* by its CRC-32 at the latest */
      found += st != AC_OK;
      same += st == AC_OK;
      o.b[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    assert_true(found > same * 2);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_writers),          cmocka_unit_test(every_rule),
      cmocka_unit_test(zip64_and_descriptors), cmocka_unit_test(every_name),
      cmocka_unit_test(every_truncation),      cmocka_unit_test(every_bit),
  };
  return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
