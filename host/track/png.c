/* PNG files of pixels: a filter per row by the least sum of absolute differences, then deflate with
 * one table of codes (RFC 1951, fixed Huffman codes) and matches found by a hash of three bytes.
 * Called through ac_png_encode. */
#include <stdlib.h>
#include <string.h>

#include "accel/track.h"
#include "base/crc32.h"
#include "base/strbuf.h"

enum {
  HASH_BITS = 15,
  WINDOW = 32768,
  MIN_MATCH = 3,
  MAX_MATCH = 258,
  TRIES = 16,
  MAX_SIDE = 16384,
  ADLER = 65521
};

typedef struct bits {
  aci_strbuf *out;
  uint64_t held;
  int n;
} bits;

static void put_bits(bits *b, uint32_t value, int n) { /* least significant bit first */
  b->held |= (uint64_t)value << b->n;
  for (b->n += n; b->n >= 8; b->n -= 8) {
    aci_strbuf_putc(b->out, (char)b->held);
    b->held >>= 8;
  }
}

static uint32_t reversed(uint32_t v, int n) {
  uint32_t r = 0;
  for (int i = 0; i < n; i++) r |= (v >> i & 1) << (n - 1 - i);
  return r;
}

static void put_symbol(bits *b, uint32_t s) { /* literals, 256: end, 257 and more: lengths */
  if (s < 144) put_bits(b, reversed(0x30 + s, 8), 8);
  else if (s < 256) put_bits(b, reversed(0x190 + s - 144, 9), 9);
  else if (s < 280) put_bits(b, reversed(s - 256, 7), 7);
  else put_bits(b, reversed(0xc0 + s - 280, 8), 8);
}

static void put_match(bits *b, int length, int distance) {
  static const uint16_t from[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                  31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
  static const uint8_t extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                  2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
  int i = 28;
  while (from[i] > length) i--;
  put_symbol(b, 257 + (uint32_t)i);
  put_bits(b, (uint32_t)(length - from[i]), extra[i]);
  /* distances: 1, 2, 3, 4, 5-6, 7-8, 9-12, ... two codes for each power of two */
  int code = distance <= 2 ? distance - 1 : 0, more = 0;
  if (distance > 2) {
    int top = 31 - __builtin_clz((unsigned)(distance - 1));
    more = top - 1;
    code = 2 * top + ((distance - 1) >> more & 1);
  }
  put_bits(b, reversed((uint32_t)code, 5), 5);
  if (more > 0) put_bits(b, (uint32_t)(distance - 1) & ((1u << more) - 1), more);
}

static uint32_t hash3(const uint8_t *p) {
  return ((uint32_t)p[0] << 16 ^ (uint32_t)p[1] << 8 ^ p[2]) * 2654435761u >> (32 - HASH_BITS);
}

/* head: the last place of a hash, prev: the place before it, both + 1. */
static void deflate(bits *b, const uint8_t *p, int64_t n, int32_t *head, int32_t *prev) {
  put_bits(b, 3, 3); /* the last block, fixed codes */
  for (int64_t i = 0; i < n;) {
    int best = 0, distance = 0;
    if (i + MIN_MATCH <= n) {
      const int most = n - i < MAX_MATCH ? (int)(n - i) : MAX_MATCH;
      int64_t at = head[hash3(p + i)] - 1;
      for (int t = 0; t < TRIES && at >= 0 && i - at < WINDOW && best < most; t++) {
        int k = 0;
        while (k < most && p[at + k] == p[i + k]) k++;
        if (k > best) {
          best = k;
          distance = (int)(i - at);
        }
        at = prev[at & (WINDOW - 1)] - 1;
      }
    }
    const bool match = best >= MIN_MATCH;
    const int step = match ? best : 1;
    if (match) put_match(b, best, distance);
    else put_symbol(b, p[i]);
    for (int k = 0; k < step; k++, i++) {
      if (i + MIN_MATCH > n) continue;
      const uint32_t h = hash3(p + i);
      prev[i & (WINDOW - 1)] = head[h];
      head[h] = (int32_t)(i + 1);
    }
  }
  put_symbol(b, 256);
  if (b->n > 0) put_bits(b, 0, 8 - b->n);
}

static uint8_t paeth(int a, int b, int c) {
  const int pa = abs(b - c), pb = abs(a - c), pc = abs(a + b - 2 * c);
  return (uint8_t)(pa <= pb && pa <= pc ? a : pb <= pc ? b : c);
}

/* Rows of filter type and filtered bytes. */
static void filter_rows(const uint8_t *pixels, int64_t row, int height, int channels, uint8_t *to) {
  for (int y = 0; y < height; y++) {
    const uint8_t *at = pixels + y * row, *above = y > 0 ? at - row : NULL;
    uint8_t *line = to + y * (row + 1);
    int64_t least = -1;
    int chosen = 0;
    for (int pass = 0; pass < 6; pass++) { /* the fifth pass writes the best filter */
      const int type = pass < 5 ? pass : chosen;
      int64_t sum = 0;
      for (int64_t x = 0; x < row; x++) {
        const int a = x >= channels ? at[x - channels] : 0, b = above != NULL ? above[x] : 0;
        const int c = x >= channels && above != NULL ? above[x - channels] : 0;
        const uint8_t guess = type == 0   ? 0
                              : type == 1 ? (uint8_t)a
                              : type == 2 ? (uint8_t)b
                              : type == 3 ? (uint8_t)((a + b) / 2)
                                          : paeth(a, b, c);
        line[1 + x] = (uint8_t)(at[x] - guess);
        sum += abs((int8_t)line[1 + x]);
      }
      if (pass < 5 && (least < 0 || sum < least)) {
        least = sum;
        chosen = pass;
      }
    }
    line[0] = (uint8_t)chosen;
  }
}

static void put_be32(aci_strbuf *b, uint32_t v) {
  for (int i = 3; i >= 0; i--) aci_strbuf_putc(b, (char)(v >> 8 * i));
}

static void put_chunk(aci_strbuf *b, const char *type, const char *p, size_t n) {
  put_be32(b, (uint32_t)n);
  const size_t at = b->len;
  aci_strbuf_add(b, type, 4);
  if (n > 0) aci_strbuf_add(b, p, n);
  if (!b->failed) put_be32(b, aci_crc32(0, b->s + at, n + 4));
}

ac_status ac_png_encode(const uint8_t *pixels, int width, int height, int channels, char **out,
                        size_t *n, ac_err *e) {
  /* by channels: grey, grey and alpha, RGB, RGBA */
  static const uint8_t colour[] = {0, 0, 4, 2, 6};
  if (width < 1 || height < 1 || width > MAX_SIDE || height > MAX_SIDE || channels < 1 ||
      channels > 4)
    return AC_FAIL(
        e, INVALID,
        "an image of %d x %d pixels with %d channels: sides are 1 to %d, channels 1 to 4", width,
        height, channels, (int)MAX_SIDE);
  const int64_t row = (int64_t)width * channels, size = (row + 1) * height;
  uint8_t *lines = malloc((size_t)size);
  int32_t *head = calloc((1 << HASH_BITS) + WINDOW, sizeof *head);
  aci_strbuf data = {0}, file = {0};
  ac_status st = AC_OK;
  if (size > INT32_MAX - 1)
    st = AC_FAIL(e, INVALID, "an image of %d x %d pixels is too large", width, height);
  else if (lines == NULL || head == NULL) st = AC_FAIL(e, OOM, "no memory for an image");
  if (st == AC_OK) {
    filter_rows(pixels, row, height, channels, lines);
    aci_strbuf_add(&data, "\x78\x01", 2);
    deflate(&(bits){.out = &data}, lines, size, head, head + (1 << HASH_BITS));
    uint32_t a = 1, b = 0;
    for (int64_t i = 0; i < size; i++) {
      a = (a + lines[i]) % ADLER;
      b = (b + a) % ADLER;
    }
    put_be32(&data, b << 16 | a);
    const uint8_t ihdr[13] = {
        (uint8_t)(width >> 24), (uint8_t)(width >> 16),  (uint8_t)(width >> 8),
        (uint8_t)width,         (uint8_t)(height >> 24), (uint8_t)(height >> 16),
        (uint8_t)(height >> 8), (uint8_t)height,         8,
        colour[channels]};
    aci_strbuf_add(&file, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(&file, "IHDR", (const char *)ihdr, sizeof ihdr);
    put_chunk(&file, "IDAT", data.s, data.len);
    put_chunk(&file, "IEND", NULL, 0);
    *out = data.failed ? NULL : aci_strbuf_take(&file, n);
    if (*out == NULL) st = AC_FAIL(e, OOM, "no memory for an image");
  }
  if (st != AC_OK) aci_strbuf_fini(&file);
  aci_strbuf_fini(&data);
  free(lines);
  free(head);
  return st;
}
