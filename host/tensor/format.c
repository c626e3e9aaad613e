/* Tensors as text, character for character as PyTorch's str() writes them. Only dtypes have our
 * names. Called by __tostring and messages.
 *
 * One format serves all visible elements. Integers: width of the widest. Floats: as integers with a
 * point when all are whole, otherwise with four decimals. Scientific when the largest exceeds 1e8
 * or 1000 times the smallest, or the smallest is below 1e-4. Zeros and non-finite values do not
 * count. More than 1000 elements: 3 at each end of every dim. Lines have 80 columns. */
#include "tensor/format.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tensor/convert.h"
#include "tensor/host_read.h"

enum { PRECISION = 4, THRESHOLD = 1000, EDGE = 3, LINE_WIDTH = 80, INDENT = 7 /* "tensor(" */ };

const char *(*aci_tensor_grad_name)(const ac_tensor *t);

typedef struct text {
  char *s;
  size_t n, cap;
  bool failed; /* no memory: further text is dropped */
} text;

typedef struct printer {
  const ac_tensor *t;
  const char *base;
  bool summarize;
  bool is_float, whole, scientific;
  double min, max; /* of the absolute values, over finite nonzero values */
  int width;
  struct printer *imag; /* of the imaginary parts, which stand one float after the real ones */
  text out;
} printer;

static void add(text *b, const char *s, size_t n) {
  if (b->failed) return;
  if (b->n + n + 1 > b->cap) {
    size_t cap = (b->n + n + 1) * 2;
    char *grown = realloc(b->s, cap);
    if (grown == NULL) {
      b->failed = true;
      return;
    }
    b->s = grown;
    b->cap = cap;
  }
  memcpy(b->s + b->n, s, n);
  b->n += n;
  b->s[b->n] = '\0';
}

static void add_text(text *b, const char *s) { add(b, s, strlen(s)); }

static void add_repeated(text *b, char c, int n) {
  for (int i = 0; i < n; i++) add(b, &c, 1);
}

/* ---- one element ---- */
static void sprint(char *out, size_t n, const char *fmt, ...) AC_PRINTF(3, 4);
/* In every locale with a point. */
static void sprint(char *out, size_t n, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(out, n, fmt, ap);
  va_end(ap);
  char *to = out;
  for (const char *p = out; *p != '\0'; p++) {
    bool plain = (*p >= '0' && *p <= '9') || *p == '-' || *p == '+' || *p == 'e';
    if (plain) *to++ = *p;
    else if (to > out && to[-1] != '.') *to++ = '.'; /* a decimal point may have several bytes */
  }
  *to = '\0';
}

static void element_text(const printer *p, int64_t at, char out[64]) {
  ac_dtype d = (ac_dtype)p->t->dtype;
  const char *where = p->base + at * (int64_t)aci_dsize(d);
  if (!p->is_float) {
    ac_scalar s = aci_item_load(d, where);
    if (s.kind == AC_SCALAR_BOOL) snprintf(out, 64, "%s", s.i ? "True" : "False");
    else snprintf(out, 64, "%lld", (long long)s.i);
    return;
  }
  double v = aci_item_load_f64(d, where);
  if (!isfinite(v)) snprintf(out, 64, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
  else if (p->scientific) sprint(out, 64, "%.*e", PRECISION, v);
  else if (p->whole) {
    sprint(out, 62, "%.0f", v); /* at most 1e8 here */
    strcat(out, ".");
  } else sprint(out, 64, "%.*f", PRECISION, v);
}

static void add_element(printer *p, int64_t at) {
  char s[64];
  element_text(p, at, s);
  add_repeated(&p->out, ' ', p->width - (int)strlen(s));
  add_text(&p->out, s);
  if (p->imag == NULL) return;
  element_text(p->imag, at + 1, s);
  if (s[0] != '-') add_text(&p->out, "+");
  add_text(&p->out, s);
  add_text(&p->out, "j");
}

/* ---- the format of all visible elements ---- */
typedef void (*visit_fn)(printer *p, int64_t at);

static bool has_gap(const printer *p, int dim) {
  return p->summarize && p->t->shape[dim] > 2 * EDGE;
}

static void visit(printer *p, int dim, int64_t at, visit_fn fn) {
  if (dim == p->t->ndim) {
    fn(p, at);
    return;
  }
  for (int64_t i = 0; i < p->t->shape[dim]; i++) {
    if (has_gap(p, dim) && i == EDGE) i = p->t->shape[dim] - EDGE;
    visit(p, dim + 1, at + i * p->t->stride[dim], fn);
  }
}

static void look(printer *p, int64_t at) {
  ac_dtype d = (ac_dtype)p->t->dtype;
  double v = aci_item_load_f64(d, p->base + at * (int64_t)aci_dsize(d)), a = fabs(v);
  if (!isfinite(v) || v == 0) return;
  p->whole = p->whole && v == ceil(v);
  p->min = a < p->min ? a : p->min;
  p->max = a > p->max ? a : p->max;
}

/* Zeros and non-finite values do not widen the columns of floats. */
static void measure(printer *p, int64_t at) {
  char s[64];
  if (p->is_float) {
    ac_dtype d = (ac_dtype)p->t->dtype;
    double v = aci_item_load_f64(d, p->base + at * (int64_t)aci_dsize(d));
    if (!isfinite(v) || v == 0) return;
  }
  element_text(p, at, s);
  int n = (int)strlen(s);
  p->width = n > p->width ? n : p->width;
}

static void choose_format(printer *p) {
  p->width = 1;
  p->whole = true;
  p->min = HUGE_VAL;
  p->max = 0;
  if (p->is_float) {
    visit(p, 0, p->t->offset, look);
    p->scientific = p->max > 0 && (p->max / p->min > 1000 || p->max > 1e8 || p->min < 1e-4);
  }
  visit(p, 0, p->t->offset, measure);
}

/* ---- brackets and lines ---- */
static void add_vector(printer *p, int64_t at, int indent) {
  int64_t n = p->t->shape[p->t->ndim - 1], stride = p->t->stride[p->t->ndim - 1], column = 0;
  const int both = p->width + (p->imag != NULL ? p->imag->width + 1 : 0);
  int per_line = (LINE_WIDTH - indent) / (both + 2);
  if (per_line < 1) per_line = 1;
  bool gap = has_gap(p, p->t->ndim - 1);
  add_text(&p->out, "[");
  for (int64_t i = 0; i < n; i++, column++) {
    if (column > 0 && column % per_line == 0) {
      add_text(&p->out, ",\n");
      add_repeated(&p->out, ' ', indent + 1);
    } else if (column > 0) {
      add_text(&p->out, ", ");
    }
    if (gap && i == EDGE) {
      add_text(&p->out, " ...");
      i = n - EDGE - 1;
    } else {
      add_element(p, at + i * stride);
    }
  }
  add_text(&p->out, "]");
}

static void add_slices(printer *p, int dim, int64_t at, int indent) {
  int rest = p->t->ndim - dim;
  if (rest == 0) {
    add_element(p, at);
    return;
  }
  if (rest == 1) {
    add_vector(p, at, indent);
    return;
  }
  int64_t n = p->t->shape[dim];
  add_text(&p->out, "[");
  for (int64_t i = 0; i < n; i++) {
    if (i > 0) {
      add_text(&p->out, ",");
      add_repeated(&p->out, '\n', rest - 1);
      add_repeated(&p->out, ' ', indent + 1);
    }
    if (has_gap(p, dim) && i == EDGE) {
      add_text(&p->out, "...");
      i = n - EDGE - 1;
    } else {
      add_slices(p, dim + 1, at + i * p->t->stride[dim], indent + 1);
    }
  }
  add_text(&p->out, "]");
}

/* Real and imaginary parts have a format each. */
static void add_complex(printer *p, const char *base) {
  ac_tensor *part[2] = {aci_tensor_part(p->t, 0), aci_tensor_part(p->t, 1)};
  printer imag = {.t = part[1], .base = base, .summarize = p->summarize, .is_float = true};
  p->out.failed |= part[0] == NULL || part[1] == NULL;
  if (!p->out.failed) {
    const ac_tensor *whole = p->t;
    p->t = part[0];
    p->base = base;
    p->is_float = true;
    choose_format(p);
    choose_format(&imag);
    p->imag = &imag;
    add_slices(p, 0, part[0]->offset, INDENT);
    p->t = whole;
    p->imag = NULL;
  }
  ac_tensor_release(part[0]);
  ac_tensor_release(part[1]);
}

/* ---- the text after the values ---- */
static void add_suffix(text *b, int *line, const char *suffix) {
  int n = (int)strlen(suffix);
  if (*line + n + 2 > LINE_WIDTH) {
    add_text(b, ",\n");
    add_repeated(b, ' ', INDENT);
    *line = INDENT + n;
  } else {
    add_text(b, ", ");
    *line += n + 2;
  }
  add_text(b, suffix);
}

/* "(2, 3)" with Python's comma in "(3,)". */
static void size_suffix(const ac_tensor *t, char *out, size_t n) {
  char shape[AC_MAX_DIMS * 22];
  aci_shape_str(t->ndim, t->shape, shape, sizeof shape);
  if (t->ndim == 1) memcpy(shape + strlen(shape) - 1, ",)", 3);
  snprintf(out, n, "size=%s", shape);
}

static void add_suffixes(text *b, const ac_tensor *t, bool has_values) {
  char s[AC_MAX_DIMS * 22 + 16];
  int line = 2; /* counts two columns too many, as PyTorch does */
  for (size_t i = b->n; i > 0 && b->s[i - 1] != '\n'; i--) line++;
  bool usual = t->dtype == AC_F32 || t->dtype == AC_C64 ||
               (has_values && (t->dtype == AC_I64 || t->dtype == AC_BOOL));
  if (t->device != NULL && t->device->kind != AC_DEV_CPU) {
    snprintf(s, sizeof s, "device='%s'", t->device->name);
    add_suffix(b, &line, s);
  }
  if (!has_values &&
      (t->numel != 0 || t->ndim != 1 || t->device == NULL || t->device->kind == AC_DEV_META)) {
    size_suffix(t, s, sizeof s);
    add_suffix(b, &line, s);
  }
  if (!usual) {
    snprintf(s, sizeof s, "dtype=%s", ac_dtype_name((ac_dtype)t->dtype));
    add_suffix(b, &line, s);
  }
  if (t->grad_fn != NULL) {
    snprintf(s, sizeof s, "grad_fn=<%s>",
             aci_tensor_grad_name != NULL ? aci_tensor_grad_name(t) : "?");
    add_suffix(b, &line, s);
  } else if (t->flags & ACI_T_REQUIRES_GRAD) {
    add_suffix(b, &line, "requires_grad=True");
  }
}

/* The codes mean nothing to a reader: the values they stand for are printed. */
static char *format_quantized(const ac_tensor *t, const ac_layout *l) {
  text b = {0};
  char s[AC_MAX_DIMS * 22 + 160], shape[AC_MAX_DIMS * 22 + 8];
  snprintf(s, sizeof s, "tensor(..., size=%s, quant_type=%s, blocksize=%lld, dtype=%s%s%s%s%s)",
           aci_shape_str(l->ndim, l->shape, shape, sizeof shape), ac_quant_type_name(l->type),
           (long long)l->blocksize, ac_dtype_name(l->dtype), l->nested ? ", nested" : "",
           t->device->kind != AC_DEV_CPU ? ", device='" : "",
           t->device->kind != AC_DEV_CPU ? t->device->name : "",
           t->device->kind != AC_DEV_CPU ? "'" : "");
  add_text(&b, s);
  if (!b.failed) return b.s;
  free(b.s);
  return NULL;
}

char *ac_tensor_format(const ac_tensor *t) {
  if (t->storage != NULL && ac_tensor_layout(t) != NULL)
    return format_quantized(t, ac_tensor_layout(t));
  char cls = 'f';
  switch ((ac_dtype)t->dtype) {
#define AC_X(id, s, torch, bytes, c) \
  case AC_##id: cls = c; break;
    AC_DTYPE_LIST(AC_X)
#undef AC_X
    case AC_DTYPE_COUNT: break;
  }
  printer p = {.t = t};
  p.is_float = cls == 'f' || t->dtype == AC_F8_E4M3 || t->dtype == AC_F8_E5M2;
  p.summarize = t->numel > THRESHOLD;
  aci_host_read r = {NULL, NULL, NULL};
  bool meta = t->storage == NULL || t->device->kind == AC_DEV_META;
  /* values that cannot be read (their file was removed) are left out, as on meta */
  bool has_values = !meta && t->numel > 0 && aci_host_read_open(t, true, &r, NULL) == AC_OK;
  add_text(&p.out, "tensor(");
  if (has_values && aci_is_complex(t)) {
    add_complex(&p, r.base);
    aci_host_read_close(&r);
  } else if (has_values) {
    p.base = r.base;
    choose_format(&p);
    add_slices(&p, 0, t->offset, INDENT);
    aci_host_read_close(&r);
  } else {
    add_text(&p.out, !meta && t->numel == 0 ? "[]" : "...");
  }
  if (!p.out.failed) add_suffixes(&p.out, t, has_values);
  add_text(&p.out, ")");
  if (p.out.failed) {
    free(p.out.s);
    return NULL;
  }
  return p.out.s;
}
