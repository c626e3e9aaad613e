/* The orientation tag of an EXIF block (Exif 2.3, section 4.6: a TIFF directory). Called by the
 * readers of JPEG, PNG and WebP. */
#include <string.h>

#include "file/image/image.h"

enum { ORIENTATION = 0x0112, SHORT = 3 };

int aci_exif_orientation(const uint8_t *p, size_t n) {
  if (n < 14) return 1;
  const bool little = memcmp(p, "II*\0", 4) == 0;
  if (!little && memcmp(p, "MM\0*", 4) != 0) return 1;
  const uint32_t at = little ? aci_le32(p + 4) : aci_be32(p + 4);
  if (at > n - 2) return 1;
  const uint32_t entries = little ? aci_le16(p + at) : aci_be16(p + at);
  for (uint32_t i = 0; i < entries && (uint64_t)at + 2 + 12 * (i + 1) <= n; i++) {
    const uint8_t *q = p + at + 2 + 12 * i;
    const uint32_t tag = little ? aci_le16(q) : aci_be16(q);
    const uint32_t type = little ? aci_le16(q + 2) : aci_be16(q + 2);
    const uint32_t value = little ? aci_le16(q + 8) : aci_be16(q + 8);
    if (tag == ORIENTATION) return type == SHORT && value >= 1 && value <= 8 ? (int)value : 1;
  }
  return 1;
}
