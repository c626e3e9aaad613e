/* TFRecord files, and TensorFlow's Example in them. Called by bindings/file/lac_records.c. */
#ifndef ACI_RECORDS_TFRECORD_H
#define ACI_RECORDS_TFRECORD_H
#include "file/compress/compress.h"

/* The length of the next record, whose bytes follow in the content. *ended: there is none. */
ac_status aci_tfrecord_next(aci_content *s, uint64_t *length, bool *ended, ac_err *e);
/* After the bytes: compares their checksum. */
ac_status aci_tfrecord_end(aci_content *s, uint32_t crc, ac_err *e);

typedef enum aci_feature_kind {
  ACI_FEATURE_NONE,
  ACI_FEATURE_BYTES,
  ACI_FEATURE_FLOATS,
  ACI_FEATURE_INTS
} aci_feature_kind;

/* A feature begins (kind NONE), its kind is known (value NULL), or it has a value. */
typedef struct aci_feature {
  const char *name;
  size_t n_name;
  aci_feature_kind kind;
  enum { ACI_FEATURE_BEGINS, ACI_FEATURE_HAS_KIND, ACI_FEATURE_VALUE } event;
  const char *bytes;
  size_t n_bytes;
  float f;
  int64_t i;
} aci_feature;

/* Reads an Example (a protocol buffer): fn gets every feature with its values, in order. PARSE for other
 * bytes. */
ac_status aci_example_read(const void *p, size_t n, void (*fn)(void *user, const aci_feature *x),
                           void *user, ac_err *e);

#endif
