/* The version of the library (accel/version.h). */
#include "accel/version.h"

const char *ac_version(void) { return AC_VERSION; }
int ac_version_number(void) { return AC_VERSION_NUMBER; }
