/* Input of a fuzz entry as a file without a name, for readers that take a path. */
#ifndef FUZZ_TEMPORARY_H
#define FUZZ_TEMPORARY_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

typedef struct temporary {
  int fd;
  char path[32];
} temporary;

static inline temporary temporary_of(const uint8_t *data, size_t n) {
  temporary t = {.fd = memfd_create("fuzz", 0)};
  REQUIRE(t.fd >= 0 && write(t.fd, data, n) == (ssize_t)n);
  snprintf(t.path, sizeof t.path, "/proc/self/fd/%d", t.fd);
  return t;
}

#endif
