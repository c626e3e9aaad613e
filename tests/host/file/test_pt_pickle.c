/* Pickles of torch.save: every kind of value that is read, and of every rule the opcode that breaks it,
 * with its byte. Limits are kept in bounded memory and time. */
#include "host/file/pt_file.h"

#include <time.h>

#include "file/pt.h"

enum { AT = 40 }; /* where the pickle begins in the archive */

static void put_pickle(pt_bytes *o, const void *p, size_t n) {
  pt_archive a = {0};
  pt_entry x[] = {PT_ENTRY("a/data.pkl", p, n), PT_ENTRY("a/data/0", pt_four, sizeof pt_four)};
  pt_put(o, &a, x, 2);
  assert_int_equal(x[0].data_at, AT);
}

static ac_pt *open_pickle(const void *p, size_t n) {
  pt_bytes o;
  ac_err e;
  ac_pt *f;
  put_pickle(&o, p, n);
  if (ac_pt_open(pt_mem(o.b, o.n), &f, &e) != AC_OK) fail_msg("refused: %s", e.msg);
  return f;
}
#define OPEN(literal) open_pickle(literal, sizeof literal - 1)

/* Item i of the root, which is a list or tuple. */
static const ac_pt_value *item(const ac_pt *f, uint32_t i) {
  const ac_pt_value *root = ac_pt_at(f, ac_pt_root(f));
  assert_true(i < root->n);
  return ac_pt_at(f, root->item[i]);
}

static void plain_values(void **state) {
  ac_pt *f = OPEN("\x80\2(N\x88\x89K\xffM\xff\xffJ\xfe\xff\xff\xff\x8a\0\x8a\1\x80\x8a\x08\0\0\0\0\0\0\0\x80"
                  "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0\x8b\2\0\0\0\0\1G?\xf8\0\0\0\0\0\0"
                  "X\3\0\0\0a\0bU\2\xff\xfeU\1sC\2\xff\0)]}t.");
  const int64_t ints[] = {255, 65535, -2, 0, -128, INT64_MIN};
  assert_int_equal(item(f, 0)->kind, AC_PT_NONE);
  assert_true(item(f, 1)->kind == AC_PT_BOOL && item(f, 1)->i == 1 && item(f, 2)->i == 0);
  for (uint32_t i = 0; i < 6; i++) {
    assert_int_equal(item(f, 3 + i)->kind, AC_PT_INT);
    assert_int_equal(item(f, 3 + i)->i, ints[i]);
  }
  assert_int_equal(item(f, 9)->kind, AC_PT_WIDE_INT);
  char *digits = ac_pt_decimal(item(f, 9));
  assert_string_equal(digits, "18446744073709551615");
  free(digits);
  assert_true(item(f, 10)->kind == AC_PT_INT && item(f, 10)->i == 256);
  assert_true(item(f, 11)->kind == AC_PT_FLOAT && item(f, 11)->f == 1.5);
  assert_true(item(f, 12)->kind == AC_PT_STR && item(f, 12)->n == 3 &&
              memcmp(item(f, 12)->s, "a\0b", 3) == 0);
  assert_true(item(f, 13)->kind == AC_PT_BYTES && item(f, 13)->n == 2);
  assert_true(item(f, 14)->kind == AC_PT_STR && item(f, 15)->kind == AC_PT_BYTES);
  assert_true(item(f, 16)->kind == AC_PT_TUPLE && item(f, 17)->kind == AC_PT_LIST &&
              item(f, 18)->kind == AC_PT_DICT);
  ac_pt_close(f);
}

static void an_empty_stack(void **state) { /* its list is there before anything was pushed */
  ac_pt *f = OPEN("\x80\2(t.");
  assert_int_equal(ac_pt_at(f, ac_pt_root(f))->kind, AC_PT_TUPLE);
  ac_pt_close(f);
}

static void decimals(void **state) {
  static const struct {
    const char *bytes;
    uint32_t n;
    const char *digits;
  } of[] = {
      {"\0\0\0\0\0\0\0\x80\0", 9, "9223372036854775808"},
      {"\xff\xff\xff\xff\xff\xff\xff\x7f\xff", 9, "-9223372036854775809"},
      {"\0\0\0\0\0\0\0\0\1", 9, "18446744073709551616"},
      {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x80", 17, "-43556142965880123323311949751266331066368"},
      {"\0\0\x64\xa7\xb3\xb6\xe0\x0d\0", 9, "1000000000000000000"},
  };
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    char *digits = ac_pt_decimal(&(ac_pt_value){.kind = AC_PT_WIDE_INT, .s = of[i].bytes, .n = of[i].n});
    assert_string_equal(digits, of[i].digits);
    free(digits);
  }
}

static void names_that_make_values(void **state) {
  ac_pt *f = OPEN("\x80\2(ccollections\nOrderedDict\n)R}X\1\0\0\0kK\1sb"
                  "ccollections\nOrderedDict\n]]K\1aK\2aa\x85R"
                  "ccollections\nCounter\n}K\1K\2s\x85R"
                  "c__builtin__\nset\n]K\1a\x85R"
                  "c_codecs\nencode\nX\3\0\0\0a\xc3\xbfX\6\0\0\0latin1\x86R"
                  "cbuiltins\nbytearray\nC\1x\x85R"
                  "cbuiltins\ncomplex\nG?\xf8\0\0\0\0\0\0G?\xf8\0\0\0\0\0\0\x86R"
                  "ctorch\nSize\nK\2K\3\x86\x85R"
                  "ctorch\ndevice\nX\4\0\0\0cudaK\1\x86R"
                  "ctorch\nbfloat16\n"
                  "cbuiltins\nbytearray\n)R"
                  "t.");
  assert_true(item(f, 0)->kind == AC_PT_DICT && item(f, 0)->n == 0); /* its attributes are left out */
  assert_true(item(f, 1)->kind == AC_PT_DICT && item(f, 1)->n == 2 && item(f, 2)->kind == AC_PT_DICT);
  assert_true(item(f, 3)->kind == AC_PT_SET && item(f, 3)->n == 1);
  assert_true(item(f, 4)->kind == AC_PT_BYTES && item(f, 4)->n == 2 &&
              memcmp(item(f, 4)->s, "a\xff", 2) == 0);
  assert_true(item(f, 5)->kind == AC_PT_BYTES && item(f, 5)->n == 1);
  assert_true(item(f, 6)->kind == AC_PT_COMPLEX && ac_pt_at(f, item(f, 6)->item[1])->f == 1.5);
  assert_true(item(f, 7)->kind == AC_PT_TUPLE && item(f, 7)->n == 2);
  assert_true(item(f, 8)->kind == AC_PT_STR && item(f, 8)->n == 6 && memcmp(item(f, 8)->s, "cuda:1", 6) == 0);
  assert_true(item(f, 9)->kind == AC_PT_DTYPE && item(f, 9)->n == 8 &&
              memcmp(item(f, 9)->s, "bfloat16", 8) == 0);
  assert_true(item(f, 10)->kind == AC_PT_BYTES && item(f, 10)->n == 0);
  ac_pt_close(f);
}

static void tensors_and_parameters(void **state) {
  ac_pt *f = OPEN("\x80\2(ctorch._utils\n_rebuild_parameter\nctorch._utils\n_rebuild_tensor_v2\n(" PT_PID
                  "K\1K\2\x85K\2\x85\x88}tR\x89}\x87R"
                  "ctorch._utils\n_rebuild_tensor_v3\n(" PT_PID "K\0))\x89}ctorch\nint32\ntRt.");
  const ac_pt_tensor *p = ac_pt_tensor_at(f, item(f, 0)->i), *t = ac_pt_tensor_at(f, item(f, 1)->i);
  assert_true(p->parameter && !p->requires_grad && p->offset == 1 && p->shape[0] == 2 && p->stride[0] == 2);
  assert_true(!t->parameter && t->ndim == 0 && t->dtype == AC_I32 && t->storage == p->storage);
  assert_int_equal(ac_pt_n_storages(f), 1);
  ac_pt_close(f);
}

#define NP_DTYPE(name, order) "cnumpy\ndtype\nX\2\0\0\0" name "\x85R(K\3X\1\0\0\0" order "NNNtb"
#define NP_ARRAY "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"
static void old_tensors_and_collections(void **state) {
  ac_pt *f = OPEN("\x80\2(ctorch._utils\n_rebuild_tensor\n(" PT_PID "K\1K\2\x85K\2\x85tR"
                  "ctorch._utils\n_rebuild_tensor_v2\n(" PT_PID "K\0K\4\x85K\1\x85\x88NtR"
                  "ccollections\ndefaultdict\nc__builtin__\nlong\n\x85RK\1K\2s"
                  "ccollections\ndeque\n)K\5\x86R(K\1K\2e"
                  "cargparse\nNamespace\n)\x81}X\2\0\0\0lrK\1sb"
                  "ctorch.serialization\n_get_layout\nX\7\0\0\0strided\x85R"
                  "ctorch._utils\n_rebuild_parameter_with_state\n(ctorch._utils\n_rebuild_tensor\n(" PT_PID
                  "K\0K\4\x85K\1\x85tR\x88}}tRt.");
  const ac_pt_tensor *t = ac_pt_tensor_at(f, item(f, 0)->i), *u = ac_pt_tensor_at(f, item(f, 1)->i);
  assert_true(t->offset == 1 && t->shape[0] == 2 && t->stride[0] == 2 && !t->requires_grad);
  assert_true(u->shape[0] == 4 && u->requires_grad);
  assert_true(item(f, 2)->kind == AC_PT_DICT && item(f, 2)->n == 2);
  assert_true(item(f, 3)->kind == AC_PT_LIST && item(f, 3)->n == 2);
  assert_true(item(f, 4)->kind == AC_PT_OBJECT && item(f, 4)->n == 2);
  const ac_pt_value *name = ac_pt_at(f, item(f, 4)->item[0]), *fields = ac_pt_at(f, item(f, 4)->item[1]);
  assert_true(name->n == 9 && memcmp(name->s, "Namespace", 9) == 0 && fields->kind == AC_PT_DICT);
  assert_true(item(f, 5)->kind == AC_PT_STR && item(f, 5)->n == 7);
  assert_true(ac_pt_tensor_at(f, item(f, 6)->i)->parameter);
  ac_pt_close(f);
}

static void numpy_values(void **state) {
  ac_pt *f = OPEN("\x80\3(" NP_ARRAY "C\1b\x87R(K\1K\2K\1\x86" NP_DTYPE("i2", ">") "\x89"
                  "C\4\0\1\xff\xfetb"
                  "cnumpy._core.multiarray\nscalar\n" NP_DTYPE("i2", ">") "C\2\xff\xfe\x86R"
                  "cnumpy.core.multiarray\nscalar\n" NP_DTYPE("u8", "<")
                  "C\x08\xff\xff\xff\xff\xff\xff\xff\xff\x86R"
                  "cnumpy.core.multiarray\nscalar\n" NP_DTYPE("f2", "<") "C\2\0\x3e\x86R"
                  "cnumpy.core.multiarray\nscalar\n" NP_DTYPE("c8", "<") "C\x08\0\0\x80\x3f\0\0\0\x40\x86R"
                  NP_DTYPE("f4", "<")
                  "cnumpy._core.numeric\n_frombuffer\n(C\x18"
                  "\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\0\0\0\6\0\0\0" NP_DTYPE("i4", "<")
                  "K\2K\3\x86X\1\0\0\0" "FtR"
                  "t.");
  const ac_pt_tensor *t = ac_pt_tensor_at(f, item(f, 0)->i), *u = ac_pt_tensor_at(f, item(f, 6)->i);
  assert_true(t->dtype == AC_I16 && t->ndim == 2 && t->shape[0] == 2 && t->stride[0] == 1);
  assert_true(item(f, 1)->kind == AC_PT_INT && item(f, 1)->i == -2);
  assert_true(item(f, 2)->kind == AC_PT_WIDE_INT);
  char *digits = ac_pt_decimal(item(f, 2));
  assert_string_equal(digits, "18446744073709551615");
  free(digits);
  assert_true(item(f, 3)->kind == AC_PT_FLOAT && item(f, 3)->f == 1.5);
  assert_true(item(f, 4)->kind == AC_PT_COMPLEX && ac_pt_at(f, item(f, 4)->item[1])->f == 2);
  assert_true(item(f, 5)->kind == AC_PT_DTYPE && memcmp(item(f, 5)->s, "float32", 7) == 0);
  assert_true(u->dtype == AC_I32 && u->stride[0] == 1 && u->stride[1] == 2);
  ac_pt_close(f);
}

#define CASE(literal, rule, at, says) \
  { literal, sizeof literal - 1, rule, at, says }
#define TENSOR(args) "\x80\2ctorch._utils\n_rebuild_tensor_v2\n(" PT_PID args
enum { ARGS = sizeof "\x80\2ctorch._utils\n_rebuild_tensor_v2\n(" PT_PID - 1 };
static const struct {
  const char *p;
  size_t n;
  const char *rule;
  size_t at;
  const char *says;
} bad[] = {
    CASE("", "truncated", 0, "ends without STOP"),
    CASE("\x80", "truncated", 0, "an argument of 1 bytes"),
    CASE("\x80\6.", "opcode", 0, "protocol 6"),
    CASE("\x80\2N", "truncated", 3, "ends without STOP"),
    CASE("\x80\2N.N", "size", 4, "1 bytes after STOP"),
    CASE("\x80\2.", "stack", 2, "takes a value, but there is none"),
    CASE("\x80\2NN.", "stack", 4, "STOP with more than one value"),
    CASE("\x80\2(N.", "stack", 4, "STOP with more than one value"),
    CASE("\x80\4\x95\7\0\0\0\0\0\0\0N.", "truncated", 2, "a frame of 7 bytes, 2 are left"),
    CASE("\x80\2i", "opcode", 2, "opcode 0x69"),
    CASE("\x80\2o", "opcode", 2, "opcode 0x6f"),
    CASE("\x80\2P1\n.", "opcode", 2, "opcode 0x50"),
    CASE("\x80\2\x82\1.", "opcode", 2, "opcode 0x82"),
    CASE("\x80\2"
         "0.",
         "opcode", 2, "opcode 0x30"),
    CASE("\x80\2X\xff\xff\xff\x7f"
         "abc.",
         "truncated", 2, "a string of 2147483647 bytes, 4 are left"),
    CASE("\x80\2\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "truncated", 2,
         "a string of 18446744073709551615 bytes"),
    CASE("\x80\2\x8b\xff\xff\xff\xff.", "truncated", 2, "an integer of 4294967295 bytes"),
    CASE("\x80\2X\2\0\0\0\xff\xfe.", "utf8", 2, "not UTF-8"),
    CASE("\x80\2X\3\0\0\0\xed\xa0\x80.", "utf8", 2, "not UTF-8"),
    CASE("\x80\2h\7.", "memo", 2, "slot 7 was never put"),
    CASE("\x80\2Nq\1h\0.", "memo", 5, "slot 0 was never put"),
    CASE("\x80\2]r\xff\xff\xff\xff.", "size", 3, "memo slot 4294967295"),
    CASE("\x80\2q\0.", "stack", 2, "takes a value"),
    CASE("\x80\2K\1t.", "stack", 4, "without one"),
    CASE("\x80\2K\1\x86.", "stack", 4, "a tuple of 2 values"),
    CASE("\x80\2(K\1a.", "stack", 5, "APPEND with too few"),
    CASE("\x80\2N(K\1e.", "arguments", 6, "APPENDS into None"),
    CASE("\x80\2)K\1a.", "arguments", 5, "APPEND into a tuple"),
    CASE("\x80\2]K\1K\1s.", "arguments", 7, "SETITEM into a list"),
    CASE("\x80\2}(K\1u.", "stack", 6, "a key without its value"),
    CASE("\x80\2}]K\1s.", "arguments", 6, "a list as the key of a dict"),
    CASE("\x80\2}G\x7f\xf8\0\0\0\0\0\0Ns.", "arguments", 13, "nan as the key"),
    CASE("\x80\2cos\nsystem\n.", "unknown_global", 2, "os.system, which is not one of the names"),
    CASE("\x80\2ctorch\nEvilStorage\n.", "unknown_global", 2, "torch.EvilStorage"),
    CASE("\x80\2ctorch._utils\n_rebuild_sparse_tensor\n.", "unknown_global", 2, "_rebuild_sparse_tensor"),
    CASE("\x80\2ctorch.storage\nFloatStorage\n.", "unknown_global", 2, "torch.storage.FloatStorage"),
    CASE("\x80\2ctorch\nuntyped\n.", "unknown_global", 2, "torch.untyped"),
    CASE("\x80\2ctorch.distributed.checkpoint.metadata\nMetadata\n.", "unknown_global", 2, "Metadata"),
    CASE("\x80\4\x8c\5torch\x8c\x0f_utils.os.sytem\x93.", "unknown_global", 26, "torch._utils.os.sytem"),
    CASE("\x80\4NN\x93.", "arguments", 4, "STACK_GLOBAL of no strings"),
    CASE("\x80\2cos", "truncated", 2, "a name without its end"),
    CASE("\x80\2ctorch\nSize\n.", "arguments", 2, "a name instead of a value"),
    CASE("\x80\2ctorch\nSize\n)\x81.", "opcode", 15, "NEWOBJ"),
    CASE("\x80\2N)R.", "arguments", 4, "REDUCE of None"),
    CASE("\x80\2ctorch\nSize\nNR.", "arguments", 15, "REDUCE with None"),
    CASE("\x80\2ctorch\nSize\nN\x85R.", "arguments", 16, "of torch.Size"),
    CASE("\x80\2ctorch\ndevice\n)R.", "arguments", 17, "of torch.device"),
    CASE("\x80\2cbuiltins\nset\nN\x85R.", "arguments", 18, "of set"),
    CASE("\x80\2cbuiltins\ncomplex\nK\1K\2\x86R.", "arguments", 25, "of complex"),
    CASE("\x80\2c_codecs\nencode\nX\1\0\0\0aX\5\0\0\0utf-8\x86R.", "arguments", 35, "of _codecs.encode"),
    CASE("\x80\2c_codecs\nencode\nX\2\0\0\0\xc4\x80X\6\0\0\0latin1\x86R.", "arguments", 37, "above U+00FF"),
    CASE("\x80\2ctorch\nFloatStorage\n)R.", "arguments", 23, "a storage made of values"),
    CASE("\x80\2}}b.", "build", 4, "BUILD of a dict"),
    CASE("\x80\2ctorch\nSize\n}b.", "build", 15, "BUILD of a name"),
    CASE("\x80\2NQ.", "arguments", 3, "a persistent id that is not a storage"),
    CASE("\x80\2" PT_PID ".", "arguments", 0, "a storage instead of a value"),
    CASE("\x80\2(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
         "0X\3\0\0\0cpuJ\xff\xff\xff\xfftQ.",
         "size", 0, "of -1 elements"),
    CASE("\x80\2(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
         "0X\3\0\0\0cpu\x8a\x08\0\0\0\0\0\0\0\x40tQ.",
         "size", 0, "of 4611686018427387904 elements"),
    CASE("\x80\2(X\7\0\0\0storagectorch\nFloatStorage\nX\2\0\0\0"
         "..X\3\0\0\0cpuK\4tQ.",
         "missing", 0, "storage '..' has no entry"),
    CASE(TENSOR("K\1K\4\x85K\1\x85\x89}tR."), "bounds", ARGS + 11,
         "reaches element 4 of storage '0', which has 4"),
    CASE(TENSOR("J\xff\xff\xff\xffK\1\x85K\1\x85\x89}tR."), "bounds", ARGS + 14, "offset is negative"),
    CASE(TENSOR("K\0J\xff\xff\xff\xff\x85K\1\x85\x89}tR."), "bounds", ARGS + 14, "size holds -1"),
    CASE(TENSOR("K\0K\2\x85J\xff\xff\xff\xff\x85\x89}tR."), "bounds", ARGS + 14, "stride holds -1"),
    CASE(TENSOR("K\0K\2K\2\x86K\1\x85\x89}tR."), "bounds", ARGS + 13, "2 sizes and 1 strides"),
    CASE(TENSOR("K\0\x8a\x08\0\0\0\0\0\0\0\x40K\4\x86)\x89}tR."), "bounds", ARGS + 19,
         "2 sizes and 0 strides"),
    CASE(TENSOR("K\0\x8a\5\0\0\0\0\1\x85K\0\x85\x89}tR."), "size", ARGS + 16,
         "a tensor of 4294967296 elements"),
    CASE(TENSOR("K\0K\4\x85K\1\x85N}tR."), "arguments", ARGS + 11, "of _rebuild_tensor_v2"),
    CASE(TENSOR("K\0K\4\x85K\1\x85\x89K\1tR."), "arguments", ARGS + 12, "of _rebuild_tensor_v2"),
    CASE(TENSOR("K\0N\x85K\1\x85\x89}tR."), "arguments", ARGS + 10, "size holds None"),
    CASE(TENSOR("K\0K\4\x85K\1\x85\x89}}X\4\0\0\0conj\x88stR."), "arguments", ARGS + 23, "with attributes"),
    CASE(TENSOR("tR."), "arguments", ARGS + 1, "_rebuild_tensor_v2 with 1 arguments"),
    CASE("\x80\2ctorch._utils\n_rebuild_parameter\nN\x88}\x87R.", "arguments", 39, "of _rebuild_parameter"),
    CASE("\x80\2cnumpy\ndtype\nX\2\0\0\0ab\x85R.", "arguments", 23, "a NumPy dtype instead of a value"),
    CASE("\x80\3" NP_ARRAY "C\1b\x87R.", "arguments", 60, "an unfinished array instead of a value"),
    CASE("\x80\3" NP_ARRAY "C\1b\x87R(K\1K\2\x85" NP_DTYPE("i4", "<") "\x89" "C\4abcdtb.", "size", 111,
         "an array of 2 elements of 4 bytes, which has 4"),
    CASE("\x80\3" NP_ARRAY "C\1b\x87R(K\1K\2\x85" NP_DTYPE("|O", "<") "\x89" "]tb.", "arguments", 106,
         "NumPy's dtype '|O', which has no tensors"),
    CASE("\x80\2cbuiltins\ngetattr\nctorch\nSize\nX\1\0\0\0a\x86R.", "unknown_global", 39,
         "getattr of anything but an enumeration"),
    CASE("\x80\2cbuiltins\nlist\n)R.", "arguments", 18, "a call that makes no value of data"),
    CASE("\x80\2ccollections\ndefaultdict\nN\x85R)\x85R.", "arguments", 32, "REDUCE of a dict"),
    CASE("\x80\2]q\0h\0a.", "cycle", 2, "a list contains itself"),
    CASE("\x80\2}q\0K\1h\0s.", "cycle", 2, "a dict contains itself"),
};

static void every_rule(void **state) {
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    pt_bytes o;
    char what[64];
    put_pickle(&o, bad[i].p, bad[i].n);
    snprintf(what, sizeof what, "case %zu (%s)", i, bad[i].says);
    if (bad[i].at != 0 || strcmp(bad[i].rule, "truncated") == 0 || strcmp(bad[i].rule, "opcode") == 0) {
      pt_refused(&o, bad[i].rule, AT + bad[i].at, bad[i].says, what);
      continue;
    }
    size_t q = bad[i].n; /* of storages: at the opcode Q */
    while (bad[i].p[q - 1] != 'Q') q--;
    pt_refused(&o, bad[i].rule, AT + q - 1, bad[i].says, what);
  }
}

/* ---- large ones ---- */

static ac_status open_large(unsigned char *p, size_t n, double seconds, ac_err *e) {
  static const char magic[] = "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3.\x80\2}.";
  const size_t head = sizeof magic - 1;
  unsigned char *all = malloc(head + n + 5);
  memcpy(all, magic, head);
  memcpy(all + head, p, n);
  memcpy(all + head + n, "\x80\2].", 4);
  const clock_t begin = clock();
  ac_pt *f;
  const ac_status st = ac_pt_open(pt_mem(all, head + n + 4), &f, e);
  assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < seconds);
  ac_pt_close(f);
  free(all);
  return st;
}

static void limits(void **state) {
  enum { N = 3000000 };
  ac_err e;
  unsigned char *p = malloc(N + 100);
  const struct {
    const char *head;
    int unit; /* repeated */
    const char *tail, *rule, *says;
  } of[] = {
      {"", ']', ".", "rule stack", "more than 1048576 values on the stack"},
      {"", '(', "N.", "rule depth", "more than 256 open marks"},
      {")", 0x85, ".", "rule depth", "more than 256 values inside each other"},
      {"N", 0x94, ".", NULL, NULL}, /* 3,000,000 memo slots are allowed */
  };
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    size_t n = strlen(of[i].head);
    memcpy(p, of[i].head, n);
    memset(p + n, of[i].unit, N);
    n += N;
    memcpy(p + n, of[i].tail, strlen(of[i].tail));
    n += strlen(of[i].tail);
    const ac_status st = open_large(p, n, 10, &e);
    if (of[i].rule == NULL) assert_int_equal(st, AC_OK);
    else if (st != AC_PARSE || strstr(e.msg, of[i].rule) == NULL || strstr(e.msg, of[i].says) == NULL)
      fail_msg("case %zu: %s says %s", i, ac_status_name(st), st == AC_OK ? "" : e.msg);
  }
  free(p);
}

/* One list of 1000 items, made a set 100,000 times: copies are limited by the size of the pickle. */
static void copies_are_limited(void **state) {
  enum { TIMES = 100000 };
  ac_err e;
  unsigned char *p = malloc(4096 + TIMES * 8);
  size_t n = 0;
  p[n++] = ']';
  p[n++] = '(';
  memset(p + n, 'N', 1000);
  n += 1000;
  memcpy(p + n, "eq\1c__builtin__\nset\nq\2](", 24);
  n += 24;
  for (int i = 0; i < TIMES; i++, n += 6) memcpy(p + n, "h\2h\1\x85R", 6);
  memcpy(p + n, "e\x86.", 3);
  assert_int_equal(open_large(p, n + 3, 5, &e), AC_PARSE);
  assert_non_null(strstr(e.msg, "rule size"));
  assert_non_null(strstr(e.msg, "copied again and again"));
  free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain_values),
      cmocka_unit_test(an_empty_stack),
      cmocka_unit_test(decimals),
      cmocka_unit_test(names_that_make_values),
      cmocka_unit_test(tensors_and_parameters), cmocka_unit_test(old_tensors_and_collections),
      cmocka_unit_test(numpy_values),
      cmocka_unit_test(every_rule),
      cmocka_unit_test(limits),
      cmocka_unit_test(copies_are_limited),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
