/* Parquet: an index of row groups from the footer, and their columns on request.
 *
 *   thrift.c  the metadata's form          footer.c    the metadata
 *   schema.c  types and levels             page.c      pages of a column chunk
 *   bits.c    packed integers              values.c    values by their encoding
 *   assemble.c  columns from levels        file.c      files
 *
 * The format: parquet.apache.org/docs/file-format (2.11). */
#ifndef ACI_PARQUET_H
#define ACI_PARQUET_H
#include "file/parquet/thrift.h"
#include "file/table/load.h"

typedef enum aci_pq_physical {
  ACI_PQ_BOOL,
  ACI_PQ_INT32,
  ACI_PQ_INT64,
  ACI_PQ_INT96,
  ACI_PQ_FLOAT,
  ACI_PQ_DOUBLE,
  ACI_PQ_BYTES,
  ACI_PQ_FIXED
} aci_pq_physical;

typedef enum aci_pq_encoding {
  ACI_PQ_PLAIN = 0,
  ACI_PQ_PLAIN_DICTIONARY = 2,
  ACI_PQ_RLE = 3,
  ACI_PQ_BIT_PACKED = 4,
  ACI_PQ_DELTA = 5,
  ACI_PQ_DELTA_LENGTH = 6,
  ACI_PQ_DELTA_BYTES = 7,
  ACI_PQ_RLE_DICTIONARY = 8,
  ACI_PQ_STREAM_SPLIT = 9
} aci_pq_encoding;

/* A column of values in the file. */
typedef struct aci_pq_leaf {
  aci_pq_physical physical;
  int32_t length; /* of ACI_PQ_FIXED */
  uint8_t most_def, most_rep;
  const aci_type *type;
} aci_pq_leaf;

/* How a type of the table is stored: parallel to aci_type. */
typedef struct aci_pq_node {
  int leaf;                     /* of values: its column in the file. -1: of groups */
  uint8_t def;                  /* definition level from which it is not null */
  uint8_t outer_def, outer_rep; /* of the nearest list around it */
  uint8_t list_def, list_rep;   /* of lists: levels of its elements */
  int n_children;
  struct aci_pq_node *child;
} aci_pq_node;

/* A column chunk. */
typedef struct aci_pq_chunk {
  int64_t at, bytes, values;
  int32_t codec, physical;
} aci_pq_chunk;

typedef struct aci_pq_file {
  int fd;
  char *path;
  uint64_t n;
  size_t most;
  aci_pq_node root;
  aci_pq_leaf *leaves;
  int n_leaves;
  aci_pq_chunk *chunks; /* of group g: n_leaves from g * n_leaves on */
} aci_pq_file;

/* An element of the schema, as the footer lists them. */
typedef struct aci_pq_element {
  const char *name;
  size_t n_name;
  int32_t physical, length, repetition, children, converted, scale, precision;
  int32_t logical; /* field of the union, 0: none */
  int32_t unit;    /* 1 ms, 2 us, 3 ns */
  int32_t bits;
  bool is_utc, is_signed;
} aci_pq_element;

/* Fills table and file from the metadata. */
ac_status aci_pq_footer(aci_table *t, aci_pq_file *f, const uint8_t *p, size_t n, ac_err *e);
/* Types, nodes and leaves from the elements. */
ac_status aci_pq_schema(aci_table *t, aci_pq_file *f, const aci_pq_element *list, int n, ac_err *e);

/* ---- values ---- */
/* Values of a leaf without its nulls. Numbers in `fixed`, `width` bytes each. Bytes by offsets. */
typedef struct aci_pq_values {
  aci_pq_physical physical;
  int width; /* 0: bytes */
  uint8_t *fixed;
  int32_t *offsets; /* n + 1 */
  uint8_t *data;    /* malloc'ed, cap_data bytes */
  size_t n_data, cap_data, most;
  int64_t n, cap;
} aci_pq_values;

/* n values of a page, appended. p .. end: its bytes. dict: the chunk's dictionary or NULL. */
ac_status aci_pq_decode(aci_pq_values *v, aci_pq_encoding enc, const uint8_t *p, const uint8_t *end,
                        int64_t n, const aci_pq_values *dict, ac_err *e);

/* Runs and packed groups of `width` bits. */
ac_status aci_pq_hybrid(const uint8_t *p, const uint8_t *end, int width, int64_t n, uint32_t *out,
                        ac_err *e);
/* A sequence of deltas. *n: values. out has room for `room` of them. *used: bytes. */
ac_status aci_pq_deltas(const uint8_t *p, const uint8_t *end, int64_t room, int64_t *out,
                        int64_t *n, size_t *used, ac_err *e);

/* ---- column chunks ---- */
typedef struct aci_pq_column {
  int64_t n;          /* levels */
  uint8_t *def, *rep; /* NULL: all 0 */
  aci_pq_values values;
} aci_pq_column;

ac_status aci_pq_read_chunk(const aci_pq_file *f, const aci_pq_chunk *c, const aci_pq_leaf *leaf,
                            aci_batch *b, aci_pq_column *out, ac_err *e);

/* A column of the table from the columns of its leaves (all of the file's, those it needs filled). */
ac_status aci_pq_assemble(const aci_pq_file *f, const aci_type *t, const aci_pq_node *node,
                          aci_pq_column *leaves, aci_batch *b, aci_column *out, ac_err *e);

#endif
