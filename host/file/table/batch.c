/* Memory of batches: chunks that are freed together. */
#include <stdlib.h>
#include <string.h>

#include "file/table/table.h"

typedef struct aci_chunk {
  struct aci_chunk *next;
  void *p;
} chunk;

aci_batch *aci_batch_new(size_t most) {
  aci_batch *b = calloc(1, sizeof *b);
  if (b != NULL) {
    b->ref = 1;
    b->most = most;
  }
  return b;
}

void aci_batch_release(aci_batch *b) {
  if (b == NULL || !aci_unref(&b->ref)) return;
  for (chunk *c = b->chunks, *next; c != NULL; c = next) {
    next = c->next;
    free(c->p);
    free(c);
  }
  aci_table_release(b->table);
  free(b);
}

ac_status aci_batch_alloc(aci_batch *b, size_t bytes, bool zero, void *out, ac_err *e) {
  if (b->most > 0 && (bytes > b->most || b->bytes > b->most - bytes))
    return AC_FAIL(e, PARSE, ACI_ROWS_OVER_LIMIT, b->most);
  if (bytes > SIZE_MAX / 2) return AC_FAIL(e, OOM, "no memory for %zu bytes of a table", bytes);
  const size_t full = (bytes + 64) / 64 * 64 + 64; /* readers of bits may look at whole words */
  chunk *c = malloc(sizeof *c);
  void *p = aligned_alloc(64, full);
  if (c == NULL || p == NULL) {
    free(c);
    free(p);
    return AC_FAIL(e, OOM, "no memory for %zu bytes of a table", bytes);
  }
  if (zero) memset(p, 0, full);
  *c = (chunk){b->chunks, p};
  b->chunks = c;
  b->bytes += bytes;
  memcpy(out, &p, sizeof p);
  return AC_OK;
}

ac_status aci_batch_adopt(aci_batch *b, void *p, size_t bytes, ac_err *e) {
  chunk *c = malloc(sizeof *c);
  if (c == NULL || (b->most > 0 && b->bytes + bytes > b->most)) {
    free(c);
    free(p);
    return AC_FAIL(e, PARSE, ACI_ROWS_OVER_LIMIT, b->most);
  }
  *c = (chunk){b->chunks, p};
  b->chunks = c;
  b->bytes += bytes;
  return AC_OK;
}
