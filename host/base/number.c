/* Numbers to text and back, the same in every locale. Called by params.c, json and everything that
 * prints values. */
#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A process constant: the C locale, made once, never freed. */
static locale_t c_locale;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

double aci_strtod(const char *s, char **end) {
  pthread_once(&once, make_locale);
  return c_locale == (locale_t)0 ? strtod(s, end) : strtod_l(s, end, c_locale);
}

size_t aci_f64_text(char buf[32], double v) {
  if (isnan(v)) return strlen(strcpy(buf, "nan"));
  if (isinf(v)) return strlen(strcpy(buf, v < 0 ? "-inf" : "inf"));
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(buf, 32, "%.*g", digits, v);
    /* the point of another locale is the only other byte */
    for (char *p = buf; *p != '\0'; p++)
      if (strchr("0123456789+-e", *p) == NULL) *p = '.';
    if (digits == 17 || aci_strtod(buf, NULL) == v) break; /* 17 digits always read back */
  }
  return strlen(buf);
}
