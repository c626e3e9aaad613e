/* Types of columns: names in Arrow's form, dtypes of tensors. */
#include <stdlib.h>

#include "file/table/table.h"

void aci_type_fini(aci_type *t) {
  for (int i = 0; i < t->n_children; i++) aci_type_fini(&t->child[i]);
  free(t->child);
  free(t->name);
  free(t->zone);
  *t = (aci_type){0};
}

bool aci_type_dtype(const aci_type *t, ac_dtype *out) {
  switch (t->kind) {
    case ACI_FLOATS: *out = t->width == 2 ? AC_F16 : t->width == 4 ? AC_F32 : AC_F64; return true;
    case ACI_INTS:
      if (t->is_unsigned && t->width == 8) return false;
      *out = t->width == 1   ? (t->is_unsigned ? AC_U8 : AC_I8)
             : t->width == 2 ? (t->is_unsigned ? AC_U16 : AC_I16)
             : t->width == 4 ? (t->is_unsigned ? AC_U32 : AC_I32)
                             : AC_I64;
      return true;
    case ACI_DATES:
    case ACI_TIMES:
    case ACI_TIMESTAMPS:
    case ACI_DURATIONS: *out = t->width == 4 ? AC_I32 : AC_I64; return true;
    default: return false;
  }
}

static void describe_list(const aci_type *t, const char *name, aci_strbuf *out) {
  aci_strbuf_printf(out, "%s<%s: ", name, t->child[0].name);
  aci_type_describe(&t->child[0], out);
  aci_strbuf_printf(out, "%s>", t->child[0].nullable ? "" : " not null");
}

static void describe_struct(const aci_type *t, aci_strbuf *out) {
  aci_strbuf_puts(out, "struct<");
  for (int i = 0; i < t->n_children; i++) {
    aci_strbuf_printf(out, "%s%s: ", i > 0 ? ", " : "", t->child[i].name);
    aci_type_describe(&t->child[i], out);
    if (!t->child[i].nullable) aci_strbuf_puts(out, " not null");
  }
  aci_strbuf_puts(out, ">");
}

void aci_type_describe(const aci_type *t, aci_strbuf *out) {
  static const char *const units[] = {"s", "ms", "us", "ns"};
  const char *large = t->large ? "large_" : "";
  switch (t->kind) {
    case ACI_NULLS: aci_strbuf_puts(out, "null"); break;
    case ACI_BOOLS: aci_strbuf_puts(out, "bool"); break;
    case ACI_INTS:
      aci_strbuf_printf(out, "%sint%d", t->is_unsigned ? "u" : "", 8 * t->width);
      break;
    case ACI_FLOATS:
      aci_strbuf_puts(out, t->width == 2 ? "halffloat" : t->width == 4 ? "float" : "double");
      break;
    case ACI_DECIMALS:
      aci_strbuf_printf(out, "decimal%d(%d, %d)", t->width <= 16 ? 128 : 256, t->precision,
                        t->scale);
      break;
    case ACI_DATES: aci_strbuf_puts(out, t->width == 4 ? "date32[day]" : "date64[ms]"); break;
    case ACI_TIMES: aci_strbuf_printf(out, "time%d[%s]", 8 * t->width, units[t->unit]); break;
    case ACI_TIMESTAMPS:
      aci_strbuf_printf(out, "timestamp[%s", units[t->unit]);
      if (t->zone != NULL) aci_strbuf_printf(out, ", tz=%s", t->zone);
      aci_strbuf_puts(out, "]");
      break;
    case ACI_DURATIONS: aci_strbuf_printf(out, "duration[%s]", units[t->unit]); break;
    case ACI_STRINGS:
      aci_strbuf_printf(out, "%s%s", large, t->is_text ? "string" : "binary");
      break;
    case ACI_FIXED: aci_strbuf_printf(out, "fixed_size_binary[%d]", t->width); break;
    case ACI_VIEWS: aci_strbuf_puts(out, t->is_text ? "string_view" : "binary_view"); break;
    case ACI_LISTS: describe_list(t, t->large ? "large_list" : "list", out); break;
    case ACI_FIXED_LISTS:
      describe_list(t, "fixed_size_list", out);
      aci_strbuf_printf(out, "[%d]", t->list_size);
      break;
    case ACI_STRUCTS: describe_struct(t, out); break;
    case ACI_MAPS:
      aci_strbuf_puts(out, "map<");
      aci_type_describe(&t->child[0].child[0], out);
      aci_strbuf_puts(out, ", ");
      aci_type_describe(&t->child[0].child[1], out);
      aci_strbuf_puts(out, ">");
      break;
    case ACI_RUN_ENDS:
      aci_strbuf_puts(out, "run_end_encoded<run_ends: ");
      aci_type_describe(&t->child[0], out);
      aci_strbuf_puts(out, ", values: ");
      aci_type_describe(&t->child[1], out);
      aci_strbuf_puts(out, ">");
      break;
    case ACI_DICTS:
      aci_strbuf_puts(out, "dictionary<values=");
      aci_type_describe(&t->child[0], out);
      aci_strbuf_printf(out, ", indices=%sint%d, ordered=%d>", t->is_unsigned ? "u" : "",
                        8 * t->width, t->ordered);
      break;
  }
}
