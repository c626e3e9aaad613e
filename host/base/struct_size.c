/* Structs of options that programs pass with their size (struct_size.h). Called by every function
 * that takes one.
 *
 * Rules for such a struct, which keep older programs working: new fields are added at the end, 0
 * is the default of each, no field is removed or moved, and the last one ends at a multiple of 8
 * bytes, so that no field of a later version lies in the padding of an earlier one. */
#include "base/struct_size.h"

#include <string.h>

#include "accel/version.h"

enum { UNIT = sizeof(void *), MOST = 1 << 16 };

ac_status aci_struct_take(void *to, size_t size, const void *from, const char *name, ac_err *e) {
  size_t given = 0;
  memcpy(&given, from, sizeof given);
  if (given <= sizeof given || given % UNIT != 0 || given > MOST)
    return AC_FAIL(
        e, INVALID,
        "%s: struct_size is %zu, which is the size of no version of it; initialise it by its macro ..._INIT",
        name, given);
  const unsigned char *bytes = from;
  for (size_t i = size; i < given; i++)
    if (bytes[i] != 0)
      return AC_FAIL(
          e, UNSUPPORTED,
          "%s: this program was built for a newer version of accel (%zu bytes, accel %s knows %zu) "
          "and sets a field that this library lacks; update the library, or leave the field at 0",
          name, given, ac_version(), size);
  memcpy(to, from, given < size ? given : size);
  memcpy(to, &size, sizeof size);
  return AC_OK;
}
