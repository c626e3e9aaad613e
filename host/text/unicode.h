/* Properties of code points from Unicode, for normalizers, pre-tokenizers and regular expressions.
 *
 * Token ids depend on the version of Unicode that a step knows, and the steps of published
 * tokenizers know different ones: normalisation and combining marks 9.0, the categories of BERT's
 * cleaning and punctuation 8.0, regular expressions 16.0, digits and lower case 17.0. The tables
 * have version 17.0 with the age of each code point. */
#ifndef ACI_UNICODE_H
#define ACI_UNICODE_H
#include "accel/base.h"

/* Reads the tables, once. Every other function here needs it. OOM. */
ac_status aci_uni_open(ac_err *e);

typedef enum aci_uni_category {
  ACI_CN,
  ACI_LU,
  ACI_LL,
  ACI_LT,
  ACI_LM,
  ACI_LO,
  ACI_MN,
  ACI_MC,
  ACI_ME,
  ACI_ND,
  ACI_NL,
  ACI_NO,
  ACI_PC,
  ACI_PD,
  ACI_PS,
  ACI_PE,
  ACI_PI,
  ACI_PF,
  ACI_PO,
  ACI_SM,
  ACI_SC,
  ACI_SK,
  ACI_SO,
  ACI_ZS,
  ACI_ZL,
  ACI_ZP,
  ACI_CC,
  ACI_CF,
  ACI_CS,
  ACI_CO,
  ACI_UNI_CATEGORIES
} aci_uni_category;
enum { ACI_UNI_8, ACI_UNI_9, ACI_UNI_16, ACI_UNI_17 }; /* versions, as ages */
enum { ACI_UNI_LAST = 0x10FFFF };

/* Category in a version of Unicode. CN for code points that the version does not know. */
aci_uni_category aci_uni_category_of(uint32_t c, int version);
#define ACI_UNI_BIT(category) (1u << (category))
#define ACI_UNI_L                                                                          \
  (ACI_UNI_BIT(ACI_LU) | ACI_UNI_BIT(ACI_LL) | ACI_UNI_BIT(ACI_LT) | ACI_UNI_BIT(ACI_LM) | \
   ACI_UNI_BIT(ACI_LO))
#define ACI_UNI_M (ACI_UNI_BIT(ACI_MN) | ACI_UNI_BIT(ACI_MC) | ACI_UNI_BIT(ACI_ME))
#define ACI_UNI_N (ACI_UNI_BIT(ACI_ND) | ACI_UNI_BIT(ACI_NL) | ACI_UNI_BIT(ACI_NO))
#define ACI_UNI_P                                                                          \
  (ACI_UNI_BIT(ACI_PC) | ACI_UNI_BIT(ACI_PD) | ACI_UNI_BIT(ACI_PS) | ACI_UNI_BIT(ACI_PE) | \
   ACI_UNI_BIT(ACI_PI) | ACI_UNI_BIT(ACI_PF) | ACI_UNI_BIT(ACI_PO))
static inline bool aci_uni_is(uint32_t c, int version, uint32_t bits) {
  return (bits >> aci_uni_category_of(c, version) & 1) != 0;
}
/* The i-th run of code points of one category in every version, in order and without gaps. False:
 * there are no more. */
bool aci_uni_run(size_t i, uint32_t *first, uint32_t *last);

bool aci_uni_is_space(uint32_t c); /* White_Space */
/* \w of 16.0: letters, marks, decimal and letter numbers, connectors */
bool aci_uni_is_word(uint32_t c);
bool aci_uni_is_combining(uint32_t c);   /* a mark in 9.0 */
bool aci_uni_is_punctuation(uint32_t c); /* of ASCII, or P in 8.0 */
/* Lower case in 17.0. *more is a second code point, or 0. */
uint32_t aci_uni_lower(uint32_t c, uint32_t *more);
/* Calls fn for all pairs of code points that are the same when case is ignored (simple folding).
 * The caller must derive the pairs that follow from several. */
void aci_uni_case_pairs(void (*fn)(void *user, uint32_t a, uint32_t b), void *user);

uint32_t aci_uni_fold(uint32_t c); /* simple folding */
/* The i-th code point that folds to several when case is ignored. Returns their number. 0: there
 * are no more. */
int aci_uni_full_fold(size_t i, uint32_t *c, uint32_t out[3]);
/* The i-th run of code points that are not letters, but alphabetic, lower or upper case. False:
 * there are no more. */
enum { ACI_UNI_ALPHABETIC = 1, ACI_UNI_LOWER = 2, ACI_UNI_UPPER = 4 };
bool aci_uni_other(size_t i, uint32_t *first, uint32_t *last, uint32_t *bits);

/* ---- normalisation, 9.0 ---- */
int aci_uni_combining_class(uint32_t c);
enum { ACI_UNI_DECOMPOSED = 18 };
/* The full decomposition of c. Returns its length. A code point without one gives itself. */
int aci_uni_decompose(uint32_t c, bool compatible, uint32_t out[ACI_UNI_DECOMPOSED]);
uint32_t aci_uni_compose(uint32_t a, uint32_t b); /* 0: they do not compose */

/* ---- text ---- */
/* Bytes of the extended grapheme cluster at s. n > 0. */
size_t aci_uni_grapheme(const char *s, size_t n);
/* Script by its name as in \p{Han}. 0: unknown here. */
int aci_uni_script(const char *name, size_t n);
/* The i-th range of a script. false: there is none. */
bool aci_uni_script_range(int script, size_t i, uint32_t *first, uint32_t *last);
/* The number of the script of c in 17.0. Hiragana, Katakana and their long vowel are Han. 0: none. */
int aci_uni_joint_script(uint32_t c);

/* Reads the code point at s, which is valid UTF-8. Moves *s past it. */
static inline uint32_t aci_utf8_next(const char **s) {
  const unsigned char *p = (const unsigned char *)*s;
  if (p[0] < 0x80) return *s += 1, p[0];
  if (p[0] < 0xE0) return *s += 2, (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
  if (p[0] < 0xF0) return *s += 3, (p[0] & 0xFu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  return *s += 4, (p[0] & 0x7u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}
static inline int aci_utf8_size(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}
/* Writes c. Returns the number of bytes. */
static inline int aci_utf8_put(char *s, uint32_t c) {
  if (c < 0x80) return s[0] = (char)c, 1;
  if (c < 0x800) return s[0] = (char)(0xC0 | c >> 6), s[1] = (char)(0x80 | (c & 0x3F)), 2;
  if (c < 0x10000)
    return s[0] = (char)(0xE0 | c >> 12), s[1] = (char)(0x80 | (c >> 6 & 0x3F)),
           s[2] = (char)(0x80 | (c & 0x3F)), 3;
  s[0] = (char)(0xF0 | c >> 18), s[1] = (char)(0x80 | (c >> 12 & 0x3F));
  return s[2] = (char)(0x80 | (c >> 6 & 0x3F)), s[3] = (char)(0x80 | (c & 0x3F)), 4;
}
/* The code point that ends at s (s > start). Moves *s to its start. */
static inline uint32_t aci_utf8_before(const char **s) {
  const char *p = *s - 1;
  while (((unsigned char)*p & 0xC0) == 0x80) p--;
  *s = p;
  return aci_utf8_next(&p);
}
/* Whether all of it is valid UTF-8. */
bool aci_utf8_valid(const char *s, size_t n);

#endif
