/* texts.h: a table of strings. */
#include "profile/texts.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash(const char *s, size_t n) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
  return h;
}

static int grow(aci_texts *t) {
  if (t->n == t->cap) {
    const uint32_t cap = t->cap == 0 ? 128 : t->cap * 2;
    char **text = realloc(t->text, cap * sizeof *text);
    if (text == NULL) return 0;
    t->text = text;
    t->cap = cap;
  }
  if (t->slots != NULL && t->n * 2 <= t->mask) return 1;
  const uint32_t size = t->slots == NULL ? 512 : (t->mask + 1) * 2;
  uint32_t *slots = calloc(size, sizeof *slots);
  if (slots == NULL) return 0;
  free(t->slots);
  t->slots = slots;
  t->mask = size - 1;
  for (uint32_t i = 0; i < t->n; i++) {
    uint32_t at = hash(t->text[i], strlen(t->text[i])) & t->mask;
    while (slots[at] != 0) at = (at + 1) & t->mask;
    slots[at] = i + 1;
  }
  return 1;
}

uint32_t aci_texts_add(aci_texts *t, const char *s, size_t n) {
  if (s == NULL || !grow(t)) return 0;
  uint32_t at = hash(s, n) & t->mask;
  for (; t->slots[at] != 0; at = (at + 1) & t->mask) {
    const char *have = t->text[t->slots[at] - 1];
    if (strncmp(have, s, n) == 0 && have[n] == 0) return t->slots[at];
  }
  char *copy = malloc(n + 1);
  if (copy == NULL) return 0;
  memcpy(copy, s, n);
  copy[n] = 0;
  t->text[t->n++] = copy;
  return t->slots[at] = t->n;
}

void aci_texts_fini(aci_texts *t) {
  for (uint32_t i = 0; i < t->n; i++) free(t->text[i]);
  free(t->text);
  free(t->slots);
  *t = (aci_texts){0};
}
