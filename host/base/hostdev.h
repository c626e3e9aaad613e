/* AC_HOSTDEV marks functions that CPU kernels and CUDA kernels share: written once, compiled by
 * both compilers. */
#ifndef ACI_HOSTDEV_H
#define ACI_HOSTDEV_H

#ifdef __CUDACC__
#define AC_HOSTDEV __host__ __device__
#else
#define AC_HOSTDEV
#endif

/* Marks declarations, at the beginning of a line, of private functions that modules of devices may
 * call: the build writes the table by which they do (ops/core/gen/emit_calls.c). */
#define ACI_MODULE_API

/* Counts in structs that launchers of CUDA kernels (C++) read as well: there they are plain, and
 * never touched. */
#ifdef __cplusplus
#define AC_ATOMIC(T) T
#else
#define AC_ATOMIC(T) _Atomic T
#endif

#endif
