/* Snappy's blocks, by libsnappy. */
#include "base/library.h"
#include "file/compress/compress.h"

#ifdef ACCEL_HAVE_SNAPPY
#include <snappy-c.h>

ac_status aci_block_snappy(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e) {
  snappy_status (*length)(const char *, size_t, size_t *);
  snappy_status (*block)(const char *, size_t, char *, size_t *);
  const aci_symbol list[] = {{"snappy_uncompressed_length", &length},
                             {"snappy_uncompress", &block}};
  AC_TRY(aci_library_open("snappy", list, 2, e));
  size_t n;
  if (length(in, n_in, &n) != SNAPPY_OK) return AC_FAIL(e, PARSE, "the Snappy block is damaged");
  if (n != n_out)
    return AC_FAIL(e, PARSE, "the Snappy block holds %zu bytes, expected %zu", n, n_out);
  return block(in, n_in, out, &n) == SNAPPY_OK && n == n_out
             ? AC_OK
             : AC_FAIL(e, PARSE, "the Snappy block is damaged");
}
#else
ac_status aci_block_snappy(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e) {
  return aci_library_absent("snappy", e);
}
#endif
