/* Compressed blocks inside other formats, each of a known size. */
#include <string.h>

#include "base/library.h"
#include "file/compress/compress.h"

/* One frame by the stream decoder, which must fill the output and nothing more. */
static ac_status frame(const aci_unpacker *u, const unsigned char *in, size_t n_in,
                       unsigned char *out, size_t n_out, ac_err *e) {
  void *state;
  unsigned char spare; /* receives a byte too many */
  size_t made = 0;
  if (u->open == NULL) return aci_library_absent(u->library, e);
  AC_TRY(u->open(&state, e));
  for (ac_status st = AC_OK;;) {
    aci_unpack_io io = {.in = in, .n_in = n_in, .last = true};
    io.out = made < n_out ? out + made : &spare;
    io.n_out = made < n_out ? n_out - made : 1;
    st = u->step(state, &io, e);
    made += io.made;
    in += io.used;
    n_in -= io.used;
    if (st == AC_OK && !io.ended && made <= n_out && (io.used > 0 || io.made > 0)) continue;
    u->close(state);
    if (st != AC_OK) return st;
    if (io.ended && made == n_out && n_in == 0) return AC_OK;
    return AC_FAIL(e, PARSE, "the compressed block does not hold %zu bytes, or other bytes follow",
                   n_out);
  }
}

static uint32_t be32(const unsigned char *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static ac_status hadoop(const unsigned char *in, size_t n_in, unsigned char *out, size_t n_out,
                        ac_err *e) {
  size_t made = 0;
  while (n_in >= 8 && made < n_out) {
    const uint32_t full = be32(in), packed = be32(in + 4);
    if (packed > n_in - 8 || full > n_out - made) break;
    if (aci_block_lz4(in + 8, packed, out + made, full, e) != AC_OK) break;
    made += full;
    in += 8 + packed;
    n_in -= 8 + packed;
  }
  if (made == n_out && n_in == 0) return AC_OK;
  return AC_FAIL(e, PARSE, "the blocks of LZ4, as Hadoop writes them, are damaged");
}

ac_status aci_unpack_block(aci_block_codec c, const void *in, size_t n_in, void *out, size_t n_out,
                           ac_err *e) {
  switch (c) {
    case ACI_BLOCK_NONE:
      if (n_in != n_out)
        return AC_FAIL(e, PARSE, "%zu bytes, but its size is given as %zu", n_in, n_out);
      memcpy(out, in, n_in);
      return AC_OK;
    case ACI_BLOCK_SNAPPY: return aci_block_snappy(in, n_in, out, n_out, e);
    case ACI_BLOCK_GZIP: return aci_block_gzip(in, n_in, out, n_out, e);
    case ACI_BLOCK_ZSTD: return aci_block_zstd(in, n_in, out, n_out, e);
    case ACI_BLOCK_LZ4: return aci_block_lz4(in, n_in, out, n_out, e);
    case ACI_BLOCK_LZ4_FRAME: return frame(&aci_unpack_lz4, in, n_in, out, n_out, e);
    default: break;
  }
  if (hadoop(in, n_in, out, n_out, e) == AC_OK) return AC_OK;
  if (aci_block_lz4(in, n_in, out, n_out, e) == AC_OK) return AC_OK;
  return hadoop(in, n_in, out, n_out, e);
}
