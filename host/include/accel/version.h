/* accel/version.h - the version of these headers, and of the library that a program runs with.
 *
 * Both follow the rules of the guide "embedding": a patch version mends faults, a minor one adds,
 * and a major one may remove. Before 1.0 a minor version may remove as well, and changes the soname
 * (libaccel.so.0.1). All functions here may be called from any thread and at any time. */
#ifndef ACCEL_VERSION_H
#define ACCEL_VERSION_H
#include "accel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The root CMakeLists.txt reads these three lines: the version is written here alone. */
#define AC_VERSION_MAJOR 0
#define AC_VERSION_MINOR 1
#define AC_VERSION_PATCH 0

#define AC_VERSION_TEXT_(x) #x
#define AC_VERSION_JOIN_(a, b, c) \
  AC_VERSION_TEXT_(a) "." AC_VERSION_TEXT_(b) "." AC_VERSION_TEXT_(c)
/* "0.1.0" */
#define AC_VERSION AC_VERSION_JOIN_(AC_VERSION_MAJOR, AC_VERSION_MINOR, AC_VERSION_PATCH)
/* 1000 for 0.1.0, 2003004 for 2.3.4: versions compare as numbers, and in #if. */
#define AC_VERSION_NUMBER (AC_VERSION_MAJOR * 1000000 + AC_VERSION_MINOR * 1000 + AC_VERSION_PATCH)

/* AC_VERSION of the library, which may be newer than the headers that a program was built with.
 * Static text. */
AC_API const char *ac_version(void);
/* AC_VERSION_NUMBER of the library. */
AC_API int ac_version_number(void);

#ifdef __cplusplus
}
#endif
#endif
