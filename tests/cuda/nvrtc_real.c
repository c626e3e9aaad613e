/* Compiles texts with the toolkit's own NVRTC, for chips of several generations: nvrtc_real FILE... Ends with 77 where it is not there. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/nvrtc.h"

#define FIELD(name, params) static int(*name) params;
ACI_NVRTC_CALLS(FIELD)

static char *read_file(const char *path) {
  FILE *f = fopen(path, "r");
  if (f == NULL || fseek(f, 0, SEEK_END) != 0) return NULL;
  const long n = ftell(f);
  char *s = calloc(1, (size_t)n + 1);
  rewind(f);
  if (s != NULL && fread(s, 1, (size_t)n, f) != (size_t)n) s[0] = '\0';
  fclose(f);
  return s;
}

static int compile(const char *text, const char *chip) {
  static const char *const names[] = ACI_NVRTC_NAMES, *const headers[] = ACI_NVRTC_HEADERS;
  const char *const options[] = {chip, "--fmad=false", "--std=c++17"};
  aci_nvrtc_program p;
  size_t n = 0;
  if (nvrtcCreateProgram(&p, text, "fused.cu", 3, headers, names) != 0) return 1;
  int rc = nvrtcCompileProgram(p, 3, options);
  if (rc != 0) {
    char *log = nvrtcGetProgramLogSize(p, &n) == 0 ? calloc(1, n + 1) : NULL;
    if (log != NULL && nvrtcGetProgramLog(p, log) == 0) printf("%s\n%s\n", chip, log);
    free(log);
  } else if (nvrtcGetCUBINSize(p, &n) != 0 || n == 0) {
    printf("%s: no machine code\n", chip);
    rc = 1;
  }
  nvrtcDestroyProgram(&p);
  return rc;
}

int main(int argc, char **argv) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"};
  void *h = NULL;
  for (size_t i = 0; i < sizeof names / sizeof names[0] && h == NULL; i++) h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (h == NULL) return 77;
  int missing = 0, bad = 0;
#define FIND(name, params)                 \
  {                                        \
    void *symbol = dlsym(h, #name);        \
    memcpy(&name, &symbol, sizeof symbol); \
    missing += symbol == NULL;             \
  }
  ACI_NVRTC_CALLS(FIND)
  if (missing > 0) return 1;
  for (int i = 1; i < argc; i++) {
    char *text = read_file(argv[i]);
    static const char *const chips[] = {"--gpu-architecture=sm_80", "--gpu-architecture=sm_90"};
    for (int k = 0; k < 2 && text != NULL; k++) bad += i % 2 == k && compile(text, chips[k]) != 0; /* each for one of them */
    bad += text == NULL;
    free(text);
  }
  return bad > 0;
}
