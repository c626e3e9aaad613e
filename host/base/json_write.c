/* The JSON writer and the UTF-8 check (json.h). Called by whatever writes configs, manifests and
 * safetensors headers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"

int aci_utf8_length(const unsigned char *s, size_t n) {
  if (n == 0) return 0;
  unsigned char c = s[0];
  if (c < 0x80) return 1;
  int len = c >= 0xC2 && c <= 0xDF ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
  if (len == 0 || n < (size_t)len) return 0;
  for (int i = 1; i < len; i++)
    if ((s[i] & 0xC0) != 0x80) return 0;
  if ((c == 0xE0 && s[1] < 0xA0) || (c == 0xED && s[1] > 0x9F)) return 0; /* overlong, surrogates */
  /* overlong, above U+10FFFF */
  if ((c == 0xF0 && s[1] < 0x90) || (c == 0xF4 && s[1] > 0x8F)) return 0;
  return len;
}

static void fail(aci_json_writer *w) {
  if (w->bad == AC_OK) w->bad = AC_INVALID;
}

/* Keys, values and ends come in an order that makes a document. */
static bool holds(aci_json_writer *w, bool order) {
  if (!AC_HOLDS(order) && w->bad == AC_OK) w->bad = AC_INTERNAL;
  return w->bad == AC_OK;
}

static void new_line(aci_json_writer *w) {
  if (!w->pretty) return;
  aci_strbuf_putc(w->out, '\n');
  for (int i = 0; i < w->depth; i++) aci_strbuf_add(w->out, "  ", 2);
}

/* The comma and the indentation before a key or an array's member. */
static void separate(aci_json_writer *w) {
  if (w->filled[w->depth]) aci_strbuf_putc(w->out, ',');
  w->filled[w->depth] = true;
  if (w->depth > 0) new_line(w);
}

/* False after a fault: from there on nothing is written, and finish() reports. */
static bool before_value(aci_json_writer *w) {
  if (w->bad != AC_OK) return false;
  if (w->object[w->depth]) {
    if (!holds(w, w->after_key)) return false;
    w->after_key = false;
  } else {
    if (!holds(w, w->depth > 0 || !w->filled[0])) return false; /* one value */
    separate(w);
  }
  return true;
}

static void quoted(aci_json_writer *w, const char *text, size_t n) {
  const unsigned char *s = (const unsigned char *)text, *end = s + n, *run = s;
  aci_strbuf_putc(w->out, '"');
  while (s < end) {
    int len = *s < 0x80 ? 1 : aci_utf8_length(s, (size_t)(end - s));
    if (len == 0) {
      fail(w);
      break;
    }
    if (*s >= 0x20 && *s != '"' && *s != '\\') {
      s += len;
      continue;
    }
    static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    aci_strbuf_add(w->out, (const char *)run, (size_t)(s - run));
    const char *p = *s == '\0' ? NULL : strchr(plain, *s);
    if (p != NULL) {
      aci_strbuf_putc(w->out, '\\');
      aci_strbuf_putc(w->out, letter[p - plain]);
    } else {
      aci_strbuf_printf(w->out, "\\u%04x", *s);
    }
    run = ++s;
  }
  aci_strbuf_add(w->out, (const char *)run, (size_t)(s - run));
  aci_strbuf_putc(w->out, '"');
}

void aci_json_begin(aci_json_writer *w, bool object) {
  if (w->depth == ACI_JSON_WRITE_DEPTH) fail(w);
  if (!before_value(w)) return;
  aci_strbuf_putc(w->out, object ? '{' : '[');
  w->depth++;
  w->object[w->depth] = object;
  w->filled[w->depth] = false;
}

void aci_json_end(aci_json_writer *w) {
  if (w->bad != AC_OK) return;
  if (!holds(w, w->depth > 0 && !w->after_key)) return;
  bool object = w->object[w->depth], filled = w->filled[w->depth];
  w->depth--;
  if (filled) new_line(w);
  aci_strbuf_putc(w->out, object ? '}' : ']');
}

void aci_json_key(aci_json_writer *w, const char *s, size_t n) {
  if (w->bad != AC_OK) return;
  if (!holds(w, w->object[w->depth] && !w->after_key)) return;
  separate(w);
  quoted(w, s, n);
  aci_strbuf_puts(w->out, w->pretty ? ": " : ":");
  w->after_key = true;
}

void aci_json_string(aci_json_writer *w, const char *s, size_t n) {
  if (!before_value(w)) return;
  quoted(w, s, n);
}

void aci_json_int(aci_json_writer *w, int64_t v) {
  if (!before_value(w)) return;
  aci_strbuf_printf(w->out, "%lld", (long long)v);
}

void aci_json_double(aci_json_writer *w, double v) {
  if (!isfinite(v)) fail(w);
  if (!before_value(w)) return;
  char text[32];
  size_t n = aci_f64_text(text, v);
  aci_strbuf_add(w->out, text, n);
  if (strpbrk(text, ".e") == NULL) aci_strbuf_add(w->out, ".0", 2);
}

void aci_json_bool(aci_json_writer *w, bool v) {
  if (!before_value(w)) return;
  aci_strbuf_puts(w->out, v ? "true" : "false");
}

void aci_json_null(aci_json_writer *w) {
  if (!before_value(w)) return;
  aci_strbuf_puts(w->out, "null");
}

void aci_json_value(aci_json_writer *w, const aci_json *v) {
  switch (v->type) {
    case ACI_JSON_NULL: aci_json_null(w); return;
    case ACI_JSON_BOOL: aci_json_bool(w, v->u.b); return;
    case ACI_JSON_INT: aci_json_int(w, v->u.i); return;
    case ACI_JSON_DOUBLE: aci_json_double(w, v->u.f); return;
    case ACI_JSON_STRING: aci_json_string(w, v->u.s, v->len); return;
    case ACI_JSON_KEY: aci_json_key(w, v->u.s, v->len); return;
    default: break;
  }
  aci_json_begin(w, v->type == ACI_JSON_OBJECT);
  if (w->bad != AC_OK) return; /* so that this nests no deeper than the writer */
  for (const aci_json *m = aci_json_first(v), *end = aci_json_after(v); m != end;
       m = aci_json_after(m))
    aci_json_value(w, m);
  aci_json_end(w);
}

ac_status aci_json_finish(aci_json_writer *w, ac_err *e) {
  if (w->out->failed) return AC_FAIL(e, OOM, "JSON: out of memory for the text");
  if (w->bad == AC_INTERNAL)
    return AC_FAIL(e, INTERNAL, "JSON: keys and values were written in a wrong order");
  if (w->bad != AC_OK)
    return AC_FAIL(
        e, INVALID,
        "JSON: cannot write NaN, infinity, text that is not UTF-8, or more than %d levels",
        ACI_JSON_WRITE_DEPTH);
  AC_CHECK(w->depth == 0 && w->filled[0], e);
  return AC_OK;
}
