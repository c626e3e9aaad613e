/* Stands in for libFuzzer: runs an entry over every file of the folders given, over each file cut at every
 * byte, over each with one byte changed in every way (-every=N: of N ways one, of the next byte the next one), and over random mixtures of
 * them, the same in every run. A fault ends the program; the
 * file and what was done to it are printed by the handler, and a mixture is kept in the file crash-input.
 *   fuzz_<what> [-every=N] [-seconds=S] [-runs=N] [-seed=N] FOLDER...     of random mixtures: at most N, for at most S seconds [20000, 10, 1]
 *   fuzz_<what> FILE                                           this file alone */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MOST = 1 << 16, CHANGE_UP_TO = 2048 };
static char at[512];
static uint8_t *mixture; /* the one that runs */
static size_t n_mixture;
static size_t every = 1;

static void say_where(int sig) {
  (void)!write(2, at, strlen(at));
  FILE *f = mixture != NULL ? fopen("crash-input", "wb") : NULL; /* not safe in a handler, but we are lost anyway */
  if (f != NULL) {
    fwrite(mixture, 1, n_mixture, f);
    fclose(f);
  }
  signal(sig, SIG_DFL);
  raise(sig);
}

static size_t run_file(const char *path, bool change) {
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
  if (n > CHANGE_UP_TO || !change) return runs;
  for (size_t i = 0; i < n; i++, runs++) {
    snprintf(at, sizeof at, "%.400s cut to %zu bytes\n", path, i);
    LLVMFuzzerTestOneInput(bytes, i);
  }
  for (size_t i = 0; i < n; i++) {
    uint8_t was = bytes[i];
    for (size_t k = i % every; k < sizeof others + 8; k += every, runs++) {
      bytes[i] = k < 8 ? (uint8_t)(was ^ 1u << k) : others[k - 8];
      snprintf(at, sizeof at, "%.400s with byte %zu changed to %d\n", path, i, bytes[i]);
      LLVMFuzzerTestOneInput(bytes, n);
    }
    bytes[i] = was;
  }
  return runs;
}

/* ---- random mixtures ---- */
enum { MOST_FILES = 4096, LONGEST = 1024 };
static struct {
  uint8_t *bytes;
  size_t n;
} files[MOST_FILES];
static size_t n_files;
static uint64_t state;

static uint64_t draw(uint64_t n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (state >> 11) % n;
}

static void remember(const char *path) {
  FILE *f = fopen(path, "rb");
  if (f == NULL || n_files == MOST_FILES) return;
  uint8_t *b = malloc(LONGEST);
  if (b != NULL) {
    files[n_files].n = fread(b, 1, LONGEST, f);
    files[n_files++].bytes = b;
  }
  fclose(f);
}

/* A piece of one file before a piece of another, some bytes changed, or noise. */
static size_t mix(uint8_t *out) {
  size_t n = 0;
  if (n_files > 0 && draw(4) > 0) {
    for (int k = 0; k < 2; k++) {
      const size_t i = draw(n_files), len = files[i].n, from = len > 0 ? draw(len) : 0, m = draw(len - from + 1);
      if (k == 1 && draw(2) == 0) break;
      const size_t start = k == 0 ? 0 : from, count = k == 0 ? from + m : m;
      memcpy(out + n, files[i].bytes + start, count);
      n += count;
    }
  } else {
    n = draw(120);
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)draw(256);
  }
  for (uint64_t k = draw(6); k > 0 && n > 0; k--) out[draw(n)] = (uint8_t)draw(256);
  return n;
}

static size_t run_mixtures(size_t most, double seconds) {
  struct timespec begin, now;
  uint8_t *big = malloc(2 * LONGEST);
  size_t runs = 0;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  while (big != NULL && runs < most) {
    n_mixture = mix(big);
    mixture = malloc(n_mixture + (n_mixture == 0)); /* exact, for sanitizers */
    if (mixture == NULL) break;
    memcpy(mixture, big, n_mixture);
    snprintf(at, sizeof at, "random mixture %zu, kept in crash-input\n", runs);
    LLVMFuzzerTestOneInput(mixture, n_mixture);
    free(mixture);
    mixture = NULL;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (++runs % 16 == 0 && (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec) > seconds) break;
  }
  free(big);
  return runs;
}

static size_t run_folder(const char *path) {
  size_t runs = 0;
  DIR *d = opendir(path);
  if (d == NULL) {
    perror(path);
    exit(2);
  }
  for (struct dirent *x; (x = readdir(d)) != NULL;) {
    char file[4096];
    if (x->d_name[0] == '.') continue;
    snprintf(file, sizeof file, "%s/%s", path, x->d_name);
    runs += run_file(file, true);
    remember(file);
  }
  closedir(d);
  return runs;
}

int main(int argc, char **argv) {
  size_t runs = 0, most = 20000;
  double seconds = 10;
  struct stat st;
  state = 1;
  signal(SIGABRT, say_where);
  signal(SIGSEGV, say_where);
  signal(SIGFPE, say_where);
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "-seconds=", 9) == 0) seconds = atof(argv[i] + 9);
    else if (strncmp(argv[i], "-every=", 7) == 0) every = strtoull(argv[i] + 7, NULL, 10), every += every == 0;
    else if (strncmp(argv[i], "-runs=", 6) == 0) most = strtoull(argv[i] + 6, NULL, 10);
    else if (strncmp(argv[i], "-seed=", 6) == 0) state = strtoull(argv[i] + 6, NULL, 10) * 2 + 1;
    else if (stat(argv[i], &st) == 0 && S_ISREG(st.st_mode)) runs += run_file(argv[i], false), most = 0;
    else runs += run_folder(argv[i]);
  }
  state = state * 0x9E3779B97F4A7C15u | 1;
  const size_t mixed = run_mixtures(most, seconds);
  printf("%zu files, %zu runs, %zu of random mixtures\n", n_files, runs, mixed);
  for (size_t i = 0; i < n_files; i++) free(files[i].bytes);
  return runs > 0 ? 0 : 2;
}
