/* Thrift's compact protocol, as far as Parquet's metadata needs it. The first fault is kept, and all
 * values are 0 after it. */
#ifndef ACI_PARQUET_THRIFT_H
#define ACI_PARQUET_THRIFT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct aci_thrift {
  const uint8_t *p, *end;
  const char *bad; /* what is wrong. NULL: nothing */
  int depth;
} aci_thrift;

typedef enum aci_thrift_type {
  ACI_THRIFT_STOP,
  ACI_THRIFT_TRUE,
  ACI_THRIFT_FALSE,
  ACI_THRIFT_I8,
  ACI_THRIFT_I16,
  ACI_THRIFT_I32,
  ACI_THRIFT_I64,
  ACI_THRIFT_DOUBLE,
  ACI_THRIFT_BINARY,
  ACI_THRIFT_LIST,
  ACI_THRIFT_SET,
  ACI_THRIFT_MAP,
  ACI_THRIFT_STRUCT
} aci_thrift_type;

/* The fields of a struct: for (aci_thrift_field f = {0}; aci_thrift_next(r, &f);). A field that the
 * body does not read must be skipped. */
typedef struct aci_thrift_field {
  int id;
  aci_thrift_type type;
} aci_thrift_field;
bool aci_thrift_next(aci_thrift *r, aci_thrift_field *f);
void aci_thrift_skip(aci_thrift *r, aci_thrift_type type);
/* The value of a field of the expected type. Another type is a fault. */
int64_t aci_thrift_int(aci_thrift *r, const aci_thrift_field *f);
bool aci_thrift_bool(aci_thrift *r, const aci_thrift_field *f);
const char *aci_thrift_text(aci_thrift *r, const aci_thrift_field *f, size_t *n);
/* Elements of a list, each of which takes a byte at least. */
uint32_t aci_thrift_list(aci_thrift *r, const aci_thrift_field *f, aci_thrift_type element);
/* An element of a list. */
int64_t aci_thrift_zigzag(aci_thrift *r);
uint64_t aci_thrift_varint(aci_thrift *r);
const char *aci_thrift_bytes(aci_thrift *r, size_t *n);
/* Whether the field is a struct, whose fields may be read. */
bool aci_thrift_is_struct(aci_thrift *r, const aci_thrift_field *f);

#endif
