/* The codec of plain Lua data and tensors: declarations shared by codec_write.c, codec_path.c and
 * codec_read.c. Serves object collectives, accel.launch and data workers. Scripts use accel.encode
 * and accel.decode (lac_codec.c).
 *
 * Format, little-endian. A varint has 7 bits a byte, lowest first, and no more bytes than it needs.
 * Head: 8D 41 43 44, version (1), three zeros. Then one value, a letter and its contents. Nothing
 * may follow it.
 *
 *   N  nil                F  false             T  true             Z  accel.json.null
 *   I  integer            varint of (i << 1) ^ (i >> 63)
 *   D  float              8 bytes, IEEE 754, every bit kept
 *   S  string             varint bytes, then these
 *   t  table              varint n, varint pairs, values 1 .. n, none nil. Then key, value for
 *      every other key, in
 *                         strictly rising order: numbers by value, then strings by bytes, then
 *                         false, true
 *   a  array of accel.json: as t
 *   o  ordered table      (accel.util.ordered) varint pairs, then key, value in its order, no key
 *      twice
 *   X  tensor             length of the dtype's name (1 byte) and the name, 1 when the bytes follow
 *      or 0 when there are
 *                         none (meta device), number of dims (1 byte), a varint each, the bytes in
 *                         row-major order
 *   Y  tensor by reference  varint position in the separate list of tensors, between threads only
 *   R  one that came before, varint number: tables, tensors and strings of LAC_CODEC_SHARED bytes
 *      or more count from 0
 *                         in the order in which they begin
 *
 * Keys are numbers (not NaN, floats only where no integer equals them), strings and booleans.
 * Tables nest LAC_CODEC_DEPTH deep. Equal data, shared in the same places, gives equal bytes on
 * every machine: no sharing is lost and a cycle comes back as one. Tensors are sent as dtype, shape
 * and values: a view arrives contiguous, and history is dropped. By reference, a tensor with
 * history is refused. */
#ifndef LAC_CODEC_H
#define LAC_CODEC_H
#include "base/strbuf.h"
#include "bindings/core/lac.h"

#define LAC_CODEC_HEAD \
  "\x8d"               \
  "ACD\x01\0\0"
enum {
  LAC_CODEC_HEAD_BYTES = 8,
  LAC_CODEC_VERSION_AT = 4,
  LAC_CODEC_SHARED = 4,
  LAC_CODEC_DEPTH = 200
};
_Static_assert(sizeof LAC_CODEC_HEAD == LAC_CODEC_HEAD_BYTES, "the last zero is the string's own");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers and tensors are copied as they lie in memory");
/* of a whole encoded value, unless an option sets it */
#define LAC_CODEC_MAX_BYTES ((int64_t)1 << 30)

/* A key as it is sorted. Strings are borrowed. */
typedef struct lac_codec_key {
  enum { LAC_KEY_INT, LAC_KEY_FLOAT, LAC_KEY_STRING, LAC_KEY_BOOL } kind;
  union {
    lua_Integer i; /* and booleans */
    lua_Number f;
    const char *s;
  };
  size_t n;         /* bytes of the string */
  lua_Integer slot; /* writer: slot that keeps the key itself */
} lac_codec_key;

/* ---- codec_path.c ---- */
int lac_codec_compare(const void *a, const void *b); /* for keys that differ. For qsort as well */
/* The way to a value, from the innermost. key: stack index of a key, 0: the i-th of a list. */
typedef struct lac_value_path {
  const struct lac_value_path *up; /* NULL: the root */
  int key;
  lua_Integer i;
} lac_value_path;
/* " at .a.b[3]", "" at the root. A path that is too long keeps its inner end. */
const char *lac_place_text(lua_State *L, const lac_value_path *p, char *buf, size_t size);
/* Raises: the value at idx does not travel. */
int lac_codec_refuse(lua_State *L, lac_state *S, int idx, const lac_value_path *p, bool as_key);

/* ---- codec_write.c ---- */
typedef struct lac_encoder {
  aci_strbuf buf;
  size_t max_bytes;
  lua_Integer n_refs;
  /* of the tables being written, innermost last */
  lac_codec_key *keys;
  size_t n_keys, cap_keys;
  /* retained, so that an address stands for one tensor */
  ac_tensor **held;
  size_t n_held, cap_held;
  bool by_reference; /* tensors as positions in held, without copying their bytes */
} lac_encoder;
/* Writes the value at idx into w->buf. Raises for values that cannot be sent and names the path to
 * them. */
void lac_encode(lua_State *L, lac_state *S, lac_encoder *w, int idx);

/* ---- codec_read.c ---- */
/* Pushes the value of these bytes, which may be hostile, and returns AC_OK. Otherwise *e names the
 * fault and its byte (PARSE), or reports that memory for a tensor is missing (OOM). The bytes must
 * stay in place until it returns. Tensors are made on d. */
ac_status lac_decode(lua_State *L, lac_state *S, const void *bytes, size_t n, ac_device *d,
                     ac_err *e);
/* The same of bytes that a thread of ours wrote by reference: their tensors (borrowed) get boxes as
 * they are. */
ac_status lac_decode_shared(lua_State *L, lac_state *S, const void *bytes, size_t n,
                            ac_tensor *const *shared, size_t n_shared, ac_device *d, ac_err *e);

/* ---- lac_codec.c ---- */
/* Pushes an encoder that __gc and __close empty. */
lac_encoder *lac_encoder_push(lua_State *L, size_t max_bytes);

#endif
