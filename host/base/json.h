/* JSON by RFC 8259 and nothing more: an event reader, a document, a writer. Used for safetensors
 * headers, configs, manifests, tokenizers and by the bindings' accel.json.
 *
 * Refused, with line and column: anything but one value, comments, trailing commas, NaN and
 * Infinity, a byte order mark, bad UTF-8, lone surrogates, control characters in strings, repeated
 * keys of an object (compared after unescaping), integers that do not fit 64 bits, numbers that
 * overflow a double, depth and size over the limits. Time is linear in the input, keyed hashing
 * keeps it so for hostile keys, and nesting uses no C stack. */
#ifndef ACI_JSON_H
#define ACI_JSON_H
#include "accel/base.h"
#include "base/strbuf.h"

/* The fault in the text and its byte, for readers of formats that number their rules. */
typedef struct aci_json_fault {
  enum {
    ACI_JSON_NO_FAULT,
    ACI_JSON_SYNTAX,
    ACI_JSON_BAD_NUMBER,
    ACI_JSON_REPEATED_KEY,
    ACI_JSON_LIMIT
  } kind;
  size_t offset;
  char what[128];
} aci_json_fault;

typedef struct aci_json_opts {
  size_t max_bytes;
  int max_depth; /* open containers at once */
  /* integers outside int64 become doubles instead of errors: Hugging Face writes 1e30 as digits */
  bool wide_integers;
  /* the rules of data sets: integers outside int64 become strings of their digits, and numbers beyond
   * a double infinity, instead of errors */
  bool records;
  /* (optional) filled when the text is refused. Untouched by errors of the event function */
  aci_json_fault *fault;
} aci_json_opts;
#define ACI_JSON_CONFIG ((aci_json_opts){.max_bytes = (size_t)64 << 20, .max_depth = 64})
#define ACI_JSON_RECORDS \
  ((aci_json_opts){.max_bytes = (size_t)1 << 30, .max_depth = 256, .records = true})
#define ACI_JSON_TOKENIZER ((aci_json_opts){.max_bytes = (size_t)512 << 20, .max_depth = 64})

/* ---- events ---- */
typedef enum aci_json_type {
  ACI_JSON_NULL,
  ACI_JSON_BOOL,
  ACI_JSON_INT, /* written without fraction and exponent */
  ACI_JSON_DOUBLE,
  ACI_JSON_STRING,
  ACI_JSON_ARRAY, /* as an event: its beginning */
  ACI_JSON_OBJECT,
  ACI_JSON_KEY, /* events only, as are the ends */
  ACI_JSON_ARRAY_END,
  ACI_JSON_OBJECT_END
} aci_json_type;

typedef struct aci_json_event {
  aci_json_type type;
  int depth;     /* containers around this value or end */
  size_t offset; /* of the token in the input */
  /* STRING, KEY: unescaped, may hold NUL. Numbers: as written. Not terminated. Valid during the
   * call. */
  const char *text;
  size_t len;
  int64_t i; /* INT */
  double f;  /* DOUBLE, and INT as nearest double */
  bool b;    /* BOOL */
} aci_json_event;

/* An error it returns ends the reading and is passed on. */
typedef ac_status (*aci_json_fn)(void *user, const aci_json_event *ev, ac_err *e);
/* Opts NULL: ACI_JSON_CONFIG. PARSE for faults of the text. */
ac_status aci_json_read(const char *text, size_t n, const aci_json_opts *opts, aci_json_fn fn,
                        void *user, ac_err *e);

/* ---- document: the values in the order of the text, containers before their members ---- */
typedef struct aci_json_doc aci_json_doc;
typedef struct aci_json {
  uint8_t type; /* aci_json_type. KEY precedes each member of an object */
  /* STRING, KEY: bytes. ARRAY, OBJECT: number of members. DOUBLE: its position in the text */
  uint32_t len;
  union {
    const char *s; /* terminated, may hold NUL inside */
    int64_t i;
    double f;
    bool b;
    struct {
      uint32_t span;  /* nodes of the container with all below it */
      uint32_t index; /* of large objects: the start of its hash table. 0: none */
    } c;
  } u;
} aci_json;

ac_status aci_json_parse(const char *text, size_t n, const aci_json_opts *opts, aci_json_doc **out,
                         ac_err *e);
void aci_json_free(aci_json_doc *d);
const aci_json *aci_json_root(const aci_json_doc *d);
/* The member of an object, NULL when there is none or o is not an object. O(1). */
const aci_json *aci_json_get(const aci_json_doc *d, const aci_json *o, const char *key);
/* for (const aci_json *v = aci_json_first(a), *end = aci_json_after(a); v != end; v =
 * aci_json_after(v)): the members of a container. In an object keys and values alternate. */
static inline const aci_json *aci_json_after(const aci_json *v) {
  return v + (v->type == ACI_JSON_ARRAY || v->type == ACI_JSON_OBJECT ? v->u.c.span : 1);
}
static inline const aci_json *aci_json_first(const aci_json *v) { return v + 1; }

/* ---- writer ---- */
enum { ACI_JSON_WRITE_DEPTH = 64 };
typedef struct aci_json_writer {
  aci_strbuf *out;
  bool pretty;   /* two spaces a level. Set before the first value */
  ac_status bad; /* first fault: INVALID (NaN, bad UTF-8) */
  int depth;
  bool after_key;
  bool object[ACI_JSON_WRITE_DEPTH + 1], filled[ACI_JSON_WRITE_DEPTH + 1];
} aci_json_writer; /* {.out = &buffer} */

void aci_json_begin(aci_json_writer *w, bool object);
void aci_json_end(aci_json_writer *w);
void aci_json_key(aci_json_writer *w, const char *s, size_t n); /* the caller keeps keys unique */
void aci_json_string(aci_json_writer *w, const char *s, size_t n);
void aci_json_int(aci_json_writer *w, int64_t v);
void aci_json_double(aci_json_writer *w,
                     double v); /* shortest that reads back, and reads back as a double: 1.0 */
void aci_json_bool(aci_json_writer *w, bool v);
void aci_json_null(aci_json_writer *w);
void aci_json_value(aci_json_writer *w, const aci_json *v); /* a parsed value with all below it */
/* INVALID after NaN, infinity, bad UTF-8 or too deep nesting. OOM. Asserts that everything was
 * ended. */
ac_status aci_json_finish(aci_json_writer *w, ac_err *e);

/* Length of the UTF-8 sequence at s (n bytes left), 0 when it is none: overlong, surrogate, above
 * U+10FFFF, cut off. */
int aci_utf8_length(const unsigned char *s, size_t n);
/* Keyed hash of a byte string, for tables over untrusted text. */
uint64_t aci_hash_bytes(uint64_t key, const void *p, size_t n);
/* An unpredictable key for it. */
uint64_t aci_hash_key(void);

#endif
