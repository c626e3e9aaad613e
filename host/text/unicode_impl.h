/* The streams of unicode_data.c, for unicode.c alone. */
#ifndef ACI_UNICODE_IMPL_H
#define ACI_UNICODE_IMPL_H
#include <stddef.h>

#define ACI_UCD_STREAM(name)                    \
  extern const size_t aci_ucd_##name##_numbers; \
  extern const char aci_ucd_##name[][109]

ACI_UCD_STREAM(category);      /* length - 1, category + 30 * age. All code points */
ACI_UCD_STREAM(grapheme);      /* gap, length - 1, class */
ACI_UCD_STREAM(combining);     /* gap, length - 1, combining class */
ACI_UCD_STREAM(decomposition); /* gap, 4 * (length - 1) + 2 * compatible + alone, differences */
ACI_UCD_STREAM(lower);         /* gap, 2 * (count - 1) + stride - 1, difference */
ACI_UCD_STREAM(fold);          /* gap, folded */
ACI_UCD_STREAM(script);        /* gap, length - 1, script */
ACI_UCD_STREAM(full);          /* gap, length - 2, code points */
ACI_UCD_STREAM(other);         /* gap, length - 1, bits of aci_uni_other */

#endif
