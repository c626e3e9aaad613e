/* Texts that come again and again, each kept once under a number. Called by the recorder. */
#ifndef ACI_PROFILE_TEXTS_H
#define ACI_PROFILE_TEXTS_H
#include <stddef.h>
#include <stdint.h>

typedef struct aci_texts {
  char **text; /* by number - 1. malloc'ed */
  uint32_t n, cap;
  uint32_t *slots; /* open addressing by hash: number, 0 free */
  uint32_t mask;
} aci_texts; /* all zero: empty */

/* The number of a text, from 1. 0 for NULL, or without memory. */
uint32_t aci_texts_add(aci_texts *t, const char *s, size_t n);
static inline const char *aci_texts_get(const aci_texts *t, uint32_t number) {
  return number == 0 ? NULL : t->text[number - 1];
}
void aci_texts_fini(aci_texts *t);

#endif
