/* Tables of typed columns, as Arrow lays them out in memory. The readers of Arrow (file/arrow) and
 * Parquet (file/parquet) fill them, bindings/file/lac_table.c turns them into Lua values and tensors.
 *
 *   type.c   types, their names and dtypes       check.c   what every column must fulfil
 *   batch.c  memory of a batch of rows           load.h    numbers at any address
 *   table.c  opens a file by its content
 *
 * A column that left a reader has been checked: every access at a row below n is inside its
 * buffers, and text is UTF-8. */
#ifndef ACI_TABLE_H
#define ACI_TABLE_H
#include "base/strbuf.h"
#include "file/compress/compress.h"
#include "tensor/tensor_impl.h"

typedef enum aci_kind {
  ACI_NULLS,
  ACI_BOOLS, /* bits */
  ACI_INTS,  /* width bytes, is_unsigned */
  ACI_FLOATS,
  ACI_DECIMALS, /* width bytes, little-endian */
  ACI_DATES,    /* width 4: days, 8: milliseconds */
  ACI_TIMES,
  ACI_TIMESTAMPS,
  ACI_DURATIONS,
  ACI_STRINGS, /* offsets (large: 64 bits) and data. is_text */
  ACI_FIXED,   /* width bytes */
  ACI_VIEWS,   /* 16 bytes each, and buffers. is_text */
  ACI_LISTS,   /* offsets and one child */
  ACI_FIXED_LISTS,
  ACI_STRUCTS,
  ACI_MAPS,     /* lists of structs of a key and a value */
  ACI_RUN_ENDS, /* two children: ends of runs and their values */
  ACI_DICTS     /* indices, and the values in `dict`. type->child[0] is their type */
} aci_kind;

typedef struct aci_type {
  aci_kind kind;
  bool large, nullable, is_text, is_unsigned, ordered;
  uint8_t unit; /* 0 s, 1 ms, 2 us, 3 ns */
  int32_t width;
  int32_t precision, scale;
  int32_t list_size;
  int64_t dict_id;
  char *name, *zone;
  int n_children;
  struct aci_type *child; /* owned, an array */
} aci_type;

typedef struct aci_column {
  const aci_type *type;
  int64_t n;
  const uint8_t *valid;  /* bit i: row i is not null. NULL: no nulls */
  const uint8_t *values; /* or offsets */
  const uint8_t *data;
  int64_t n_data;
  int n_children;
  struct aci_column *child;
  /* of a dictionary: its values, continued by `next` of them */
  const struct aci_column *dict, *next;
  const uint8_t **buffers; /* of views */
  int64_t *buffer_bytes;
  int64_t n_buffers;
} aci_column;

/* ---- memory ---- */
/* A batch owns what its columns point to, or keeps the table that does. */
typedef struct aci_batch {
  AC_ATOMIC(int32_t) ref;
  int64_t rows;
  int n_columns;
  aci_column *columns;
  struct aci_table *table; /* retained. NULL: a dictionary of the table itself */
  struct aci_chunk *chunks;
  size_t bytes, most; /* allocated, and the limit. 0: none */
} aci_batch;

aci_batch *aci_batch_new(size_t most);
void aci_batch_release(aci_batch *b);
/* Memory that lives as long as the batch, with 64 bytes of alignment. OOM, or PARSE above `most`. */
ac_status aci_batch_alloc(aci_batch *b, size_t bytes, bool zero, void *out, ac_err *e);
/* Memory of malloc, which the batch frees. On failure it is freed now. */
ac_status aci_batch_adopt(aci_batch *b, void *p, size_t bytes, ac_err *e);

/* ---- types ---- */
void aci_type_fini(aci_type *t); /* what it owns */
/* "list<element: int32>", as Arrow writes it. */
void aci_type_describe(const aci_type *t, aci_strbuf *out);
/* The dtype of values that tensors can hold in place. */
bool aci_type_dtype(const aci_type *t, ac_dtype *out);

/* ---- tables ---- */
typedef struct aci_meta_pair {
  char *key, *value;
  size_t n_key, n_value;
} aci_meta_pair;

/* A reader's part of a table. */
typedef struct aci_table_ops {
  const char *format;
  ac_status (*read)(struct aci_table *t, int64_t k, const bool *wanted, aci_batch *b, ac_err *e);
  void (*close)(void *impl);
} aci_table_ops;

typedef struct aci_table {
  AC_ATOMIC(int32_t) ref;
  const aci_table_ops *ops;
  void *impl;
  char *path;
  aci_type schema; /* a struct of the columns */
  int64_t rows, n_batches;
  int64_t *batch_rows;
  aci_meta_pair *meta;
  int n_meta;
  size_t most; /* bytes of a batch */
} aci_table;

/* Opens Arrow (file, stream, Feather 2) or Parquet. most: bytes that a batch may take in memory, and a
 * file that is compressed as a whole (aci_unpacked_limit). */
ac_status aci_table_open(const char *path, size_t most, aci_table **out, ac_err *e);
void aci_table_retain(aci_table *t);
void aci_table_release(aci_table *t);
/* Batch k, from 0. wanted: one flag for each column, NULL for all. Columns that are not wanted have
 * no type. */
ac_status aci_table_read(aci_table *t, int64_t k, const bool *wanted, aci_batch **out, ac_err *e);
/* An error with the path in front of its text. */
ac_status aci_table_failed(const char *path, ac_status st, const ac_err *why, ac_err *e);

/* The readers. They fill the table. The caller closes fd. Errors lack the path. */
ac_status aci_arrow_open(aci_table *t, int fd, uint64_t bytes, ac_err *e);
ac_status aci_parquet_open(aci_table *t, int fd, uint64_t bytes, ac_err *e);

/* ---- checks ---- */
enum { ACI_TABLE_DEPTH = 64, ACI_TABLE_FIELDS = 100000 };
/* Whether the buffers of one column, without its children, hold its n rows. Says what is wrong. */
ac_status aci_column_check(const aci_column *c, ac_err *e);
bool aci_text_is_valid(const uint8_t *p, size_t n);

#endif
