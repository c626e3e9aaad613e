/* Stands in for NVRTC in the twin's tests: takes what the library would (options, a chip that there is, headers by name), and has the system's
 * C++ compiler make the same text into a shared library, whose kernel the twin runs (library.cpp). CUDA_TWIN_NVRTC_REFUSE=1: refuses every
 * text. CUDA_TWIN_NVRTC_TEXTS names a folder that gets the texts, and a line of options each. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

#include "ops/cuda/nvrtc.h"

struct _nvrtcProgram {
  std::string text, log, code;
};

static const char BEFORE[] =
    "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n#include <stddef.h>\n"
    "#define __device__\n#define __global__\n#define __forceinline__ inline\n#define __launch_bounds__(...)\n#define __grid_constant__\n"
    "struct three { unsigned x, y, z; };\nstruct place { three thread, block, blocks, threads; };\nstatic thread_local place *here;\n"
    "#define threadIdx (here->thread)\n#define blockIdx (here->block)\n#define gridDim (here->blocks)\n#define blockDim (here->threads)\n";
static const char AFTER[] =
    "\nextern \"C\" __attribute__((visibility(\"default\"))) const size_t emulated_bytes = sizeof(args);\n"
    "extern \"C\" __attribute__((visibility(\"default\"))) void emulated_enter(place *p, void *a) { here = p; fused(*(const args *)a); }\n";

static bool write_file(const std::string &path, const std::string &text) {
  FILE *f = fopen(path.c_str(), "w");
  if (f == NULL) return false;
  const bool ok = fwrite(text.data(), 1, text.size(), f) == text.size();
  return fclose(f) == 0 && ok;
}
static std::string read_file(const std::string &path) {
  std::string s;
  FILE *f = fopen(path.c_str(), "r");
  char buf[65536];
  for (size_t n; f != NULL && (n = fread(buf, 1, sizeof buf, f)) > 0;) s.append(buf, n);
  if (f != NULL) fclose(f);
  return s;
}

#pragma GCC visibility push(default)
extern "C" {
int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, 0; }

int nvrtcCreateProgram(aci_nvrtc_program *p, const char *text, const char *, int headers, const char *const *header, const char *const *names) {
  std::string all = text;
  for (size_t at = 0; (at = all.find("#include <", at)) != std::string::npos; at++) { /* it has no files */
    const std::string name = all.substr(at + 10, all.find('>', at) - at - 10);
    bool given = false;
    for (int i = 0; i < headers; i++) given |= name == names[i] && header[i] != NULL;
    if (!given) return fprintf(stderr, "nvrtc: no header %s\n", name.c_str()), 5;
  }
  *p = new _nvrtcProgram{all, "", ""};
  return 0;
}

int nvrtcCompileProgram(aci_nvrtc_program p, int n, const char *const *option) {
  bool chip = false, rounds = false, standard = false;
  std::string line;
  for (int i = 0; i < n; i++) {
    int sm = 0;
    chip |= sscanf(option[i], "--gpu-architecture=sm_%d", &sm) == 1 && sm >= 75 && sm < 130;
    rounds |= strcmp(option[i], "--fmad=false") == 0;
    standard |= strcmp(option[i], "--std=c++17") == 0;
    line += std::string(option[i]) + " ";
  }
  if (!chip || !rounds || !standard || n != 3) return p->log = "error: options " + line, 5;
  if (getenv("CUDA_TWIN_NVRTC_REFUSE") != NULL) return p->log = "fused.cu(1): error: refused\n", ACI_NVRTC_REFUSED;
  if (p->text.find("extern \"C\" __global__ void") == std::string::npos) return p->log = "error: no kernel", ACI_NVRTC_REFUSED;
  char dir[] = "/tmp/accel_nvrtc_XXXXXX";
  if (mkdtemp(dir) == NULL) return 1;
  const std::string base = dir, from = base + "/fused.cpp", to = base + "/fused.so", log = base + "/log";
  const char *folder = getenv("CUDA_TWIN_NVRTC_TEXTS");
  static int number;
  if (folder != NULL) write_file(std::string(folder) + "/" + std::to_string(getpid()) + "_" + std::to_string(++number) + ".cu", p->text);
  write_file(from, BEFORE + p->text + AFTER);
  const std::string command = "c++ -std=gnu++17 -O1 -ffp-contract=off -fno-math-errno -fwrapv -fPIC -shared -fvisibility=hidden -o " + to + " " +
                              from + " >" + log + " 2>&1";
  const int rc = system(command.c_str());
  if (rc == 0) p->code = read_file(to);
  else p->log = read_file(log);
  for (const std::string &f : {from, to, log}) unlink(f.c_str());
  rmdir(dir);
  return rc == 0 ? 0 : ACI_NVRTC_REFUSED;
}

int nvrtcGetProgramLogSize(aci_nvrtc_program p, size_t *n) { return *n = p->log.size() + 1, 0; }
int nvrtcGetProgramLog(aci_nvrtc_program p, char *log) { return memcpy(log, p->log.c_str(), p->log.size() + 1), 0; }
int nvrtcGetCUBINSize(aci_nvrtc_program p, size_t *n) { return *n = p->code.size() + 16, 0; }
int nvrtcGetCUBIN(aci_nvrtc_program p, char *code) {
  const size_t bytes = p->code.size();
  memcpy(code, "twincode", 8);
  memcpy(code + 8, &bytes, 8);
  memcpy(code + 16, p->code.data(), bytes);
  return 0;
}
int nvrtcDestroyProgram(aci_nvrtc_program *p) {
  delete *p;
  *p = NULL;
  return 0;
}
}
