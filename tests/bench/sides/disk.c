/* What the disk of a folder does, without accel: a file is written in order from aligned memory past the page cache, its space reserved,
 * and brought to disk; then read back, past the page cache and out of it. As `dd oflag=direct conv=fsync` and `dd iflag=direct`. Prints
 * one JSON object, GB/s, medians of three.
 *   disk FOLDER MiB */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4 << 20, REPEATS = 3 };
enum kind { WRITE, READ, READ_WARM, KINDS };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double run(const char *path, unsigned char *buf, size_t blocks, enum kind k) {
  const double start = now();
  const int fd = open(path, k == WRITE ? O_CREAT | O_TRUNC | O_WRONLY | O_DIRECT : k == READ ? O_RDONLY | O_DIRECT : O_RDONLY, 0600);
  if (fd < 0 || (k == WRITE && fallocate(fd, 0, 0, (off_t)(blocks * BLOCK)) != 0)) exit(1);
  for (size_t i = 0; i < blocks; i++) {
    const off_t at = (off_t)(i * BLOCK);
    unsigned char *p = buf + i % 8 * BLOCK;
    if ((k == WRITE ? pwrite(fd, p, BLOCK, at) : pread(fd, p, BLOCK, at)) != BLOCK) exit(1);
  }
  if (k == WRITE && fsync(fd) != 0) exit(1);
  close(fd);
  return (double)blocks * BLOCK / (now() - start) / 1e9;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  static const char *const names[KINDS] = {"write", "read", "read_warm"};
  char path[4096];
  double v[KINDS][REPEATS];
  if (argc != 3) return 2;
  const size_t blocks = (size_t)atoi(argv[2]) / 4;
  unsigned char *buf = aligned_alloc(4096, (size_t)8 * BLOCK);
  if (buf == NULL || blocks == 0) return 2;
  unsigned s = 1;
  for (size_t i = 0; i < (size_t)8 * BLOCK; i++) buf[i] = (unsigned char)((s = s * 1664525u + 1013904223u) >> 24);
  snprintf(path, sizeof path, "%s/disk.raw", argv[1]);
  for (int i = 0; i < REPEATS; i++)
    for (int k = WRITE; k <= READ; k++) v[k][i] = run(path, buf, blocks, (enum kind)k);
  run(path, buf, blocks, READ_WARM);
  for (int i = 0; i < REPEATS; i++) v[READ_WARM][i] = run(path, buf, blocks, READ_WARM);
  unlink(path);
  for (int k = 0; k < KINDS; k++) {
    qsort(v[k], REPEATS, sizeof v[k][0], by_value);
    printf("%s\"%s\": %.4f", k == 0 ? "{" : ", ", names[k], v[k][REPEATS / 2]);
  }
  printf("}\n");
  free(buf);
  return 0;
}
