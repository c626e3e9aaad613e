/* Numbers to text and back, the same in every locale. Used by parameters, JSON and printing. */
#ifndef ACI_NUMBER_H
#define ACI_NUMBER_H
#include <stddef.h>

/* strtod with "." as the decimal point whatever the program's locale is. Correctly rounded, errno
 * as strtod sets it. */
double aci_strtod(const char *s, char **end);
/* The shortest text that reads back as v ("0.1", "1e+300", integers without ".0"). NaN and
 * infinities are "nan", "inf", "-inf". Returns the length. Buf holds at least 32 bytes. */
size_t aci_f64_text(char buf[32], double v);

#endif
