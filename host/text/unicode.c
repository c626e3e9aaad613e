/* Tables of Unicode, unpacked from unicode_data.c on first use: a page table of 16 bits per code
 * point (category, age, grapheme class and four flags) and sorted lists for the rest. Used by all
 * of text/. */
#include "text/unicode.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/unicode_impl.h"

enum {
  PAGES = 400,
  DECOMPOSITIONS = 6000,
  PARTS = 12000,
  RUNS = 4500,
  PAIRS = 1000,
  CLASSES = 400,
  LOWERS = 300,
  FOLDS = 128,
  SCRIPT_RUNS = 256,
  FULL_FOLDS = 128,
  OTHER_RUNS = 300,
  CHANGED_ALONE = 0x295, /* changed its category with 17.0 */
  /* cell: category + 30 * age in 7 bits, grapheme class in 4, flags */
  BREAK_SHIFT = 7,
  HAS_CLASS = 1 << 11,
  HAS_DECOMPOSITION = 1 << 12,
  HAS_LOWER = 1 << 13,
  COMPOSES = 1 << 14 /* is the second of a pair */
};

typedef struct run {
  uint32_t first, last, value;
} run;
typedef struct lower_run {
  uint32_t first, last;
  int32_t delta;
  uint32_t stride;
} lower_run;
typedef struct pair {
  uint32_t a, b, to;
} pair;

/* Constants, derived once from constants. */
static struct {
  pthread_once_t once;
  bool ok;
  uint16_t page[(ACI_UNI_LAST + 1) >> 8], cell[PAGES][256];
  uint32_t from[DECOMPOSITIONS], part[PARTS];
  uint16_t part_at[DECOMPOSITIONS + 1];
  bool compatible[DECOMPOSITIONS];
  uint32_t runs[RUNS]; /* start of each run of one category and age */
  size_t n_runs, n_from, n_pairs, n_classes, n_lower, n_fold, n_script, n_full, n_other;
  pair pairs[PAIRS];
  run classes[CLASSES], script[SCRIPT_RUNS], other[OTHER_RUNS];
  lower_run lower[LOWERS];
  uint32_t fold[FOLDS][2];
  uint32_t full[FULL_FOLDS][4]; /* code point, its folded characters, 0 at the end */
} U = {.once = PTHREAD_ONCE_INIT};

/* ---- unpacking ---- */
typedef struct reader {
  const char (*rows)[109];
  size_t at, left;
} reader;
#define READER(name) \
  { aci_ucd_##name, 0, aci_ucd_##name##_numbers }

static uint32_t number(reader *r) {
  uint32_t v = 0;
  for (int shift = 0;; shift += 5) {
    const char c = r->rows[r->at / 108][r->at % 108];
    const uint32_t d = (uint32_t)(c >= 'a'   ? c - 'a' + 26
                                  : c >= 'A' ? c - 'A'
                                  : c >= '0' ? c - '0' + 52
                                  : c == '+' ? 62
                                             : 63);
    r->at++;
    v |= (d & 31) << shift;
    if (d < 32) break;
  }
  r->left--;
  return v;
}

static int32_t difference(reader *r) {
  const uint32_t v = number(r);
  return v & 1 ? -(int32_t)((v + 1) >> 1) : (int32_t)(v >> 1);
}

static size_t read_runs(reader r, run *out) {
  size_t n = 0;
  for (uint32_t at = 0; r.left > 0; n++) {
    out[n].first = at + number(&r);
    out[n].last = out[n].first + number(&r);
    out[n].value = number(&r);
    at = out[n].last + 1;
  }
  return n;
}

static int by_pair(const void *x, const void *y) {
  const pair *p = x, *q = y;
  return p->a != q->a ? (p->a < q->a ? -1 : 1) : p->b < q->b ? -1 : p->b > q->b;
}

/* Cells while they are unpacked. Most pages hold one value, so a page's cells are written only when
 * they differ. */
enum { N_PAGES = (ACI_UNI_LAST + 1) >> 8, MIXED = 0xFFFF };
typedef struct pages {
  uint16_t flat[N_PAGES]; /* the value of all cells of a page, or MIXED */
  uint16_t cell[N_PAGES][256];
} pages;

/* cell = (cell & keep) | bits, from first to last. */
static void mark(pages *t, uint32_t first, uint32_t last, uint16_t keep, uint16_t bits) {
  for (uint32_t c = first, end; c <= last; c = end + 1) {
    uint16_t *flat = &t->flat[c >> 8], *cell = t->cell[c >> 8];
    end = last < (c | 255) ? last : c | 255;
    if (end - c == 255 && (keep == 0 || *flat != MIXED)) {
      *flat = (uint16_t)((*flat & keep) | bits);
      continue;
    }
    if (*flat != MIXED)
      for (int i = 0; i < 256; i++) cell[i] = *flat;
    *flat = MIXED;
    for (uint32_t i = c & 255; i <= (end & 255); i++) cell[i] = (uint16_t)((cell[i] & keep) | bits);
  }
}

static void flag(pages *t, uint32_t c, uint16_t bits) { mark(t, c, c, MIXED, bits); }

static void read_decompositions(pages *t) {
  reader r = READER(decomposition);
  uint32_t at = 0, was = 0;
  size_t parts = 0;
  while (r.left > 0) {
    const uint32_t c = at + number(&r), head = number(&r), n = head / 4 + 1;
    at = c + 1;
    U.from[U.n_from] = c;
    U.part_at[U.n_from] = (uint16_t)parts;
    U.compatible[U.n_from++] = (head & 2) != 0;
    for (uint32_t i = 0; i < n; i++)
      U.part[parts++] = was = (uint32_t)((int32_t)was + difference(&r));
    flag(t, c, HAS_DECOMPOSITION);
    if (!(head & 1)) {
      U.pairs[U.n_pairs++] = (pair){U.part[parts - 2], was, c};
      flag(t, was, COMPOSES);
    }
  }
  U.part_at[U.n_from] = (uint16_t)parts;
  qsort(U.pairs, U.n_pairs, sizeof U.pairs[0], by_pair);
}

static void read_lower(pages *t) {
  reader r = READER(lower);
  for (uint32_t at = 0; r.left > 0;) {
    lower_run *l = &U.lower[U.n_lower++];
    l->first = at + number(&r);
    const uint32_t head = number(&r);
    l->stride = (head & 1) + 1;
    l->last = l->first + (head >> 1) * l->stride;
    l->delta = difference(&r);
    at = l->last + 1;
    for (uint32_t c = l->first; c <= l->last; c += l->stride) flag(t, c, HAS_LOWER);
  }
}

/* Stores the pages, equal ones of a single value once. */
static bool fold_pages(const pages *t) {
  uint16_t value[PAGES]; /* of the pages that hold one. MIXED: several */
  size_t n = 0;
  for (size_t p = 0; p < N_PAGES; p++) {
    size_t i = 0;
    if (t->flat[p] != MIXED)
      while (i < n && value[i] != t->flat[p]) i++;
    else i = n;
    if (i == n) {
      if (n == PAGES) return false;
      value[n] = t->flat[p];
      for (int k = 0; k < 256; k++) U.cell[n][k] = t->flat[p] != MIXED ? t->flat[p] : t->cell[p][k];
      n++;
    }
    U.page[p] = (uint16_t)i;
  }
  return true;
}

static void unpack(void) {
  pages *cells = malloc(sizeof *cells);
  run *breaks = malloc(800 * sizeof *breaks);
  if (cells != NULL && breaks != NULL) {
    memset(cells->flat, 0, sizeof cells->flat);
    reader r = READER(category);
    for (uint32_t c = 0; r.left > 0;) {
      const uint32_t end = c + number(&r), v = number(&r);
      U.runs[U.n_runs++] = c;
      if (c < CHANGED_ALONE && CHANGED_ALONE <= end) U.runs[U.n_runs++] = CHANGED_ALONE;
      mark(cells, c, end, 0, (uint16_t)v);
      c = end + 1;
    }
    const size_t n = read_runs((reader)READER(grapheme), breaks);
    for (size_t i = 0; i < n; i++)
      mark(cells, breaks[i].first, breaks[i].last, MIXED,
           (uint16_t)(breaks[i].value << BREAK_SHIFT));
    U.n_classes = read_runs((reader)READER(combining), U.classes);
    for (size_t i = 0; i < U.n_classes; i++)
      mark(cells, U.classes[i].first, U.classes[i].last, MIXED, HAS_CLASS);
    read_decompositions(cells);
    read_lower(cells);
    reader f = READER(fold);
    for (uint32_t at = 0; f.left > 0; U.n_fold++) {
      U.fold[U.n_fold][0] = at + number(&f);
      U.fold[U.n_fold][1] = number(&f);
      at = U.fold[U.n_fold][0] + 1;
    }
    U.n_script = read_runs((reader)READER(script), U.script);
    U.n_other = read_runs((reader)READER(other), U.other);
    reader g = READER(full);
    for (uint32_t at = 0; g.left > 0; U.n_full++) {
      uint32_t *to = U.full[U.n_full];
      to[0] = at + number(&g);
      for (uint32_t k = 0, more = number(&g) + 2; k < more; k++) to[k + 1] = number(&g);
      at = to[0] + 1;
    }
    U.ok = fold_pages(cells);
  }
  free(cells);
  free(breaks);
}

ac_status aci_uni_open(ac_err *e) {
  pthread_once(&U.once, unpack);
  return U.ok ? AC_OK : AC_FAIL(e, OOM, "no memory for the tables of Unicode");
}

/* ---- categories ---- */
static uint16_t cell(uint32_t c) { return c <= ACI_UNI_LAST ? U.cell[U.page[c >> 8]][c & 255] : 0; }

aci_uni_category aci_uni_category_of(uint32_t c, int version) {
  const unsigned v = cell(c) & 127, category = v % 30;
  if (v / 30 > (unsigned)version) return ACI_CN;
  /* the few that changed */
  if (version == ACI_UNI_8) {
    if (c == 0x166D) return ACI_PO;
    if (c == 0x1734 || c == 0x1171E) return ACI_MN;
    if (c == 0xA9BD) return ACI_MC;
    if (c == 0x1885 || c == 0x1886) return ACI_LO;
  }
  if (version <= ACI_UNI_9 && c == 0x111C9) return ACI_PO;
  if (version <= ACI_UNI_9 && (c == 0x1CF2 || c == 0x1CF3)) return ACI_MC;
  if (version <= ACI_UNI_16 && c == CHANGED_ALONE) return ACI_LL;
  return (aci_uni_category)category;
}

bool aci_uni_run(size_t i, uint32_t *first, uint32_t *last) {
  if (i >= U.n_runs) return false;
  *first = U.runs[i];
  *last = i + 1 < U.n_runs ? U.runs[i + 1] - 1 : ACI_UNI_LAST;
  return true;
}

bool aci_uni_is_space(uint32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || c == 32;
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool aci_uni_is_word(uint32_t c) {
  if (aci_uni_is(c, ACI_UNI_16,
                 ACI_UNI_L | ACI_UNI_M | ACI_UNI_BIT(ACI_ND) | ACI_UNI_BIT(ACI_NL) |
                     ACI_UNI_BIT(ACI_PC)))
    return true;
  /* symbols that are alphabetic: circled and squared letters */
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool aci_uni_is_combining(uint32_t c) { return c >= 0x300 && aci_uni_is(c, ACI_UNI_9, ACI_UNI_M); }

bool aci_uni_is_punctuation(uint32_t c) {
  if (c < 0x80)
    return c > 32 && c < 127 && !((c | 32) >= 'a' && (c | 32) <= 'z') && !(c >= '0' && c <= '9');
  return aci_uni_is(c, ACI_UNI_8, ACI_UNI_P);
}

uint32_t aci_uni_lower(uint32_t c, uint32_t *more) {
  *more = 0;
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (!(cell(c) & HAS_LOWER)) return c;
  if (c == 0x130) return *more = 0x307, 'i';
  size_t lo = 0, hi = U.n_lower;
  while (lo + 1 < hi) {
    const size_t mid = (lo + hi) / 2;
    if (U.lower[mid].first <= c) lo = mid;
    else hi = mid;
  }
  return (uint32_t)((int32_t)c + U.lower[lo].delta);
}

void aci_uni_case_pairs(void (*fn)(void *, uint32_t, uint32_t), void *user) {
  for (size_t i = 0; i < U.n_lower; i++) {
    const lower_run *l = &U.lower[i];
    for (uint32_t c = l->first; c <= l->last; c += l->stride)
      if (c != 0x130) fn(user, c, (uint32_t)((int32_t)c + l->delta));
  }
  for (size_t i = 0; i < U.n_fold; i++) fn(user, U.fold[i][0], U.fold[i][1]);
}

uint32_t aci_uni_fold(uint32_t c) {
  uint32_t more;
  for (size_t i = 0; c >= 0x80 && i < U.n_fold; i++)
    if (U.fold[i][0] == c) return U.fold[i][1];
  return c == 0x130 ? c : aci_uni_lower(c, &more);
}

int aci_uni_full_fold(size_t i, uint32_t *c, uint32_t out[3]) {
  if (i >= U.n_full) return 0;
  *c = U.full[i][0];
  memcpy(out, U.full[i] + 1, 3 * sizeof *out);
  return out[2] != 0 ? 3 : 2;
}

bool aci_uni_other(size_t i, uint32_t *first, uint32_t *last, uint32_t *bits) {
  if (i >= U.n_other) return false;
  *first = U.other[i].first;
  *last = U.other[i].last;
  *bits = U.other[i].value;
  return true;
}

/* ---- normalisation ---- */
enum {
  S_BASE = 0xAC00,
  L_BASE = 0x1100,
  V_BASE = 0x1161,
  T_BASE = 0x11A7,
  L_COUNT = 19,
  V_COUNT = 21,
  T_COUNT = 28,
  S_COUNT = L_COUNT * V_COUNT * T_COUNT
};

int aci_uni_combining_class(uint32_t c) {
  if (c < 0x300 || !(cell(c) & HAS_CLASS)) return 0;
  size_t lo = 0, hi = U.n_classes;
  while (lo + 1 < hi) {
    const size_t mid = (lo + hi) / 2;
    if (U.classes[mid].first <= c) lo = mid;
    else hi = mid;
  }
  return (int)U.classes[lo].value;
}

/* The parts it decomposes into, not decomposed further. NULL: none. */
static const uint32_t *parts_of(uint32_t c, bool compatible, int *n) {
  if (!(cell(c) & HAS_DECOMPOSITION)) return NULL;
  size_t lo = 0, hi = U.n_from;
  while (lo + 1 < hi) {
    const size_t mid = (lo + hi) / 2;
    if (U.from[mid] <= c) lo = mid;
    else hi = mid;
  }
  if (U.compatible[lo] && !compatible) return NULL;
  *n = U.part_at[lo + 1] - U.part_at[lo];
  return U.part + U.part_at[lo];
}

static void decompose(uint32_t c, bool compatible, uint32_t *out, int *n, int depth) {
  int k = 0;
  const uint32_t *parts = depth < 8 ? parts_of(c, compatible, &k) : NULL;
  if (parts == NULL) {
    if (*n < ACI_UNI_DECOMPOSED) out[(*n)++] = c;
    return;
  }
  for (int i = 0; i < k; i++) decompose(parts[i], compatible, out, n, depth + 1);
}

int aci_uni_decompose(uint32_t c, bool compatible, uint32_t out[ACI_UNI_DECOMPOSED]) {
  int n = 0;
  if (c >= S_BASE && c < S_BASE + S_COUNT) {
    const uint32_t s = c - S_BASE;
    out[n++] = L_BASE + s / (V_COUNT * T_COUNT);
    out[n++] = V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT;
    if (s % T_COUNT != 0) out[n++] = T_BASE + s % T_COUNT;
    return n;
  }
  decompose(c, compatible, out, &n, 0);
  return n;
}

uint32_t aci_uni_compose(uint32_t a, uint32_t b) {
  if (a >= L_BASE && a < L_BASE + L_COUNT && b >= V_BASE && b < V_BASE + V_COUNT)
    return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
  if (a >= S_BASE && a < S_BASE + S_COUNT && (a - S_BASE) % T_COUNT == 0 && b > T_BASE &&
      b < T_BASE + T_COUNT)
    return a + (b - T_BASE);
  if (!(cell(b) & COMPOSES)) return 0;
  const pair key = {a, b, 0}, *found = bsearch(&key, U.pairs, U.n_pairs, sizeof key, by_pair);
  return found != NULL ? found->to : 0;
}

/* ---- text ---- */
enum {
  G_OTHER,
  G_CR,
  G_LF,
  G_CONTROL,
  G_EXTEND,
  G_ZWJ,
  G_REGIONAL,
  G_PREPEND,
  G_SPACING,
  G_L,
  G_V,
  G_T,
  G_LV,
  G_LVT,
  G_PICTURE
};

static int break_class(uint32_t c) {
  if (c >= S_BASE && c < S_BASE + S_COUNT) return (c - S_BASE) % T_COUNT == 0 ? G_LV : G_LVT;
  return cell(c) >> BREAK_SHIFT & 15;
}

size_t aci_uni_grapheme(const char *s, size_t n) {
  const char *at = s, *end = s + n;
  int a = break_class(aci_utf8_next(&at));
  bool picture = a == G_PICTURE; /* \p{Extended_Pictographic} Extend* so far */
  int regional = a == G_REGIONAL;
  while (at < end) {
    const char *next = at;
    const int b = break_class(aci_utf8_next(&next));
    bool joined;
    if (a == G_CR) joined = b == G_LF;
    else if (a == G_LF || a == G_CONTROL || b == G_CR || b == G_LF || b == G_CONTROL)
      joined = false;
    else if (b == G_EXTEND || b == G_ZWJ || b == G_SPACING || a == G_PREPEND) joined = true;
    else if (a == G_L) joined = b == G_L || b == G_V || b == G_LV || b == G_LVT;
    else if (a == G_LV || a == G_V) joined = b == G_V || b == G_T;
    else if (a == G_LVT || a == G_T) joined = b == G_T;
    else if (a == G_ZWJ && b == G_PICTURE) joined = picture;
    else joined = a == G_REGIONAL && b == G_REGIONAL && regional % 2 == 1;
    if (!joined) break;
    picture = b == G_PICTURE || (picture && (b == G_EXTEND || b == G_ZWJ));
    regional = b == G_REGIONAL ? regional + 1 : 0;
    a = b;
    at = next;
  }
  return (size_t)(at - s);
}

int aci_uni_script(const char *name, size_t n) {
  static const char *const names[] = {"Han",    "Hiragana", "Katakana",   "Hangul",
                                      "Latin",  "Greek",    "Cyrillic",   "Arabic",
                                      "Hebrew", "Thai",     "Devanagari", "Bopomofo"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0) return (int)i + 1;
  return 0;
}

bool aci_uni_script_range(int script, size_t i, uint32_t *first, uint32_t *last) {
  for (size_t k = 0; k < U.n_script; k++)
    if (U.script[k].value == (uint32_t)script && i-- == 0) {
      *first = U.script[k].first;
      *last = U.script[k].last;
      return true;
    }
  return false;
}

bool aci_utf8_valid(const char *s, size_t n) {
  const unsigned char *p = (const unsigned char *)s;
  for (size_t i = 0; i < n;) {
    uint64_t w;
    while (n - i >= 8 && (memcpy(&w, p + i, 8), (w & 0x8080808080808080u) == 0)) i += 8;
    if (i >= n) break;
    const int k = p[i] < 0x80 ? 1 : aci_utf8_length(p + i, n - i);
    if (k == 0) return false;
    i += (size_t)k;
  }
  return true;
}
