/* The part of NVRTC (versions 12 and 13) that fuse.cu calls, declared from its documentation. The
 * library is loaded when chains are first compiled, and is not needed to build. The twin's stand-in
 * (tests/cuda/twin/nvrtc.cpp) defines the same functions. Every call returns a status, 0 for
 * success. If the toolkit's header is available, nvrtc_check.cu compares. */
#ifndef ACI_OPS_CUDA_NVRTC_H
#define ACI_OPS_CUDA_NVRTC_H
#include <stddef.h>

enum { ACI_NVRTC_REFUSED = 6 }; /* NVRTC_ERROR_COMPILATION: the log has the reason */

typedef struct _nvrtcProgram *aci_nvrtc_program;

/* X(name, parameters) */
/* clang-format off */
#define ACI_NVRTC_CALLS(X)                                                                                                     \
  X(nvrtcVersion, (int *major, int *minor))                                                                                    \
  X(nvrtcCreateProgram,                                                                                                        \
    (aci_nvrtc_program *, const char *text, const char *name, int headers, const char *const *header, const char *const *names)) \
  X(nvrtcCompileProgram, (aci_nvrtc_program, int options, const char *const *option))                                          \
  X(nvrtcGetProgramLogSize, (aci_nvrtc_program, size_t *bytes))                                                                \
  X(nvrtcGetProgramLog, (aci_nvrtc_program, char *log))                                                                        \
  X(nvrtcGetCUBINSize, (aci_nvrtc_program, size_t *bytes))                                                                     \
  X(nvrtcGetCUBIN, (aci_nvrtc_program, char *code))                                                                            \
  X(nvrtcDestroyProgram, (aci_nvrtc_program *))
/* clang-format on */

/* Headers that a compiled text may include, and the options in addition to the chip: as for the
 * module's own kernels. */
#define ACI_NVRTC_NAMES \
  { "math.h", "stdint.h", "string.h" }
#define ACI_NVRTC_HEADERS                                                                                                          \
  {                                                                                                                                \
    "#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fffffff)\n"                                        \
    "#define __builtin_truncf truncf\n#define __builtin_sqrtf sqrtf\n#define __builtin_fabsf fabsf\n"                              \
    "#define __builtin_floorf floorf\n#define __builtin_ceilf ceilf\n#define __builtin_rintf rintf\n"                              \
    "#define __builtin_copysignf copysignf\n#define __builtin_trunc trunc\n#define __builtin_sqrt sqrt\n"                          \
    "#define __builtin_fabs fabs\n#define __builtin_floor floor\n#define __builtin_ceil ceil\n#define __builtin_rint rint\n"       \
    "#define __builtin_copysign copysign\n",                                                                                       \
        "typedef signed char int8_t;\ntypedef unsigned char uint8_t;\ntypedef short int16_t;\ntypedef unsigned short uint16_t;\n"  \
        "typedef int int32_t;\ntypedef unsigned int uint32_t;\ntypedef long long int64_t;\ntypedef unsigned long long uint64_t;\n" \
        "#define INT64_C(x) x##ll\n#define UINT64_C(x) x##ull\n#define INT64_MIN (-0x7fffffffffffffffll - 1)\n"                    \
        "#define INT64_MAX 0x7fffffffffffffffll\n",                                                                                \
        "\n"                                                                                                                       \
  }

#endif
