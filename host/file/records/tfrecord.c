/* The frames of TFRecord: a length of 8 bytes, the masked CRC-32C of these, the bytes, their masked
 * CRC-32C. All little-endian. */
#include "file/records/tfrecord.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/open_read.h"

static ac_status fault(const aci_content *s, ac_err *e, const char *what) {
  char shown[ACI_PATH_SHOWN];
  return AC_FAIL(e, PARSE, "%s: byte %llu: %s", aci_path_shown(aci_content_path(s), shown),
                 (unsigned long long)aci_content_at(s), what);
}

ac_status aci_tfrecord_next(aci_content *s, uint64_t *length, bool *ended, ac_err *e) {
  uint8_t head[12];
  uint32_t crc;
  size_t got;
  *ended = false;
  AC_TRY(aci_content_read(s, head, sizeof head, &got, e));
  if (got == 0) {
    *ended = true;
    return AC_OK;
  }
  if (got < sizeof head) return fault(s, e, "a record is cut off; copy the file again");
  memcpy(length, head, 8);
  memcpy(&crc, head + 8, 4);
  if (aci_crc32c_mask(aci_crc32c(0, head, 8)) != crc)
    return fault(
        s, e, "the checksum of a record's length is wrong: it is damaged or not a TFRecord file");
  if (*length > (uint64_t)1 << 40 ||
      (aci_content_codec(s) == NULL && *length > aci_content_size(s) - aci_content_at(s)))
    return fault(s, e, "a record is longer than the rest of the file; copy the file again");
  return AC_OK;
}

ac_status aci_tfrecord_end(aci_content *s, uint32_t crc, ac_err *e) {
  uint32_t want;
  size_t got;
  AC_TRY(aci_content_read(s, &want, sizeof want, &got, e));
  if (got < sizeof want) return fault(s, e, "a record is cut off; copy the file again");
  return aci_crc32c_mask(crc) == want
             ? AC_OK
             : fault(s, e, "the checksum of a record is wrong: it is damaged");
}
