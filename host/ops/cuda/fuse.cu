/* Chains of maps compiled by NVRTC while a program runs: the compiler that ops/core/fuse_device.c
 * needs. */
#include "ops/core/fuse_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/nvrtc.h"
#ifdef ACI_CUDA_EMULATED
#include <cuda_library.h>
#endif

/* map.cu */
ac_status aci_cuda_run_plan(const ac_frame *f, const aci_map_loop *loop, const aci_map_plan *p,
                            ac_err *e);

namespace {
struct library {
#define FIELD(name, params) int(*name) params;
  ACI_NVRTC_CALLS(FIELD)
#undef FIELD
  bool there, ready;
};

library open_library() {
  library l = {};
  void *h = NULL;
#ifdef ACI_CUDA_EMULATED /* it has a stand-in of its own, which compiles for the CPU */
  const char *name = getenv("CUDA_TWIN_NVRTC");
  if (name != NULL) h = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#else
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  for (size_t i = 0; i < 3 && h == NULL; i++)
    h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#endif
  if (h == NULL) return l;
  l.there = l.ready = true;
#define FIND(name, params) l.ready = (l.name = (int(*) params)dlsym(h, #name)) != NULL && l.ready;
  ACI_NVRTC_CALLS(FIND)
#undef FIND
  return l;
}
const library &nvrtc() {
  static const library l = open_library();
  return l;
}

/* 10 major + minor. 0: the driver does not report it. */
int chip_of(const ac_device *d) {
  cudaDeviceProp prop;
  return cudaGetDeviceProperties(&prop, aci_cuda_of(d)->ordinal) == cudaSuccess
             ? prop.major * 10 + prop.minor
             : 0;
}

const char *const OPTIONS[] = {"--fmad=false", "--std=c++17"},
                  *const HEADER_NAMES[] = ACI_NVRTC_NAMES, *const HEADERS[] = ACI_NVRTC_HEADERS;

/* FNV-1a of everything that a text is compiled with. */
uint32_t surroundings() {
  uint32_t h = 0x811C9DC5;
  const char *const *lists[] = {OPTIONS, HEADER_NAMES, HEADERS};
  const size_t n[] = {sizeof OPTIONS / sizeof *OPTIONS, sizeof HEADER_NAMES / sizeof *HEADER_NAMES,
                      sizeof HEADERS / sizeof *HEADERS};
  for (int i = 0; i < 3; i++)
    for (size_t k = 0; k < n[i]; k++)
      for (const char *p = lists[i][k]; *p != '\0'; p++) h = (h ^ (unsigned char)*p) * 0x01000193;
  return h;
}

bool target(const ac_device *d, char *text, size_t n, char *why, size_t room) {
  const library &l = nvrtc();
  int major = 0, minor = 0, chip;
  if (!l.there) snprintf(why, room, "libnvrtc is missing; install the CUDA toolkit");
  else if (!l.ready || l.nvrtcVersion(&major, &minor) != 0)
    snprintf(why, room, "libnvrtc has an unknown version");
  else if ((chip = chip_of(d)) == 0) snprintf(why, room, "the driver does not report the chip");
  else return snprintf(text, n, "sm_%d nvrtc %d.%d %08x", chip, major, minor, surroundings()), true;
  return false;
}

/* The first line of the compiler's output that reports an error. */
void complaint(const library &l, aci_nvrtc_program p, char *why, size_t room) {
  size_t n = 0;
  snprintf(why, room, "NVRTC refuses its text");
  if (l.nvrtcGetProgramLogSize(p, &n) != 0 || n < 2) return;
  char *log = (char *)calloc(1, n + 1);
  if (log != NULL && l.nvrtcGetProgramLog(p, log) == 0) {
    const char *at = strstr(log, "error");
    while (at != NULL && at > log && at[-1] != '\n') at--;
    if (at == NULL) at = log;
    snprintf(why, room, "NVRTC: %.*s", (int)strcspn(at, "\n"), at);
  }
  free(log);
}

bool compile(const ac_device *d, const char *text, char **code, size_t *bytes, char *why,
             size_t room) {
  const library &l = nvrtc();
  char chip[48];
  snprintf(chip, sizeof chip, "--gpu-architecture=sm_%d", chip_of(d));
  const char *const options[] = {chip, OPTIONS[0], OPTIONS[1]};
  aci_nvrtc_program p = NULL;
  *code = NULL;
  if (l.nvrtcCreateProgram(&p, text, "fused.cu", sizeof HEADERS / sizeof *HEADERS, HEADERS,
                           HEADER_NAMES) != 0)
    return snprintf(why, room, "NVRTC takes no text"), false;
  if (l.nvrtcCompileProgram(p, 3, options) != 0) complaint(l, p, why, room);
  else if (l.nvrtcGetCUBINSize(p, bytes) != 0 || *bytes == 0 ||
           (*code = (char *)malloc(*bytes)) == NULL || l.nvrtcGetCUBIN(p, *code) != 0) {
    free(*code);
    *code = NULL;
    snprintf(why, room, "NVRTC gives no machine code");
  }
  l.nvrtcDestroyProgram(&p);
  return *code != NULL;
}

ac_status load(const ac_device *d, const void *code, size_t bytes, void **kernel, ac_err *e) {
  cudaLibrary_t l;
  cudaKernel_t k;
  (void)bytes;
  AC_TRY(aci_cuda_enter(d, e));
  AC_TRY(aci_cuda_check(d, cudaLibraryLoadData(&l, code, NULL, NULL, 0, NULL, NULL, 0),
                        "load a kernel", e));
  AC_TRY(aci_cuda_check(d, cudaLibraryGetKernel(&k, l, "fused"), "find a kernel", e));
  *kernel = (void *)k;
  return AC_OK;
}

ac_status launch(const ac_frame *f, void *kernel, const aci_fuse_args *args, ac_err *e) {
  AC_TRY(aci_cuda_enter(f->device, e));
  const cudaStream_t s = aci_cuda_stream(f->device, f->stream);
  void *list[] = {(void *)args};
  AC_TRY(aci_cuda_check(f->device,
                        cudaLaunchKernel((const void *)kernel, dim3(aci_blocks(f->device, args->n)),
                                         dim3(ACI_BLOCK), list, 0, s),
                        "launch of a chain of maps", e));
  return aci_launched(f, s, "chain of maps", e);
}
} // namespace

extern "C" AC_API const aci_fuse_device *accel_fuse_device() {
  static const aci_fuse_device d = {target, compile, load, launch, aci_cuda_run_plan};
  return &d;
}
