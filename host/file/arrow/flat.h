/* FlatBuffers, the form of Arrow's metadata, read with a check of every step. The first fault is
 * kept in the buffer and asked for once at the end: until then absent values are 0. */
#ifndef ACI_ARROW_FLAT_H
#define ACI_ARROW_FLAT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct aci_flat {
  const uint8_t *p;
  size_t n;
  bool bad;
} aci_flat;

typedef struct aci_flat_table {
  aci_flat *b;
  size_t at, vtable; /* 0: no such table */
  uint16_t n_vtable, size;
} aci_flat_table;

typedef struct aci_flat_vector {
  aci_flat *b;
  size_t at; /* of the first element */
  uint32_t n;
} aci_flat_vector;

aci_flat_table aci_flat_root(aci_flat *b);
/* Field i of a table. Absent: fallback. */
int64_t aci_flat_int(const aci_flat_table *t, int i, int width, int64_t fallback);
aci_flat_table aci_flat_child(const aci_flat_table *t, int i);
aci_flat_vector aci_flat_list(const aci_flat_table *t, int i, size_t element);
/* Not terminated. NULL if absent. */
const char *aci_flat_string(const aci_flat_table *t, int i, size_t *len);
aci_flat_table aci_flat_at(const aci_flat_vector *v, uint32_t i); /* a table in a vector */
/* Integer at a byte of element i of a vector of structs. */
int64_t aci_flat_in(const aci_flat_vector *v, uint32_t i, size_t element, size_t byte, int width);

#endif
