/* Names and classes of dtypes. Everything comes from AC_DTYPE_LIST. Called by all stages from here
 * on. */
#include "accel/tensor.h"

#include <string.h>

typedef struct row {
  const char *name, *torch;
  uint8_t bytes;
  char cls;
} row;

static const row rows[AC_DTYPE_COUNT] = {
#define AC_X(id, s, t, n, c) {s, t, n, c},
    AC_DTYPE_LIST(AC_X)
#undef AC_X
};

/* PyTorch's second names. */
static const struct {
  const char *name;
  ac_dtype dtype;
} aliases[] = {{"double", AC_F64},
               {"float", AC_F32},
               {"half", AC_F16},
               {"long", AC_I64},
               {"int", AC_I32},
               {"short", AC_I16},
               {"float8_e4m3", AC_F8_E4M3},
               {"cfloat", AC_C64},
               {"cdouble", AC_C128}};

const char *ac_dtype_name(ac_dtype d) { return (unsigned)d < AC_DTYPE_COUNT ? rows[d].name : "?"; }
size_t ac_dtype_bytes(ac_dtype d) { return (unsigned)d < AC_DTYPE_COUNT ? rows[d].bytes : 0; }
bool ac_dtype_is_float(ac_dtype d) { return (unsigned)d < AC_DTYPE_COUNT && rows[d].cls == 'f'; }
bool ac_dtype_is_complex(ac_dtype d) { return (unsigned)d < AC_DTYPE_COUNT && rows[d].cls == 'c'; }
bool ac_dtype_is_int(ac_dtype d) { return (unsigned)d < AC_DTYPE_COUNT && rows[d].cls == 'i'; }

bool ac_dtype_find(const char *name, ac_dtype *out) {
  for (int i = 0; i < AC_DTYPE_COUNT; i++) {
    if (strcmp(name, rows[i].name) != 0 && strcmp(name, rows[i].torch) != 0) continue;
    *out = (ac_dtype)i;
    return true;
  }
  for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
    if (strcmp(name, aliases[i].name) != 0) continue;
    *out = aliases[i].dtype;
    return true;
  }
  return false;
}
