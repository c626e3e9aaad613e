/* Names for bytes that people take for pictures. Called by image.c for its messages. */
#include <string.h>
#include <strings.h>

#include "file/image/image.h"

static bool begins(const uint8_t *p, size_t n, const char *text) {
  const size_t k = strlen(text);
  return n >= k && strncasecmp((const char *)p, text, k) == 0;
}

static bool is_text(const uint8_t *p, size_t n) {
  for (size_t i = 0; i < n && i < 512; i++)
    if ((p[i] < 32 && p[i] != '\t' && p[i] != '\n' && p[i] != '\r') || p[i] == 127) return false;
  return true;
}

/* Brands of ISO media files (ISO/IEC 14496-12): a box "ftyp" and its brand. */
static const char *of_media(const uint8_t *p, size_t n) {
  if (n < 12 || memcmp(p + 4, "ftyp", 4) != 0) return NULL;
  if (memcmp(p + 8, "avi", 3) == 0)
    return "AVIF, which is not supported; convert it to PNG or JPEG";
  if (memcmp(p + 8, "he", 2) == 0 || memcmp(p + 8, "mif1", 4) == 0 || memcmp(p + 8, "msf1", 4) == 0)
    return "HEIC, which is not supported; convert it to PNG or JPEG";
  return "a media file (MP4 and its kin)";
}

const char *aci_image_foreign(const uint8_t *p, size_t n) {
  static const char lfs[] = "version https://git-lfs";
  const char *media = of_media(p, n);
  if (media != NULL) return media;
  if (begins(p, n, lfs)) return "a pointer of Git LFS; run git lfs pull to get the picture";
  if (n >= 4 && memcmp(p, "\x89PNG", 4) == 0)
    return "a PNG file whose first bytes were changed, as by a copy in text mode; copy it again";
  if (n >= 2 && p[0] == 0xFF && p[1] == 0xD8) return "a JPEG file that ends after its first bytes";
  if (n >= 12 && memcmp(p, "RIFF", 4) == 0) return "a RIFF file without a WebP picture";
  if (begins(p, n, "RIFF") || begins(p, n, "GIF8")) return "cut in its first bytes";
  if (n >= 2 && p[0] == 0xFF && p[1] == 0x0A) return "JPEG XL, which is not supported";
  if (n >= 12 && memcmp(p, "\0\0\0\x0cJXL ", 8) == 0) return "JPEG XL, which is not supported";
  if (n >= 12 && memcmp(p, "\0\0\0\x0cjP  ", 8) == 0) return "JPEG 2000, which is not supported";
  if (begins(p, n, "%PDF")) return "a PDF document";
  if (begins(p, n, "PK\3\4")) return "a zip archive";
  if (n >= 2 && p[0] == 0x1F && p[1] == 0x8B) return "compressed with gzip";
  size_t i = 0;
  while (i < n && (p[i] == ' ' || p[i] == '\n' || p[i] == '\r' || p[i] == '\t')) i++;
  if (begins(p + i, n - i, "<!doctype html") || begins(p + i, n - i, "<html"))
    return "an HTML page, perhaps the error page of a download";
  if (begins(p + i, n - i, "<svg") || begins(p + i, n - i, "<?xml"))
    return "an SVG or XML document, which is not supported";
  return is_text(p, n) ? "text" : NULL;
}
