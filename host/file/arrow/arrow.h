/* Arrow's IPC format: files, streams, Feather 2. Read from a map of the file, so that columns without
 * compression are used in place.
 *
 *   flat.c   the metadata's form     schema.c  types and columns of a schema
 *   file.c   messages of a file      body.c    the columns of a batch
 *
 * A map has one danger: another process that cuts the file while its bytes are used ends this one by
 * SIGBUS. The file's size is compared before each batch, so only a cut within the use of one does.
 * The format: arrow.apache.org/docs/format/Columnar.html (version 1.5). */
#ifndef ACI_ARROW_H
#define ACI_ARROW_H
#include "file/arrow/flat.h"
#include "file/table/table.h"

enum { ACI_ARROW_V4 = 3, ACI_ARROW_V5 = 4 };

/* A message of a file: its metadata and its body. */
typedef struct aci_arrow_message {
  uint64_t meta, body;
  uint32_t n_meta;
  uint64_t n_body;
  int64_t dict_id; /* of a dictionary */
  bool dictionary, delta;
  aci_batch *read; /* of a dictionary, once it was needed */
} aci_arrow_message;

typedef struct aci_arrow {
  const uint8_t *p; /* the map */
  uint64_t n;
  int fd;
  aci_arrow_message *messages;  /* in order */
  int64_t n_messages, *batches; /* batches[k]: its message */
  size_t most;
  int depth; /* of dictionaries inside dictionaries */
} aci_arrow;

/* Fills a schema of columns and the metadata's pairs. The type is freed by the caller, in all cases. */
ac_status aci_arrow_schema(const aci_flat_table *schema, aci_type *out, aci_table *t, ac_err *e);
/* The columns of a record batch. fields: types of n columns. until: the message before which
 * dictionaries count. */
ac_status aci_arrow_body(aci_arrow *f, const aci_flat_table *record, const aci_arrow_message *m,
                         int64_t until, const aci_type *fields, int n, const bool *wanted,
                         aci_column *out, aci_batch *b, ac_err *e);
/* The values of a dictionary as they are before a message, in order. NULL: none yet. */
ac_status aci_arrow_dictionary(aci_arrow *f, int64_t id, int64_t until, const aci_type *values,
                               const aci_column **out, ac_err *e);

#endif
