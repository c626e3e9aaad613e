/* Passes as C text, and their kernels, found by the form of a pass: see fuse_code.h. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "ops/core/fuse_code_impl.h"

enum { AFTER = 3, HEAVY = 8, SEGMENT = 12 }; /* compiled when it comes for the AFTER-th time */

aci_fuse_codes *aci_fuse_codes_new(const ac_params *p) {
  aci_fuse_codes *c = calloc(1, sizeof *c);
  if (c != NULL) c->params = p;
  return c;
}

void aci_fuse_codes_free(aci_fuse_codes *c) {
  if (c == NULL) return;
  for (int i = 0; i < ACI_FUSE_KINDS; i++)
    for (aci_fuse_entry *k = c->kind[i], *next; k != NULL; k = next) {
      next = k->next;
      if (k->library != NULL) dlclose(k->library);
      free(k);
    }
  free(c);
}

/* ---- arguments of a kernel ---- */
static int input_of(aci_fuse_pass *p, int at, int k) {
  const aci_fuse_operand *o = &p->node[at]->in[k];
  for (int i = 0; i < p->n_inputs; i++) { /* the same elements once */
    const aci_fuse_operand *other = p->input[i];
    const bool alike =
        (p->input_of[i]->kind == ACI_FUSE_ROW_MAP) == (p->node[at]->kind == ACI_FUSE_ROW_MAP);
    if (alike && other->ptr == o->ptr && other->dt == o->dt && other->linear && o->linear) return i;
  }
  if (p->n_inputs == ACI_FUSE_INPUTS) return -1;
  p->input[p->n_inputs] = o;
  p->input_of[p->n_inputs] = p->node[at];
  return p->n_inputs++;
}

bool aci_fuse_look_at(aci_fuse_pass *p, aci_fuse_look *l, bool device) {
  l->n = p->n_inputs = p->n_outputs = 0;
  int numbers = 0;
  for (int i = 0; i < p->n; i++) {
    aci_fuse_node *n = p->node[i];
    if ((n->dt != AC_F32 && !device) || (n->which == NULL && n->kind != ACI_FUSE_REDUCED))
      return false;
    memcpy(p->numbers + numbers, n->p, sizeof n->p);
    numbers += ACI_MAP_MAX_P;
    l->word[l->n++] =
        (uint64_t)(uintptr_t)n->which << 3 | (unsigned)n->kind << 1 | aci_fuse_is_output(p, i);
    if (device) l->word[l->n++] = n->dt;
    for (int k = 0; k < n->n_in; k++) {
      const aci_fuse_node *from = p->from[i][k];
      int input = -1;
      if (n->in[k].storage == NULL) p->numbers[numbers + k] = n->in[k].number;
      else if (from == NULL && (input = input_of(p, i, k)) < 0) return false;
      l->word[l->n++] = n->in[k].storage == NULL ? 1
                        : from != NULL           ? (uint64_t)from->at << 2 | 2
                                                 : (uint64_t)input << 2 | 3;
    }
    numbers += ACI_MAP_MAX_IN;
    if (aci_fuse_is_output(p, i)) p->output[p->n_outputs++] = i;
  }
  for (int i = 0; device && i < p->n_inputs; i++)
    l->word[l->n++] = (uint64_t)p->input[i]->dt << 2 | (unsigned)aci_fuse_lies(p->input[i]);
  return true;
}

/* ---- the text ---- */
static const char HEAD[] =
    "#define AC_HOSTDEV\n#define AC_INLINE __attribute__((always_inline))\n"
    "#define ACI_BY_INT(x, for_int, for_float) _Generic((x), int64_t : (for_int), default : (for_float))\n"
    "#define ONE static inline __attribute__((always_inline, unused)) float\n";
const char aci_fuse_formulas[] =
    "#define FN_f32(name, args, ...) ONE name(const float *p, __VA_ARGS__) { (void)p; return (float)args; }\n"
    "#define ACI_LOOP1(op, T, sfx, F) LOOP1_##sfx(op, F)\n#define ACI_LOOP2(op, T, sfx, F) LOOP2_##sfx(op, F)\n"
    "#define ACI_LOOP3(op, T, sfx, F) LOOP3_##sfx(op, F)\n#define ACI_LOOP4(op, T, sfx, F) LOOP4_##sfx(op, F)\n"
    "#define LOOP1_f32(op, F) FN_f32(op##_f32, F(float, p, a), float a)\n"
    "#define LOOP2_f32(op, F) FN_f32(op##_f32, F(float, p, a, b), float a, float b)\n"
    "#define LOOP3_f32(op, F) FN_f32(op##_f32, F(float, p, a, b, c), float a, float b, float c)\n"
    "#define LOOP4_f32(op, F) FN_f32(op##_f32, F(float, p, a, b, c, d), float a, float b, float c, float d)\n"
    "#define LOOP1_f64(op, F)\n#define LOOP2_f64(op, F)\n#define LOOP3_f64(op, F)\n#define LOOP4_f64(op, F)\n"
    "#define LOOP1_i64(op, F)\n#define LOOP2_i64(op, F)\n#define LOOP3_i64(op, F)\n#define LOOP4_i64(op, F)\n"
    "#define AC_MAP1(op, F, ...) LOOP1_f32(op, F)\n#define AC_MAP2(op, F, ...) LOOP2_f32(op, F)\n"
    "#define AC_MAP3(op, F, ...) LOOP3_f32(op, F)\n#define AC_MAP4(op, F, ...) LOOP4_f32(op, F)\n"
    "#define AC_MAP1N AC_MAP1\n#define AC_MAP2N AC_MAP2\n#define AC_MAP3N AC_MAP3\n#define AC_MAP1B AC_MAP1\n#define AC_MAP2B AC_MAP2\n";

static const aci_map_text *text_of(const aci_map_loop *loop) {
  const char *slash = strrchr(loop->file, '/'), *base = slash != NULL ? slash + 1 : loop->file;
  const size_t n = strcspn(base, ".");
  for (const aci_map_text *t = aci_map_texts; t->stem != NULL; t++)
    if (strlen(t->stem) == n && strncmp(t->stem, base, n) == 0) return t;
  return NULL;
}

static void put_lines(aci_strbuf *b, const aci_map_text *t) {
  for (const char *const *line = t->lines; *line != NULL; line++) aci_strbuf_puts(b, *line);
}

/* How a pass is cut: loops over its elements, each with the nodes of one segment. */
typedef struct cut {
  int segment[ACI_FUSE_MOST];
  bool crosses[ACI_FUSE_MOST]; /* read in another segment, or by a reduction */
} cut;

static void cut_pass(const aci_fuse_pass *p, cut *c) {
  int segments = 0, in_it = 0;
  memset(c, 0, sizeof *c);
  for (int i = 0; i < p->n; i++) {
    const aci_fuse_node *n = p->node[i];
    const bool alone = n->kind != ACI_FUSE_MAP; /* between loops */
    if (in_it == SEGMENT || (alone && in_it > 0)) segments++, in_it = 0;
    c->segment[i] = segments;
    in_it++;
    if (alone || n->heavy >= HEAVY) segments++, in_it = 0;
    for (int k = 0; k < n->n_in; k++) {
      const aci_fuse_node *from = p->from[i][k];
      if (from != NULL && from->kind == ACI_FUSE_MAP && c->segment[from->at] != c->segment[i])
        c->crosses[from->at] = true;
    }
  }
}

/* The address of operand k of node i, or its value in a loop that is not over the elements. */
static void put_place(aci_strbuf *b, const aci_fuse_pass *p, int i, int k, uint64_t word) {
  const aci_fuse_node *from = p->from[i][k];
  if (from == NULL) aci_strbuf_printf(b, "a%d", (int)(word >> 2));
  else aci_strbuf_printf(b, "%s%d", aci_fuse_is_output(p, from->at) ? "o" : "r", from->at);
}

static void put_operand(aci_strbuf *b, const aci_fuse_pass *p, const cut *c, int i, int k,
                        uint64_t word) {
  const aci_fuse_node *from = p->from[i][k];
  if ((word & 3) == 1) aci_strbuf_printf(b, "c%d_%d", i, k);
  else if (from != NULL && (from->kind != ACI_FUSE_MAP || c->segment[from->at] == c->segment[i]))
    aci_strbuf_printf(b, "v%d", from->at);
  else {
    put_place(b, p, i, k, word);
    aci_strbuf_puts(b, p->node[i]->kind == ACI_FUSE_ROW_MAP ? "[0]" : "[i]");
  }
}

static int put_variables(aci_strbuf *b, const aci_fuse_pass *p, const cut *c) {
  int scratch = 0;
  for (int i = 0; i < p->n_inputs; i++)
    aci_strbuf_printf(b, "  const float *a%d = in[%d];\n", i, i);
  for (int i = 0; i < p->n_outputs; i++)
    aci_strbuf_printf(b, "  float *o%d = out[%d];\n", p->output[i], i);
  for (int i = 0; i < p->n; i++) {
    const int at = i * (ACI_MAP_MAX_P + ACI_MAP_MAX_IN);
    aci_strbuf_printf(
        b, "  const float p%d[6] = {num[%d], num[%d], num[%d], num[%d], num[%d], num[%d]};\n", i,
        at, at + 1, at + 2, at + 3, at + 4, at + 5);
    for (int k = 0; k < p->node[i]->n_in; k++)
      if (p->node[i]->in[k].storage == NULL)
        aci_strbuf_printf(b, "  const float c%d_%d = num[%d];\n", i, k, at + ACI_MAP_MAX_P + k);
    if (!c->crosses[i] || aci_fuse_is_output(p, i)) continue;
    if (p->cols == 0) aci_strbuf_printf(b, "  _Alignas(64) float r%d[%d];\n", i, ACI_FUSE_BLOCK);
    else
      aci_strbuf_printf(b, "  float *restrict r%d = row->scratch + %d * row->step;\n", i,
                        scratch++);
  }
  return scratch;
}

/* A node's call of its formula. */
static void put_call(aci_strbuf *b, const aci_fuse_pass *p, const cut *c, int i,
                     const uint64_t *word) {
  const aci_fuse_node *n = p->node[i];
  if (n->kind == ACI_FUSE_REDUCED) {
    aci_strbuf_printf(b, "const float v%d = row->reduce(row, %d, ", i, i);
    put_place(b, p, i, 0, word[0]);
  } else {
    aci_strbuf_printf(b, "const float v%d = %s(p%d", i, n->which->name, i);
    for (int k = 0; k < n->n_in; k++) {
      aci_strbuf_puts(b, ", ");
      put_operand(b, p, c, i, k, word[k]);
    }
  }
  aci_strbuf_puts(b, ");\n");
}

/* Returns how many rows of scratch it is called with. */
static int put_kernel(aci_strbuf *b, const aci_fuse_pass *p, const aci_fuse_look *l) {
  cut c;
  cut_pass(p, &c);
  aci_strbuf_puts(
      b,
      "struct row { float *scratch; int64_t step; float (*reduce)(const struct row *, int, const float *); };\n"
      "void kernel(int64_t n, const float *const *in, float *const *out, const float *num, const struct row *row) {\n");
  const int scratch = put_variables(b, p, &c);
  for (int i = 0, w = 0; i < p->n; i++) {
    const aci_fuse_node *n = p->node[i];
    const bool map = n->kind == ACI_FUSE_MAP;
    if (map && (i == 0 || c.segment[i] != c.segment[i - 1]))
      aci_strbuf_puts(b, "  _Pragma(\"GCC ivdep\") for (int64_t i = 0; i < n; i++) {\n");
    aci_strbuf_puts(b, map ? "    " : "  ");
    put_call(b, p, &c, i, &l->word[w + 1]);
    w += 1 + n->n_in;
    if (aci_fuse_is_output(p, i))
      aci_strbuf_printf(b, "    o%d[%s] = v%d;\n", i, map ? "i" : "0", i);
    else if (map && c.crosses[i]) aci_strbuf_printf(b, "    r%d[i] = v%d;\n", i, i);
    if (map && (i == p->n - 1 || c.segment[i] != c.segment[i + 1])) aci_strbuf_puts(b, "  }\n");
  }
  aci_strbuf_puts(b, "}\n");
  return scratch;
}

bool aci_fuse_put_formulas(aci_strbuf *b, const aci_fuse_pass *p) {
  aci_strbuf_puts(b, aci_fuse_formulas);
  put_lines(b, &aci_map_texts[0]);
  for (int i = 0; i < p->n; i++) {
    if (p->node[i]->which == NULL) continue;
    const aci_map_text *t = text_of(p->node[i]->which);
    bool before = false;
    for (int j = 0; j < i && t != NULL; j++)
      before |= p->node[j]->which != NULL && text_of(p->node[j]->which) == t;
    if (t == NULL) return false;
    if (!before) put_lines(b, t);
  }
  return true;
}

static void compile(const aci_fuse_codes *c, const aci_fuse_pass *p, const aci_fuse_look *l,
                    aci_fuse_entry *k) {
  aci_strbuf b = {0};
  aci_strbuf_puts(&b, HEAD);
  const bool all = aci_fuse_put_formulas(&b, p);
  if (all) k->scratch = put_kernel(&b, p, l);
  if (all && !b.failed) k->fn = aci_fuse_compile(c->params, b.s, b.len, &k->library);
  aci_strbuf_fini(&b);
}

aci_fuse_entry *aci_fuse_entry_of(aci_fuse_codes *c, const aci_fuse_look *l) {
  uint64_t h = 0xCBF29CE484222325u;
  for (int i = 0; i < l->n; i++) h = (h ^ l->word[i]) * 0x100000001B3u;
  aci_fuse_entry **at = &c->kind[(h ^ h >> 32) % ACI_FUSE_KINDS];
  while (*at != NULL && !((*at)->n == l->n && memcmp((*at)->word, l->word, (size_t)l->n * 8) == 0))
    at = &(*at)->next;
  if (*at == NULL) {
    *at = calloc(1, sizeof **at + (size_t)l->n * 8);
    if (*at == NULL) return NULL;
    (*at)->n = l->n;
    memcpy((*at)->word, l->word, (size_t)l->n * 8);
  }
  return *at;
}

bool aci_fuse_entry_is_due(aci_fuse_codes *c, aci_fuse_entry *k, bool now) {
  if (k->tried || (++k->seen < AFTER && !now)) return false;
  const int64_t most = ac_params_int(c->params, "COMPILE_LIMIT");
  k->tried = true;
  if (c->made++ == most)
    ac_log_write(
        AC_LOG_WARN, "compile",
        "more than %lld kinds of chains: further ones run formula by formula (ACCEL_COMPILE_LIMIT)",
        (long long)most);
  return c->made <= most;
}

void aci_fuse_codes_find(aci_fuse_codes *c, aci_fuse_pass *p) {
  aci_fuse_look l;
  p->code = NULL;
  /* one formula alone is compiled already */
  if (c == NULL || (p->n < 2 && p->taken == NULL) || !aci_fuse_look_at(p, &l, false)) return;
  aci_fuse_entry *k = aci_fuse_entry_of(c, &l);
  if (k == NULL) return;
  if (aci_fuse_entry_is_due(c, k, false)) compile(c, p, &l, k);
  p->code = k->fn;
  p->n_scratch = k->scratch;
}
