/* einsum: sums of products of elements, named by letters, one letter per dim of an operand. The same letter is the
   same index everywhere, and letters missing from the result are summed over.
   equation: "ij,jk->ik". A letter twice in one operand takes the diagonal. "..." stands for any further dims,
   which broadcast. Without "->" the result has "..." and then, in alphabetical order (capitals first), the letters
   that occur once. Extents of 1 broadcast. operands: one per comma-separated term -> y. Dtypes: floats and
   integers. Lowered to views, sums, products of matrices and of elements, pair by pair: first the pair whose
   product saves most.
   gradient: as for those ops.
   example: accel.einsum("ij,jk->ik", { accel.ones(2, 3), accel.ones(3, 2) }) --> { { 3, 3 }, { 3, 3 } }
   example: accel.einsum("ii", { accel.tensor { { 1.0, 2.0 }, { 3.0, 4.0 } } }) --> 5 */
#include <stdarg.h>
#include <stdio.h>

#include "ops/core/op.h"

enum { LETTERS = 52, MAX_LABELS = LETTERS + AC_MAX_DIMS, MAX_TERMS = 64, DOTS = 255 };

/* An operand, or the product of some, with the label of each dim: letters, then the dims under
 * "..." . */
typedef struct term {
  ac_tensor *t;
  int n;
  uint8_t label[AC_MAX_DIMS];
} term;

typedef struct plan {
  ac_expr *x;
  const char *equation;
  int n_terms, n_out, n_dots; /* n_dots: most dims under "..." */
  term terms[MAX_TERMS];
  int64_t size[MAX_LABELS]; /* -1: not seen */
  uint8_t out[AC_MAX_DIMS];
} plan;

static char letter(int label) { return (char)(label < 26 ? 'A' + label : 'a' + label - 26); }
static int label_of(char c) {
  return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}

static void fail(plan *p, const char *fmt, ...) AC_PRINTF(2, 3);
static void fail(plan *p, const char *fmt, ...) {
  char why[240];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  if (p->x->st == AC_OK)
    p->x->st = AC_FAIL(p->x->e, INVALID, "equation \"%.100s\": %s", p->equation, why);
}

/* ---- the equation ---- */

/* Labels from *at up to a comma, "->" or the end. DOTS for "...". Returns their number, -1 after an
 * error. */
static int read_term(plan *p, const char **at, uint8_t *label, int most, const char *what) {
  int n = 0;
  bool dots = false;
  const char *s = *at;
  for (; *s != '\0' && *s != ',' && *s != '-'; s++) {
    int position = (int)(s - p->equation) + 1;
    if (*s == ' ') continue;
    if (n == most) return fail(p, "%s has more than %d dims", what, most), -1;
    if (*s == '.') {
      if (s[1] != '.' || s[2] != '.')
        return fail(p, "character %d: an ellipsis has three dots", position), -1;
      if (dots) return fail(p, "character %d: %s has a second ellipsis", position, what), -1;
      dots = true;
      label[n++] = DOTS;
      s += 2;
    } else if (label_of(*s) >= 0) {
      label[n++] = (uint8_t)label_of(*s);
    } else {
      return fail(p, "character %d: '%c' is not a letter", position, *s), -1;
    }
  }
  *at = s;
  return n;
}

/* Sets the extent of its label from operand i's dim d. */
static bool take_size(plan *p, int i, int d) {
  const term *t = &p->terms[i];
  const int label = t->label[d];
  const int64_t size = t->t->shape[d];
  char shape[128];
  for (int k = 0; k < d; k++)
    if (t->label[k] == label && t->t->shape[k] != size)
      return fail(p, "'%c' stands for %lld and %lld in operand %d of shape %s", letter(label),
                  (long long)t->t->shape[k], (long long)size, i + 1,
                  aci_shape_str(t->t->ndim, t->t->shape, shape, sizeof shape)),
             false;
  if (p->size[label] == -1 || p->size[label] == 1) p->size[label] = size;
  if (size == 1 || p->size[label] == size) return true;
  aci_shape_str(t->t->ndim, t->t->shape, shape, sizeof shape);
  if (label >= LETTERS)
    fail(p, "a dim under '...' has %lld elements in operand %d of shape %s, but %lld before",
         (long long)size, i + 1, shape, (long long)p->size[label]);
  else
    fail(p, "'%c' has %lld elements in operand %d of shape %s, but %lld before", letter(label),
         (long long)size, i + 1, shape, (long long)p->size[label]);
  return false;
}

static bool read_operands(plan *p, const char **at, const ac_value *operands) {
  const char *s = p->equation;
  char what[32], shape[128];
  int n = 0;
  uint8_t written[MAX_TERMS][AC_MAX_DIMS + 1];
  int count[MAX_TERMS];
  for (;; s++) {
    if (n == MAX_TERMS) return fail(p, "more than %d operands", MAX_TERMS), false;
    snprintf(what, sizeof what, "operand %d", n + 1);
    count[n] = read_term(p, &s, written[n], AC_MAX_DIMS + 1, what);
    if (count[n++] < 0) return false;
    if (*s != ',') break;
  }
  if (n != operands->n)
    return fail(p, "it names %d operands, but %d were given", n, operands->n), false;
  p->n_terms = n;
  for (int i = 0; i < n; i++) { /* how many dims stand under "..." */
    ac_tensor *t = operands->tensors[i];
    bool dots = memchr(written[i], DOTS, (size_t)count[i]) != NULL;
    int hidden = t->ndim - count[i] + dots;
    if (hidden < 0 || (!dots && hidden > 0))
      return fail(p, "operand %d of shape %s has %d dims, but %d are named", i + 1,
                  aci_shape_str(t->ndim, t->shape, shape, sizeof shape), t->ndim, count[i] - dots),
             false;
    if (dots && hidden > p->n_dots) p->n_dots = hidden;
  }
  for (int i = 0; i < n; i++) {
    term *t = &p->terms[i];
    t->t = operands->tensors[i];
    const int hidden = t->t->ndim - count[i] + 1;
    for (int k = 0; k < count[i]; k++) {
      if (written[i][k] != DOTS) t->label[t->n++] = written[i][k];
      else
        for (int d = p->n_dots - hidden; d < p->n_dots; d++)
          t->label[t->n++] = (uint8_t)(LETTERS + d);
    }
    for (int d = 0; d < t->n; d++)
      if (!take_size(p, i, d)) return false;
  }
  *at = s;
  return true;
}

static bool add_out(plan *p, int label) {
  if (p->n_out == AC_MAX_DIMS)
    return fail(p, "the result has more than %d dims", AC_MAX_DIMS), false;
  p->out[p->n_out++] = (uint8_t)label;
  return true;
}

static bool read_result(plan *p, const char *s) {
  uint8_t written[AC_MAX_DIMS + 1];
  bool ok = true;
  if (*s == '\0') { /* implied */
    int times[MAX_LABELS] = {0};
    for (int i = 0; i < p->n_terms; i++)
      for (int d = 0; d < p->terms[i].n; d++) times[p->terms[i].label[d]]++;
    for (int d = 0; ok && d < p->n_dots; d++) ok = add_out(p, LETTERS + d);
    for (int label = 0; ok && label < LETTERS; label++)
      if (times[label] == 1) ok = add_out(p, label);
    return ok;
  }
  if (s[1] != '>')
    return fail(p, "character %d: '-' without '>'", (int)(s - p->equation) + 1), false;
  s += 2;
  int n = read_term(p, &s, written, AC_MAX_DIMS + 1, "the result");
  if (n < 0) return false;
  if (*s != '\0')
    return fail(p, "character %d: nothing may follow the result", (int)(s - p->equation) + 1),
           false;
  for (int k = 0; ok && k < n; k++) {
    const int label = written[k];
    if (label == DOTS) {
      for (int d = 0; ok && d < p->n_dots; d++) ok = add_out(p, LETTERS + d);
      continue;
    }
    if (p->size[label] == -1)
      return fail(p, "'%c' of the result is in no operand", letter(label)), false;
    if (memchr(p->out, label, (size_t)p->n_out) != NULL)
      return fail(p, "'%c' is in the result twice", letter(label)), false;
    ok = add_out(p, label);
  }
  return ok;
}

/* ---- one operand ---- */
static int find(const term *t, int label) {
  for (int d = 0; d < t->n; d++)
    if (t->label[d] == label) return d;
  return -1;
}

static void drop(term *t, int d) {
  memmove(t->label + d, t->label + d + 1, (size_t)(t->n - d - 1));
  t->n--;
}

/* Turns repeated letters into diagonals, and removes dims of one element that are longer
 * elsewhere. */
static void simplify(plan *p, term *t) {
  for (int a = 0; a < t->n; a++)
    for (int b = a + 1; b < t->n; b++) {
      const int label = t->label[a];
      if (t->label[b] != label) continue;
      t->t = x_diagonal(p->x, t->t, 0, a, b); /* the diagonal is the last dim */
      drop(t, b);
      drop(t, a);
      t->label[t->n++] = (uint8_t)label;
      a = -1;
      break;
    }
  for (int d = t->n - 1; d >= 0 && t->t != NULL; d--) {
    const int64_t dim = d;
    if (t->t->shape[d] != 1 || p->size[t->label[d]] == 1) continue;
    t->t = x_squeeze(p->x, t->t, &dim, 1);
    drop(t, d);
  }
}

/* Sums over the labels that are not needed, as sum does: of integers in i64. */
static void sum_out(plan *p, term *t, const bool *needed) {
  int64_t dims[AC_MAX_DIMS];
  int n = 0;
  if (t->t == NULL) return;
  for (int d = 0; d < t->n; d++)
    if (!needed[t->label[d]]) dims[n++] = d;
  if (n == 0) return;
  t->t = x_sum(p->x, t->t, dims, n, false, NULL);
  while (n > 0) drop(t, (int)dims[--n]);
}

/* ---- two operands ---- */

/* The dims of t in the order of these labels, those without a position of their own as extents of
 * 1. */
static ac_tensor *arrange(plan *p, const term *t, const uint8_t *label, int n) {
  int64_t dims[AC_MAX_DIMS], missing[AC_MAX_DIMS];
  int m = 0, n_missing = 0;
  bool sorted = true;
  for (int i = 0; i < n; i++) {
    int d = find(t, label[i]);
    if (d < 0) missing[n_missing++] = i;
    else dims[m++] = d;
  }
  for (int i = 0; i < m; i++) sorted &= dims[i] == i;
  ac_tensor *y = sorted ? t->t : x_permute(p->x, t->t, dims, m);
  for (int i = 0; i < n_missing; i++) y = x_unsqueeze(p->x, y, missing[i]);
  return y;
}

typedef struct labels {
  int n;
  uint8_t label[2 * AC_MAX_DIMS];
  int64_t size; /* product of extents */
} labels;
static void put(const plan *p, labels *l, int label) {
  l->label[l->n++] = (uint8_t)label;
  l->size *= p->size[label];
}

/* t as (batch..., rows, columns). */
static ac_tensor *as_matrices(plan *p, const term *t, const labels *batch, const labels *rows,
                              const labels *columns) {
  uint8_t order[3 * AC_MAX_DIMS];
  int64_t shape[AC_MAX_DIMS + 2];
  int n = 0;
  const labels *all[3] = {batch, rows, columns};
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < all[k]->n; i++) order[n++] = all[k]->label[i];
  ac_tensor *y = arrange(p, t, order, n);
  if (rows->n == 1 && columns->n == 1) return y;
  for (int i = 0; i < batch->n; i++) shape[i] = p->size[batch->label[i]];
  shape[batch->n] = rows->size;
  shape[batch->n + 1] = columns->size;
  return x_reshape(p->x, y, shape, batch->n + 2);
}

/* needed: labels of the result and of the other operands. */
static term contract(plan *p, term a, term b, const bool *needed) {
  labels batch = {.size = 1}, rows = {.size = 1}, columns = {.size = 1}, inner = {.size = 1};
  bool keep[MAX_LABELS];
  term r = {.n = 0};
  for (int l = 0; l < MAX_LABELS; l++)
    keep[l] = needed[l] || (find(&a, l) >= 0 && find(&b, l) >= 0);
  const ac_tensor *a0 = a.t, *b0 = b.t;
  sum_out(p, &a, keep);
  sum_out(p, &b, keep);
  /* the other one follows a sum of integers */
  if (a.t != NULL && b.t != NULL && a.t->dtype != b.t->dtype) {
    if (a.t != a0 && a.t->dtype == AC_I64) b.t = x_cast(p->x, b.t, AC_I64);
    else if (b.t != b0 && b.t->dtype == AC_I64) a.t = x_cast(p->x, a.t, AC_I64);
  }
  for (int d = 0; d < a.n; d++) {
    const int l = a.label[d];
    put(p, find(&b, l) < 0 ? &rows : needed[l] ? &batch : &inner, l);
  }
  for (int d = 0; d < b.n; d++)
    if (find(&a, b.label[d]) < 0) put(p, &columns, b.label[d]);
  if (a.t == NULL || b.t == NULL) return r;
  if (batch.n + rows.n + columns.n > AC_MAX_DIMS - 2) {
    fail(p, "a product on the way has more than %d dims", AC_MAX_DIMS - 2);
    return r;
  }
  const labels *all[3] = {&batch, &rows, &columns};
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < all[k]->n; i++) r.label[r.n++] = all[k]->label[i];
  if (inner.n == 0) { /* nothing to sum over */
    r.t = x_mul(p->x, T(arrange(p, &a, r.label, r.n)), T(arrange(p, &b, r.label, r.n)));
    return r;
  }
  r.t = x_matmul(p->x, as_matrices(p, &a, &batch, &rows, &inner),
                 as_matrices(p, &b, &batch, &inner, &columns));
  if (rows.n != 1 || columns.n != 1) {
    int64_t shape[AC_MAX_DIMS];
    for (int d = 0; d < r.n; d++) shape[d] = p->size[r.label[d]];
    r.t = x_reshape(p->x, r.t, shape, r.n);
  }
  return r;
}

/* Which labels are in the result or in terms other than i and j. */
static void mark_needed(const plan *p, int i, int j, bool *needed) {
  memset(needed, 0, MAX_LABELS * sizeof *needed);
  for (int d = 0; d < p->n_out; d++) needed[p->out[d]] = true;
  for (int k = 0; k < p->n_terms; k++)
    for (int d = 0; k != i && k != j && d < p->terms[k].n; d++) needed[p->terms[k].label[d]] = true;
}

/* Elements of the product of two terms, less the elements of the terms. */
static double growth(const plan *p, int i, int j) {
  bool needed[MAX_LABELS], in[MAX_LABELS] = {false};
  double sizes[2] = {1, 1}, product = 1;
  mark_needed(p, i, j, needed);
  for (int k = 0; k < 2; k++) {
    const term *t = &p->terms[k == 0 ? i : j];
    for (int d = 0; d < t->n; d++) {
      const int l = t->label[d];
      sizes[k] *= (double)p->size[l];
      if (needed[l] && !in[l]) product *= (double)p->size[l];
      in[l] = true;
    }
  }
  return product - sizes[0] - sizes[1];
}

static void contract_best(plan *p) {
  bool needed[MAX_LABELS];
  int a = 0, b = 1;
  double least = growth(p, 0, 1);
  for (int i = 0; p->n_terms > 2 && i < p->n_terms; i++)
    for (int j = i + 1; j < p->n_terms; j++) {
      double g = growth(p, i, j);
      if (g >= least) continue;
      least = g;
      a = i;
      b = j;
    }
  mark_needed(p, a, b, needed);
  p->terms[a] = contract(p, p->terms[a], p->terms[b], needed);
  memmove(&p->terms[b], &p->terms[b + 1], (size_t)(p->n_terms - b - 1) * sizeof(term));
  p->n_terms--;
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  plan p = {.x = x, .equation = a[0].str};
  const char *at;
  bool needed[MAX_LABELS];
  for (int l = 0; l < MAX_LABELS; l++) p.size[l] = -1;
  if (!read_operands(&p, &at, &a[1]) || !read_result(&p, at)) return 0;
  for (int i = 0; i < p.n_terms; i++) simplify(&p, &p.terms[i]);
  while (x->st == AC_OK && p.n_terms > 1) contract_best(&p);
  mark_needed(&p, 0, 0, needed);
  sum_out(&p, &p.terms[0], needed);
  if (x->st != AC_OK) return 0;
  out[0] = arrange(&p, &p.terms[0], p.out, p.n_out);
  for (int i = 0; i < a[1].n; i++)
    if (out[0] == a[1].tensors[i]) out[0] = x_alias(x, out[0]);
  return 1;
}

AC_OP(einsum, .sig = "einsum(equation: string, operands: tensors) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
