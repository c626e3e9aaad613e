/* Manifests: what is written is read back; every rule that one may break is refused and named, by texts whose checksum is right; names of
 * files. Bits that turn are tested in test_damage.c, anything at all in fuzz/fuzz_manifest.c. */
#include "host/ckpt/ckpt_case.h"

#include "base/crc32c.h"

#define FILES "\"files\": [{\"name\": \"a/b.bin\", \"bytes\": 3, \"crc32c\": \"0000000a\"}]"
#define HEAD(version) "{\"format\": \"accel.checkpoint\", \"version\": \"" version "\", \"id\": \"0123456789abcdef\", \"parts\": 1, "
#define STATE ", \"state\": {\"step\": 1}, "

/* The body with its checksum behind it. */
static char *sealed(const char *body, size_t *n) {
  const size_t k = strlen(body) + 64;
  char *text = malloc(k);
  snprintf(text, k, "%s\"crc32c\": \"", body);
  const uint32_t crc = aci_crc32c(0, text, strlen(text));
  snprintf(text + strlen(text), 32, "%08x\"\n}\n", (unsigned)crc);
  *n = strlen(text);
  return text;
}

static ac_status parse(const char *body, aci_manifest *m, ac_err *e) {
  size_t n;
  char *text = sealed(body, &n);
  *m = (aci_manifest){.part = -1};
  return aci_manifest_parse_take(m, "dir/MANIFEST.json", text, n, -1, e);
}

static void reads_back(void **state) {
  aci_manifest m = {.part = -1, .parts = 3, .id = "0123456789abcdef", .run = "a run", .sequence = 1780000000123456}, back = {.part = -1};
  aci_strbuf text = {0};
  aci_json_doc *doc;
  ac_err e;
  const char *json = "{\"step\": 7, \"x\": [1.5, null, \"\\u00e9\"]}";
  assert_ok(aci_json_parse(json, strlen(json), NULL, &doc, &e), e);
  assert_ok(aci_manifest_add(&m, "model.safetensors", (uint64_t)5 << 40, 0xfedcba98u, &e), e);
  assert_ok(aci_manifest_add(&m, "a", 0, 0, &e), e);
  assert_ok(aci_manifest_sort(&m, "x", &e), e);
  assert_ok(aci_manifest_text(&m, aci_json_root(doc), &text, &e), e);
  size_t n;
  char *s = aci_strbuf_take(&text, &n);
  assert_ok(aci_manifest_parse_take(&back, "x", s, n, -1, &e), e);
  assert_int_equal(back.n, 2);
  assert_string_equal(back.file[0].name, "a");
  assert_string_equal(back.file[1].name, "model.safetensors");
  assert_true(back.file[1].bytes == (uint64_t)5 << 40 && back.file[1].crc32c == 0xfedcba98u && back.parts == 3);
  assert_string_equal(back.id, m.id);
  assert_string_equal(back.run, "a run");
  assert_true(back.sequence == 1780000000123456);
  assert_int_equal(aci_json_get(back.doc, back.state, "step")->u.i, 7);
  aci_json_free(doc);
  aci_manifest_fini(&m);
  aci_manifest_fini(&back);
}

static void refuses(void **state) {
  static const struct {
    const char *body;
    ac_status st;
    const char *part;
  } rows[] = {
      {HEAD("1.0") FILES STATE, AC_OK, ""},
      {HEAD("1.3") FILES STATE "\"later\": [1], ", AC_OK, ""},
      {HEAD("1.0") FILES STATE "\"later\": [1], ", AC_PARSE, "member that the format does not know"},
      {HEAD("1.1") FILES STATE "\"run\": \"r\", \"sequence\": 3, \"continues\": [\"a\"], ", AC_OK, ""},
      {HEAD("1.1") FILES STATE "\"run\": 1, ", AC_PARSE, "names no run"},
      {HEAD("1.1") FILES STATE "\"run\": \"a\\u0000b\", ", AC_PARSE, "names no run"},
      {HEAD("1.1") FILES STATE "\"sequence\": -1, ", AC_PARSE, "sequence is not an integer above 0"},
      {HEAD("1.1") FILES STATE "\"sequence\": 9000000000000000000, ", AC_PARSE, "sequence is not an integer above 0"},
      {HEAD("1.1") FILES STATE "\"continues\": {}, ", AC_PARSE, "is not a list"},
      {HEAD("1.1") FILES STATE "\"continues\": [1], ", AC_PARSE, "something other than names"},
      {HEAD("2.0") FILES STATE, AC_UNSUPPORTED, "format version 2.0; this is accel"},
      {HEAD("0.9") FILES STATE, AC_UNSUPPORTED, "use an earlier release"},
      {HEAD("x") FILES STATE, AC_PARSE, "no version"},
      {HEAD("1.0") STATE + 2, AC_PARSE, "damaged"},
      {"{\"format\": \"accel.checkpoint.part\", ", AC_PARSE, "not the manifest of a checkpoint"},
      {"{\"format\": \"accel.checkpoint\", \"version\": \"1.0\", ", AC_PARSE, "no id"},
      {HEAD("1.0") "\"state\": {}, ", AC_PARSE, "no list of files"},
      {HEAD("1.0") "\"files\": [], ", AC_PARSE, "no state"},
      {HEAD("1.0") "\"files\": [], \"state\": [], ", AC_PARSE, "no state"},
      {HEAD("1.0") "\"files\": [1], \"state\": {}, ", AC_PARSE, "not {name, bytes, crc32c}"},
      {HEAD("1.0") "\"files\": [{\"name\": \"a\", \"bytes\": 1}], \"state\": {}, ", AC_PARSE, "not {name, bytes, crc32c}"},
      {HEAD("1.0") "\"files\": [{\"name\": \"a\", \"bytes\": -1, \"crc32c\": \"00000000\"}], \"state\": {}, ", AC_PARSE, "size or checksum"},
      {HEAD("1.0") "\"files\": [{\"name\": \"a\", \"bytes\": 1.0, \"crc32c\": \"00000000\"}], \"state\": {}, ", AC_PARSE, "size or checksum"},
      {HEAD("1.0") "\"files\": [{\"name\": \"a\", \"bytes\": 1, \"crc32c\": \"0000000G\"}], \"state\": {}, ", AC_PARSE, "size or checksum"},
      {HEAD("1.0") "\"files\": [{\"name\": \"a\", \"bytes\": 9000000000000000000, \"crc32c\": \"00000000\"}], \"state\": {}, ", AC_PARSE,
       "size or checksum"},
      {HEAD("1.0") "\"files\": [{\"name\": \"../a\", \"bytes\": 1, \"crc32c\": \"00000000\"}], \"state\": {}, ", AC_PARSE, "'.' or '..'"},
      {HEAD("1.0") "\"files\": [{\"name\": \"/a\", \"bytes\": 1, \"crc32c\": \"00000000\"}], \"state\": {}, ", AC_PARSE, "not relative"},
      {HEAD("1.0") "\"files\": [{\"name\": \"a\\u0000b\", \"bytes\": 1, \"crc32c\": \"00000000\"}], \"state\": {}, ", AC_PARSE,
       "control character"},
      {HEAD("1.0") "\"files\": [{\"name\": \"a\", \"bytes\": 1, \"crc32c\": \"00000000\"}, "
                   "{\"name\": \"a\", \"bytes\": 1, \"crc32c\": \"00000000\"}], \"state\": {}, ",
       AC_PARSE, "two of its files have one name"},
      {HEAD("1.0") "\"id\": \"0123456789abcdef\", ", AC_PARSE, "damaged"}, /* a repeated key */
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ac_err e = {.msg = ""};
    aci_manifest m;
    const ac_status st = parse(rows[i].body, &m, &e);
    if (st != rows[i].st || strstr(e.msg, rows[i].part) == NULL) fail_msg("row %zu: %s: %s", i, ac_status_name(st), e.msg);
    if (st != AC_OK) ac_test_contains(e.msg, "dir/MANIFEST.json: ", __FILE__, __LINE__);
    aci_manifest_fini(&m);
  }
}

/* Manifests of 1.0: the second in which they were written. */
static void age_of_old_ones(void **state) {
  static const struct {
    const char *member;
    int64_t sequence;
  } rows[] = {{"", 0},
              {"\"created\": \"1970-01-02T00:00:01Z\", ", (int64_t)86401 * 1000000},
              {"\"created\": \"2026-11-29T10:44:09Z\", ", (int64_t)1795949049 * 1000000},
              {"\"created\": \"2026-11-29\", ", 0},
              {"\"created\": 5, ", 0},
              {"\"created\": \"2026-11-29T10:44:09Z\", \"sequence\": 7, ", 7}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char body[512];
    aci_manifest m;
    ac_err e;
    snprintf(body, sizeof body, HEAD("1.1") FILES STATE "%s", rows[i].member);
    assert_ok(parse(body, &m, &e), e);
    if (m.sequence != rows[i].sequence) fail_msg("row %zu: %lld", i, (long long)m.sequence);
    assert_string_equal(m.run, "");
    aci_manifest_fini(&m);
  }
}

/* A later format may have another checksum: its number is told all the same. */
static void later_version_first(void **state) {
  const char *text = "{\"format\": \"accel.checkpoint\", \"version\": \"3.1\", \"checksum\": \"sha\"}";
  aci_manifest m = {.part = -1};
  ac_err e;
  assert_fails(aci_manifest_parse_take(&m, "x", strdup(text), strlen(text), -1, &e), UNSUPPORTED, "format version 3.1", e);
  aci_manifest_fini(&m);
}

static void names(void **state) {
  static const char *const good[] = {"a", "a/b", "model/shard-00001.safetensors", ".hidden", "a..b", "...", "x/part-1.json"};
  static const char *const bad[] = {"", "/", "/a", "a/", "a//b", ".", "..", "a/.", "a/../b", "../a", "a\nb", "a\\b", "MANIFEST.json", "part-0.json",
                                    "owner-3.lock"};
  char longer[1100];
  for (size_t i = 0; i < sizeof good / sizeof *good; i++)
    if (aci_ckpt_name_fault(good[i], strlen(good[i])) != NULL) fail_msg("%s is refused", good[i]);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (aci_ckpt_name_fault(bad[i], strlen(bad[i])) == NULL) fail_msg("'%s' is taken", bad[i]);
  memset(longer, 'a', sizeof longer);
  assert_non_null(aci_ckpt_name_fault(longer, 256));
  assert_non_null(aci_ckpt_name_fault(longer, sizeof longer));
  assert_null(aci_ckpt_name_fault(longer, 255));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reads_back), cmocka_unit_test(refuses), cmocka_unit_test(later_version_first),
                                     cmocka_unit_test(age_of_old_ones),
                                     cmocka_unit_test(names)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
