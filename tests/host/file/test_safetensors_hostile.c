/* Hostile and huge safetensors files: mutations, truncations, promises of bytes that are not there, and
 * headers of very many tensors. Nothing crashes (run under ASan and UBSan), nothing is allocated for a
 * promise, time is linear.
 *
 * Files are made in memory (memfd) and opened by their /proc path: 100,000 of them take a second. */
#include "host/file/st_file.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "tensor/tensor_impl.h"

static ac_device *cpu;
static int mem = -1;
static char mem_path[40];
static int open_all(void **state) {
  ac_err e;
  mem = memfd_create("hostile", MFD_CLOEXEC);
  snprintf(mem_path, sizeof mem_path, "/proc/self/fd/%d", mem);
  return mem < 0 || ac_device_open(ac_device_cpu_vtable(), 0, 1 << 24, NULL, &cpu, &e) != AC_OK;
}
static int close_all(void **state) {
  close(mem);
  ac_device_release(cpu);
  return 0;
}

static void put_mem(const void *bytes, size_t n) {
  assert_int_equal(ftruncate(mem, (off_t)n), 0);
  assert_int_equal(pwrite(mem, bytes, n, 0), (ssize_t)n);
}

/* Opens what is in mem and reads every tensor of it. PARSE, or a file that keeps its promises. */
static ac_status try_mem(ac_err *e) {
  ac_safetensors *f;
  ac_status st = ac_safetensors_open(mem_path, &f, e);
  if (st != AC_OK) {
    assert_null(f);
    assert_int_equal(st, AC_PARSE);
    assert_non_null(strstr(e->msg, "not a valid safetensors file: rule R"));
    return st;
  }
  uint64_t at = 0;
  for (int i = 0; i < ac_safetensors_count(f); i++) {
    const ac_safetensors_entry *t = ac_safetensors_at(f, i);
    assert_int_equal(t->begin, at);
    at = t->end;
    assert_ptr_equal(ac_safetensors_find(f, t->name), t);
    if (!t->has_dtype || t->ndim > AC_MAX_DIMS) continue;
    ac_tensor *x = NULL;
    ac_err why;
    if (ac_tensor_new(cpu, t->dtype, t->ndim, t->shape, &x, &why) != AC_OK) continue; /* (0, 2^62, 2^62) */
    st = ac_safetensors_read(f, t, x, &why);
    ac_tensor_release(x);
    assert_true(st == AC_OK || (st == AC_PARSE && strstr(why.msg, "rule R15") != NULL));
  }
  for (int i = 0; i < ac_safetensors_n_metadata(f); i++) {
    const char *k, *v;
    ac_safetensors_metadata(f, i, &k, &v);
    assert_true(strlen(k) + strlen(v) < 1000);
  }
  ac_safetensors_close(f);
  return AC_OK;
}

/* A small file with everything in it: metadata, checksums, escapes, several dtypes, ranks 0 to 3, an empty
 * tensor. */
static const char seed_header[] = "{\"__metadata__\":{\"format\":\"pt\",\"n\\u00e9\":\"\\\"x\\\"\",\"accel."
                                  "crc32c\":\"00000000\\n00000000\\n00000000\\n00000000\"},"
                                  "\"w.0\":{\"dtype\":\"F32\",\"shape\":[2,1,2],\"data_offsets\":[0,16]},"
                                  "\"b\\u0031\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[16,20]},"
                                  "\"e\":{\"dtype\":\"I64\",\"shape\":[0,3],\"data_offsets\":[20,20]},\"s\":{"
                                  "\"dtype\":\"F4\",\"shape\":[8],\"data_offsets\":[20,24]}}  ";
enum { SEED_DATA = 24, SEED_BYTES = 8 + sizeof seed_header - 1 + SEED_DATA };

static void seed(unsigned char out[SEED_BYTES]) {
  memset(out, 0, SEED_BYTES);
  out[0] = (sizeof seed_header - 1) & 255;
  out[1] = (sizeof seed_header - 1) >> 8;
  memcpy(out + 8, seed_header, sizeof seed_header - 1);
  memset(out + SEED_BYTES - SEED_DATA, 0x3f, SEED_DATA);
}

static void every_truncation(void **state) {
  unsigned char bytes[SEED_BYTES];
  ac_err e;
  seed(bytes);
  put_mem(bytes, SEED_BYTES);
  assert_ok(try_mem(&e), e);
  for (size_t n = 0; n < SEED_BYTES; n++) {
    char rule[40];
    put_mem(bytes, n);
    assert_int_equal(try_mem(&e), AC_PARSE);
    bool short_header = n >= 8 && n < 8 + sizeof seed_header - 1;
    snprintf(rule, sizeof rule, "rule R%d at byte %zu:",
             n < 8          ? 1
             : short_header ? 3
                            : 11,
             n < 8          ? n
             : short_header ? 0
                            : n);
    assert_non_null(strstr(e.msg, rule));
  }
  /* and of the header, with the length to match: the text ends too early, or a tensor is missing at the
   * end */
  for (size_t n = 0; n < sizeof seed_header - 1; n++) {
    seed(bytes);
    bytes[0] = n & 255;
    bytes[1] = (unsigned char)(n >> 8);
    memmove(bytes + 8 + n, bytes + SEED_BYTES - SEED_DATA, SEED_DATA);
    put_mem(bytes, 8 + n + SEED_DATA);
    ac_status st = try_mem(&e);
    assert_int_equal(st == AC_OK, n >= sizeof seed_header - 3); /* two blanks may go */
  }
}

/* Bytes that a mutation puts in: what the grammar is made of, and what it is not. */
static const char *const words[] = {"{",
                                    "}",
                                    "[",
                                    "]",
                                    ",",
                                    ":",
                                    "\"",
                                    "\\",
                                    "\\u0000",
                                    "\\ud800",
                                    "0",
                                    "-1",
                                    "1e9",
                                    "9223372036854775807",
                                    "18446744073709551616",
                                    "null",
                                    "true",
                                    "\xff",
                                    "\xe2\x82",
                                    " ",
                                    "\n",
                                    "\"dtype\"",
                                    "\"shape\"",
                                    "\"data_offsets\"",
                                    "\"__metadata__\"",
                                    "\"F64\"",
                                    "\"F6_E2M3\"",
                                    "[[[[[[[[",
                                    "{\"a\":{\"a\":",
                                    "\"e\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[24,25]},",
                                    "4294967296",
                                    "0.5",
                                    "01"};

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void mutations(void **state) {
  enum { MUTATIONS = 100000 };
  static unsigned char bytes[8 * SEED_BYTES], copy[8 * SEED_BYTES];
  uint64_t rnd = 0x5eed;
  int accepted = 0;
  ac_err e;
  double begin = seconds(), end = begin;
  for (int i = 0; i < MUTATIONS; i++) {
    size_t n = sizeof seed_header - 1; /* of the header, which lies at bytes + 8 */
    seed(bytes);
    for (int k = (int)(ac_test_random(&rnd) >> 40) % 4; k >= 0; k--) {
      size_t at = (size_t)(ac_test_random(&rnd) >> 33) % (n + 1);
      const char *w = words[(ac_test_random(&rnd) >> 33) % (sizeof words / sizeof *words)];
      size_t len = strlen(w), cut = (size_t)(ac_test_random(&rnd) >> 33) % 6;
      if (cut > n - at) cut = n - at;
      switch ((ac_test_random(&rnd) >> 33) % 6) {
        case 0: /* flip a bit */
          if (at < n) bytes[8 + at] ^= (unsigned char)(1 << (ac_test_random(&rnd) >> 61));
          continue;
        case 1: /* any byte */
          if (at < n) bytes[8 + at] = (unsigned char)(ac_test_random(&rnd) >> 50);
          continue;
        case 2: /* another digit, which keeps the grammar */
          while (at < n && (bytes[8 + at] < '0' || bytes[8 + at] > '9')) at++;
          if (at < n) bytes[8 + at] = (unsigned char)('0' + (ac_test_random(&rnd) >> 33) % 10);
          continue;
        case 3: len = 0; break;               /* remove some */
        case 4: cut = 0; break;               /* insert a word */
        default: cut = cut > len ? len : cut; /* replace by one */
      }
      if (n + len > 3 * SEED_BYTES) continue;
      memcpy(copy, bytes + 8 + at + cut, n - at - cut);
      memcpy(bytes + 8 + at, w, len);
      memcpy(bytes + 8 + at + len, copy, n - at - cut);
      n += len - cut;
    }
    memset(bytes + 8 + n, 0x3f, SEED_DATA);
    bool lie = (ac_test_random(&rnd) >> 33) % 64 == 0; /* about the length */
    for (int b = 0; b < 8; b++) bytes[b] = (unsigned char)((uint64_t)n >> (8 * b));
    if (lie) bytes[(ac_test_random(&rnd) >> 33) % 8] ^= (unsigned char)(1 << (ac_test_random(&rnd) >> 61));
    put_mem(bytes, 8 + n + SEED_DATA);
    accepted += try_mem(&e) == AC_OK;
    end = seconds();
    if (end - begin > 60) fail_msg("%d mutations took a minute: seed 0x5eed", i);
  }
  assert_int_equal(ac_tensor_live(), 0);
  print_message("%d mutations, %d still valid, %.1f s\n", MUTATIONS, accepted, end - begin);
  assert_in_range(accepted, MUTATIONS / 1000, MUTATIONS / 2); /* both ways were walked */
}

static size_t peak_kb(void) {
  FILE *f = fopen("/proc/self/status", "r");
  char line[200];
  size_t kb = 0;
  while (f != NULL && fgets(line, sizeof line, f) != NULL)
    if (sscanf(line, "VmPeak: %zu", &kb) == 1) break;
  if (f != NULL) fclose(f);
  return kb;
}

/* Promises of memory cost nothing, kept (a hole of a terabyte) or not. */
static void promises_allocate_nothing(void **state) {
  ac_err e;
  ac_safetensors *f;
  char header[200];
  size_t before = peak_kb();
  assert_true(before > 0);
  int n = snprintf(header, sizeof header,
                   "{\"a\":{\"dtype\":\"F64\",\"shape\":[137438953472],\"data_offsets\":[0,1099511627776]}}");
  unsigned char length[8] = {(unsigned char)n};
  put_mem(length, 8);
  assert_int_equal(pwrite(mem, header, (size_t)n, 8), n);
  assert_int_equal(try_mem(&e), AC_PARSE);
  assert_non_null(strstr(e.msg, "rule R11"));
  if (ftruncate(mem, 8 + n + ((off_t)1 << 40)) == 0) {
    assert_ok(ac_safetensors_open(mem_path, &f, &e), e);
    assert_int_equal(ac_safetensors_at(f, 0)->end, (uint64_t)1 << 40);
    ac_safetensors_close(f);
  }
  assert_int_equal(ac_tensor_live(), 0);
  assert_true(peak_kb() - before < 4096);
}

static double open_many(int n_tensors, size_t *header_bytes) {
  aci_strbuf b = {0};
  ac_err e;
  ac_safetensors *f;
  aci_strbuf_add(&b, "\0\0\0\0\0\0\0\0{", 9);
  for (int i = 0; i < n_tensors; i++)
    aci_strbuf_printf(&b, "%s\"layer.%d.w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                      i ? "," : "", (int)((i * 2654435761u) & 0x7fffffff), n_tensors - 1 - i,
                      n_tensors - i); /* backwards: the sort has work */
  aci_strbuf_puts(&b, "}");
  assert_false(b.failed);
  for (int k = 0; k < 8; k++) b.s[k] = (char)((b.len - 8) >> (8 * k));
  *header_bytes = b.len - 8;
  put_mem(b.s, b.len);
  assert_int_equal(ftruncate(mem, (off_t)(b.len + (size_t)n_tensors)), 0);
  aci_strbuf_fini(&b);
  double begin = seconds();
  assert_ok(ac_safetensors_open(mem_path, &f, &e), e);
  double end = seconds();
  assert_int_equal(ac_safetensors_count(f), n_tensors);
  assert_ptr_equal(ac_safetensors_find(f, ac_safetensors_at(f, n_tensors / 2)->name),
                   ac_safetensors_at(f, n_tensors / 2));
  ac_safetensors_close(f);
  return end - begin;
}

static void many_tensors_in_linear_time(void **state) {
  size_t small, large;
  double t1 = open_many(20000, &small), t2 = open_many(320000, &large);
  for (int i = 0; i < 4; i++) { /* the machine is shared: the best of several */
    double t = open_many(20000, &small);
    if (t < t1) t1 = t;
  }
  print_message("%.1f MB of header in %.0f ms, %.1f MB in %.0f ms\n", (double)small * 1e-6, t1 * 1e3,
                (double)large * 1e-6, t2 * 1e3);
  assert_true(t2 < t1 * 16 * 4 + 0.5); /* a quadratic step would take 256 times as long */
}

/* A fault behind 50,000 good tensors. */
static void refused_late_is_freed(void **state) {
  aci_strbuf b = {0};
  ac_err e;
  aci_strbuf_add(&b, "\0\0\0\0\0\0\0\0{", 9);
  for (int i = 0; i < 50000; i++)
    aci_strbuf_printf(&b, "\"t%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},", i);
  aci_strbuf_puts(&b, "\"t7\":{}}");
  for (int k = 0; k < 8; k++) b.s[k] = (char)((b.len - 8) >> (8 * k));
  put_mem(b.s, b.len);
  aci_strbuf_fini(&b);
  assert_int_equal(try_mem(&e), AC_PARSE);
  assert_non_null(strstr(e.msg, "rule R7"));
  assert_non_null(strstr(e.msg, "duplicate key \"t7\""));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_truncation),          cmocka_unit_test(mutations),
      cmocka_unit_test(promises_allocate_nothing), cmocka_unit_test(many_tensors_in_linear_time),
      cmocka_unit_test(refused_late_is_freed),
  };
  return cmocka_run_group_tests(tests, open_all, close_all);
}
