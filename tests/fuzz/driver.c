/* Stands in for libFuzzer: runs an entry over every file of the folders given, over each file cut at every
 * byte, and over each with one byte changed, the same in every run. A fault ends the program; the file and
 * what was done to it are printed by the handler. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MOST = 1 << 16, CHANGE_UP_TO = 2048 };
static char at[512];

static void say_where(int sig) {
  (void)!write(2, at, strlen(at));
  signal(sig, SIG_DFL);
  raise(sig);
}

static size_t run_file(const char *path) {
  static uint8_t bytes[MOST];
  static const uint8_t others[] = {0, '"', '\\', '{', '}', '[', ']', ',', ':', '9', '-', ' ', 0x80, 0xff};
  FILE *f = fopen(path, "rb");
  if (f == NULL) {
    perror(path);
    exit(2);
  }
  size_t n = fread(bytes, 1, MOST, f), runs = 1;
  fclose(f);
  snprintf(at, sizeof at, "%.400s as it is\n", path);
  LLVMFuzzerTestOneInput(bytes, n);
  if (n > CHANGE_UP_TO) return runs;
  for (size_t i = 0; i < n; i++, runs++) {
    snprintf(at, sizeof at, "%.400s cut to %zu bytes\n", path, i);
    LLVMFuzzerTestOneInput(bytes, i);
  }
  for (size_t i = 0; i < n; i++) {
    uint8_t was = bytes[i];
    for (size_t k = 0; k < sizeof others + 8; k++, runs++) {
      bytes[i] = k < 8 ? (uint8_t)(was ^ 1u << k) : others[k - 8];
      snprintf(at, sizeof at, "%.400s with byte %zu changed to %d\n", path, i, bytes[i]);
      LLVMFuzzerTestOneInput(bytes, n);
    }
    bytes[i] = was;
  }
  return runs;
}

int main(int argc, char **argv) {
  size_t files = 0, runs = 0;
  signal(SIGABRT, say_where);
  signal(SIGSEGV, say_where);
  for (int i = 1; i < argc; i++) {
    DIR *d = opendir(argv[i]);
    if (d == NULL) {
      perror(argv[i]);
      return 2;
    }
    for (struct dirent *x; (x = readdir(d)) != NULL;) {
      char path[4096];
      if (x->d_name[0] == '.') continue;
      snprintf(path, sizeof path, "%s/%s", argv[i], x->d_name);
      runs += run_file(path);
      files++;
    }
    closedir(d);
  }
  printf("%zu files, %zu runs\n", files, runs);
  return files > 0 ? 0 : 2;
}
