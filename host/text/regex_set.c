/* Sets of code points: sorted ranges, and those that patterns name. Called by the parser of regular
 * expressions. */
#include <stdlib.h>
#include <string.h>

#include "text/regex_impl.h"
#include "text/unicode.h"

static bool grow(aci_rx_set *s, uint32_t n) {
  if (n <= s->cap) return true;
  const uint32_t cap = n + n / 2 + 4;
  uint32_t(*r)[2] = realloc(s->r, cap * sizeof *r);
  if (r == NULL) return false;
  s->r = r;
  s->cap = cap;
  return true;
}

/* The first range that ends at c - 1 or later, so that c could join it. */
static uint32_t find_range(const aci_rx_set *s, uint32_t c) {
  uint32_t lo = 0, hi = s->n;
  while (lo < hi) {
    const uint32_t mid = (lo + hi) / 2;
    if (s->r[mid][1] + 1 < c) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

bool aci_rx_add(aci_rx_set *s, uint32_t first, uint32_t last) {
  if (first > last) return true;
  const uint32_t i = find_range(s, first);
  uint32_t k = i;
  while (k < s->n && s->r[k][0] <= last + 1) k++;
  if (k > i) {
    if (s->r[i][0] < first) first = s->r[i][0];
    if (s->r[k - 1][1] > last) last = s->r[k - 1][1];
  }
  if (!grow(s, s->n + 1 - (k - i))) return false;
  memmove(s->r + i + 1, s->r + k, (s->n - k) * sizeof *s->r);
  s->n = s->n + 1 - (k - i);
  s->r[i][0] = first;
  s->r[i][1] = last;
  return true;
}

bool aci_rx_unite(aci_rx_set *s, const aci_rx_set *other) {
  aci_rx_set sum = {.edge = s->edge || other->edge};
  if (!grow(&sum, s->n + other->n + 1)) return false;
  uint32_t i = 0, k = 0;
  while (i < s->n || k < other->n) {
    const bool mine = k == other->n || (i < s->n && s->r[i][0] <= other->r[k][0]);
    const uint32_t *r = mine ? s->r[i++] : other->r[k++];
    if (sum.n > 0 && r[0] <= sum.r[sum.n - 1][1] + 1) {
      if (r[1] > sum.r[sum.n - 1][1]) sum.r[sum.n - 1][1] = r[1];
    } else {
      sum.r[sum.n][0] = r[0];
      sum.r[sum.n++][1] = r[1];
    }
  }
  free(s->r);
  *s = sum;
  return true;
}

bool aci_rx_complement(aci_rx_set *s) {
  aci_rx_set rest = {.edge = s->edge};
  if (!grow(&rest, s->n + 1)) return false;
  uint32_t at = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    if (s->r[i][0] > at) rest.r[rest.n][0] = at, rest.r[rest.n++][1] = s->r[i][0] - 1;
    at = s->r[i][1] + 1;
  }
  if (at <= ACI_UNI_LAST) rest.r[rest.n][0] = at, rest.r[rest.n++][1] = ACI_UNI_LAST;
  free(s->r);
  *s = rest;
  return true;
}

bool aci_rx_intersect(aci_rx_set *s, const aci_rx_set *other) {
  aci_rx_set both = {.edge = s->edge && other->edge};
  if (!grow(&both, s->n + other->n + 1)) return false;
  for (uint32_t i = 0, k = 0; i < s->n && k < other->n;) {
    const uint32_t first = s->r[i][0] > other->r[k][0] ? s->r[i][0] : other->r[k][0];
    const uint32_t last = s->r[i][1] < other->r[k][1] ? s->r[i][1] : other->r[k][1];
    if (first <= last) both.r[both.n][0] = first, both.r[both.n++][1] = last;
    if (s->r[i][1] < other->r[k][1]) i++;
    else k++;
  }
  free(s->r);
  *s = both;
  return true;
}

bool aci_rx_has(const aci_rx_set *s, uint32_t c) {
  const uint32_t i = find_range(s, c + 1);
  return i < s->n && s->r[i][0] <= c && c <= s->r[i][1];
}

/* ---- ignoring case ---- */
typedef struct closing {
  aci_rx_set *s;
  bool ok, changed;
} closing;

static void close_pair(void *user, uint32_t a, uint32_t b) {
  closing *c = user;
  const bool has_a = aci_rx_has(c->s, a), has_b = aci_rx_has(c->s, b);
  if (has_a == has_b || !c->ok) return;
  c->ok = has_a ? aci_rx_add(c->s, b, b) : aci_rx_add(c->s, a, a);
  c->changed = true;
}

bool aci_rx_close_case(aci_rx_set *s) {
  closing c = {s, true, true};
  while (c.ok && c.changed) {
    c.changed = false;
    aci_uni_case_pairs(close_pair, &c);
  }
  return c.ok;
}

/* ---- sets by name ---- */
static bool add_categories(aci_rx_set *s, uint32_t bits) {
  aci_rx_set found = {0};
  bool ok = true;
  uint32_t first, last;
  for (size_t i = 0; ok && aci_uni_run(i, &first, &last); i++)
    if (aci_uni_is(first, ACI_UNI_16, bits)) ok = aci_rx_add(&found, first, last);
  ok = ok && aci_rx_unite(s, &found);
  free(found.r);
  return ok;
}

bool aci_rx_add_space(aci_rx_set *s) {
  return aci_rx_add(s, 9, 13) && aci_rx_add(s, 32, 32) && aci_rx_add(s, 0x85, 0x85) &&
         aci_rx_add(s, 0xA0, 0xA0) && aci_rx_add(s, 0x1680, 0x1680) &&
         aci_rx_add(s, 0x2000, 0x200A) && aci_rx_add(s, 0x2028, 0x2029) &&
         aci_rx_add(s, 0x202F, 0x202F) && aci_rx_add(s, 0x205F, 0x205F) &&
         aci_rx_add(s, 0x3000, 0x3000);
}

bool aci_rx_add_word(aci_rx_set *s, bool outside) {
  aci_rx_set found = {0};
  bool ok = !outside || (aci_rx_add(&found, 0xB2, 0xB3) && aci_rx_add(&found, 0xB9, 0xB9) &&
                         aci_rx_add(&found, 0xBC, 0xBE));
  uint32_t first, last;
  for (size_t i = 0; ok && aci_uni_run(i, &first, &last); i++) {
    /* whether a symbol is a word character does not go by ranges: those are checked one by one */
    if (!aci_uni_is(first, ACI_UNI_16, ACI_UNI_BIT(ACI_SO))) {
      if (aci_uni_is_word(first)) ok = aci_rx_add(&found, first, last);
      continue;
    }
    for (uint32_t c = first; ok && c <= last; c++)
      if (aci_uni_is_word(c)) ok = aci_rx_add(&found, c, c);
  }
  ok = ok && aci_rx_unite(s, &found);
  free(found.r);
  return ok;
}

typedef struct property {
  const char *name; /* lower case, without blanks and underscores */
  uint32_t bits;
} property;

#define B ACI_UNI_BIT
static const property properties[] = {
    {"l", ACI_UNI_L},
    {"letter", ACI_UNI_L},
    {"m", ACI_UNI_M},
    {"mark", ACI_UNI_M},
    {"n", ACI_UNI_N},
    {"number", ACI_UNI_N},
    {"p", ACI_UNI_P},
    {"punctuation", ACI_UNI_P},
    {"lu", B(ACI_LU)},
    {"uppercaseletter", B(ACI_LU)},
    {"ll", B(ACI_LL)},
    {"lowercaseletter", B(ACI_LL)},
    {"lt", B(ACI_LT)},
    {"titlecaseletter", B(ACI_LT)},
    {"lm", B(ACI_LM)},
    {"modifierletter", B(ACI_LM)},
    {"lo", B(ACI_LO)},
    {"otherletter", B(ACI_LO)},
    {"mn", B(ACI_MN)},
    {"nonspacingmark", B(ACI_MN)},
    {"mc", B(ACI_MC)},
    {"spacingmark", B(ACI_MC)},
    {"me", B(ACI_ME)},
    {"enclosingmark", B(ACI_ME)},
    {"nd", B(ACI_ND)},
    {"decimalnumber", B(ACI_ND)},
    {"digit", B(ACI_ND)},
    {"nl", B(ACI_NL)},
    {"letternumber", B(ACI_NL)},
    {"no", B(ACI_NO)},
    {"othernumber", B(ACI_NO)},
    {"pc", B(ACI_PC)},
    {"connectorpunctuation", B(ACI_PC)},
    {"pd", B(ACI_PD)},
    {"dashpunctuation", B(ACI_PD)},
    {"ps", B(ACI_PS)},
    {"openpunctuation", B(ACI_PS)},
    {"pe", B(ACI_PE)},
    {"closepunctuation", B(ACI_PE)},
    {"pi", B(ACI_PI)},
    {"initialpunctuation", B(ACI_PI)},
    {"pf", B(ACI_PF)},
    {"finalpunctuation", B(ACI_PF)},
    {"po", B(ACI_PO)},
    {"otherpunctuation", B(ACI_PO)},
    {"s", B(ACI_SM) | B(ACI_SC) | B(ACI_SK) | B(ACI_SO)},
    {"symbol", B(ACI_SM) | B(ACI_SC) | B(ACI_SK) | B(ACI_SO)},
    {"sm", B(ACI_SM)},
    {"mathsymbol", B(ACI_SM)},
    {"sc", B(ACI_SC)},
    {"currencysymbol", B(ACI_SC)},
    {"sk", B(ACI_SK)},
    {"modifiersymbol", B(ACI_SK)},
    {"so", B(ACI_SO)},
    {"othersymbol", B(ACI_SO)},
    {"z", B(ACI_ZS) | B(ACI_ZL) | B(ACI_ZP)},
    {"separator", B(ACI_ZS) | B(ACI_ZL) | B(ACI_ZP)},
    {"zs", B(ACI_ZS)},
    {"spaceseparator", B(ACI_ZS)},
    {"zl", B(ACI_ZL)},
    {"lineseparator", B(ACI_ZL)},
    {"zp", B(ACI_ZP)},
    {"paragraphseparator", B(ACI_ZP)},
    {"c", B(ACI_CC) | B(ACI_CF) | B(ACI_CN) | B(ACI_CO) | B(ACI_CS)},
    {"other", B(ACI_CC) | B(ACI_CF) | B(ACI_CN) | B(ACI_CO) | B(ACI_CS)},
    {"cc", B(ACI_CC)},
    {"control", B(ACI_CC)},
    {"cntrl", B(ACI_CC)},
    {"cf", B(ACI_CF)},
    {"format", B(ACI_CF)},
    {"cn", B(ACI_CN)},
    {"unassigned", B(ACI_CN)},
    {"co", B(ACI_CO)},
    {"privateuse", B(ACI_CO)},
};
#undef B

/* Names that are more than categories: unions of them, ASCII classes, and negated names. */
typedef struct mixture {
  const char *name;
  uint32_t bits, other;
  const char *ascii; /* ranges, two characters each */
  bool space, negated;
} mixture;
#define B ACI_UNI_BIT
#define ALPHA ACI_UNI_L | B(ACI_NL)
#define UNSEEN B(ACI_CC) | B(ACI_CN) | B(ACI_CS)
static const mixture mixtures[] = {
    {"alpha", ALPHA, ACI_UNI_ALPHABETIC, "", false, false},
    {"alphabetic", ALPHA, ACI_UNI_ALPHABETIC, "", false, false},
    {"alnum", ALPHA | B(ACI_ND), ACI_UNI_ALPHABETIC, "", false, false},
    {"upper", B(ACI_LU), ACI_UNI_UPPER, "", false, false},
    {"uppercase", B(ACI_LU), ACI_UNI_UPPER, "", false, false},
    {"lower", B(ACI_LL), ACI_UNI_LOWER, "", false, false},
    {"lowercase", B(ACI_LL), ACI_UNI_LOWER, "", false, false},
    {"lc", B(ACI_LU) | B(ACI_LL) | B(ACI_LT), 0, "", false, false},
    {"punct", ACI_UNI_P, 0, "", false, false},
    {"blank", B(ACI_ZS), 0, "\t\t", false, false},
    {"xdigit", 0, 0, "09AFaf", false, false},
    {"graph", UNSEEN, 0, "", true, true},
    {"print", UNSEEN | B(ACI_ZL) | B(ACI_ZP), 0, "", false, true},
    {"assigned", B(ACI_CN), 0, "", false, true}};
#undef B

static bool add_mixture(aci_rx_set *s, const mixture *m) {
  aci_rx_set found = {0};
  uint32_t first, last, bits;
  bool ok = add_categories(&found, m->bits) && (!m->space || aci_rx_add_space(&found));
  for (size_t i = 0; ok && m->other != 0 && aci_uni_other(i, &first, &last, &bits); i++)
    if (bits & m->other) ok = aci_rx_add(&found, first, last);
  for (const char *a = m->ascii; ok && *a != 0; a += 2)
    ok = aci_rx_add(&found, (unsigned char)a[0], (unsigned char)a[1]);
  if (ok && m->negated) ok = aci_rx_complement(&found);
  ok = ok && aci_rx_unite(s, &found);
  free(found.r);
  return ok;
}

bool aci_rx_bracket(aci_rx_set *s, const char *name, size_t n, bool *known) {
  static const char *const names[] = {"alnum", "alpha", "ascii",  "blank", "cntrl",
                                      "digit", "graph", "lower",  "print", "punct",
                                      "space", "upper", "xdigit", "word"};
  *known = false;
  for (size_t i = 0; !*known && i < sizeof names / sizeof names[0]; i++)
    *known = strlen(names[i]) == n && memcmp(names[i], name, n) == 0;
  if (!*known) return true;
  if (n == 5 && memcmp(name, "ascii", 5) == 0) return aci_rx_add(s, 0, 127);
  if (n == 5 && memcmp(name, "punct", 5) == 0 && !aci_rx_property(s, "s", 1, known)) return false;
  return aci_rx_property(s, name, n, known);
}

bool aci_rx_property(aci_rx_set *s, const char *name, size_t n, bool *known) {
  char plain[32];
  size_t k = 0;
  *known = true;
  for (size_t i = 0; i < n; i++) {
    if (name[i] == '_' || name[i] == ' ' || name[i] == '-') continue;
    if (k + 1 == sizeof plain) return *known = false, true;
    plain[k++] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
  }
  plain[k] = 0;
  for (size_t i = 0; i < sizeof properties / sizeof properties[0]; i++)
    if (strcmp(plain, properties[i].name) == 0) return add_categories(s, properties[i].bits);
  if (strcmp(plain, "space") == 0 || strcmp(plain, "whitespace") == 0) return aci_rx_add_space(s);
  if (strcmp(plain, "word") == 0) return aci_rx_add_word(s, false);
  if (strcmp(plain, "ascii") == 0) return aci_rx_add(s, 0, 127);
  if (strcmp(plain, "any") == 0) return aci_rx_add(s, 0, ACI_UNI_LAST);
  for (size_t i = 0; i < sizeof mixtures / sizeof mixtures[0]; i++)
    if (strcmp(plain, mixtures[i].name) == 0) return add_mixture(s, &mixtures[i]);
  if (k > 0) plain[0] = (char)(plain[0] >= 'a' && plain[0] <= 'z' ? plain[0] - 32 : plain[0]);
  const int script = aci_uni_script(plain, k);
  *known = script != 0;
  uint32_t first, last;
  for (size_t i = 0; script != 0 && aci_uni_script_range(script, i, &first, &last); i++)
    if (!aci_rx_add(s, first, last)) return false;
  return true;
}
