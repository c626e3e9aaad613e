/* accel-opgen: reads the definitions of ops out of C files and writes everything that follows from
 * their signatures.
 *
 * main.c collects files -> scan.c finds definitions -> check (main.c) -> emit_*.c build texts ->
 * out.c writes changed files. The tool is quiet on success. A mistake in an op's file is
 * "path:line: reason" and exit code 1. */
#ifndef ACI_OPGEN_H
#define ACI_OPGEN_H
#include <stdbool.h>
#include <stddef.h>

#include "ops/core/sig.h"

/* ---- out.c: growing text ---- */
typedef struct buf {
  char *s; /* NUL-terminated once something was put */
  size_t n, cap;
} buf;
void put(buf *b, const char *fmt, ...) AC_PRINTF(2, 3);
void put_bytes(buf *b, const char *s, size_t n);
/* Takes the last n bytes away. */
void put_back(buf *b, size_t n);
void buf_free(buf *b);
/* Whole file, NUL-terminated, NULL when it cannot be read. The caller frees it. */
char *read_file(const char *path, size_t *n);
/* Writes dir/name unless it holds this text already. Makes missing folders of name. False after a
 * message. */
bool write_if_changed(const char *dir, const char *name, const buf *b);
void *need(void *p); /* p, or the end of the program when memory is short */
char *copy_text(const char *s, size_t n);

/* ---- one definition ---- */
typedef struct op_def {
  char name[40];
  char macro[32]; /* AC_OP, AC_MAP1, ... */
  char *path;     /* as given, for messages */
  char *file;     /* "map/exp.c", for documents */
  char *sig_text;
  char *alias; /* further names, separated by blanks. "" for none */
  /* head comment of the file, lines without the comment's decoration and examples */
  char *doc;
  /* one "EXPR --> EXPECTED" per line, of the op that the file is named after. "" for others */
  char *examples;
  char autocast[16]; /* "lower", "f32", "promote" or "" */
  int line;
  bool inplace, hidden, nondiff, grad, composed, kernel;
  bool rebinds; /* a view whose in-place form gives the Lua handle another view: not an op of C */
  aci_sig sig;  /* holds pointers into itself: definitions are never moved */
} op_def;

typedef struct op_list {
  op_def **v; /* sorted by name once complete */
  int n, cap;
} op_list;

/* Appends the definitions in text. False after messages. */
bool scan_file(const char *path, op_list *ops);
/* First sentence of the head comment about this op. */
void doc_line(buf *b, const op_def *d);

/* ---- emitters: each appends one file's text ---- */
void emit_public_header(buf *b, const op_list *ops); /* accel/ops.h */
void emit_expr_header(buf *b, const op_list *ops);   /* ops_x.h */
void emit_api(buf *b, const op_list *ops);           /* ops_api.c */
void emit_table(buf *b, const op_list *ops);         /* ops_table.c */
void emit_stubs(buf *b, const op_list *ops);         /* lua/meta/ops.lua */
void emit_reference(buf *b, const op_list *ops);     /* ops.md */
void emit_json(buf *b, const op_list *ops);          /* ops.json */

/* cuda/map_<i>.cu, from the texts of these files. There are MAP_PARTS of them, so that compilers
 * work in parallel. False after messages. */
enum { MAP_PARTS = 4 };
bool emit_maps(const char *out, char *const *paths, int n);
/* The pieces of a file's text that formulas consist of (emit_maps.c). False when it makes no
 * maps. */
bool map_pieces(const char *text, buf *b);

/* map_text.c: the formulas as text, from these files, for kernels that are made while a program
 * runs (emit_text.c). False after messages. */
bool emit_map_texts(const char *out, char *const *paths, int n);

/* module_calls.h, module_table.c and module_stubs.c, from these headers below root (emit_calls.c).
 * False after messages. */
bool emit_calls(const char *out, const char *root, char *const *headers, int n);

/* ---- shared by the emitters ---- */
/* The next word of a list of names. False at its end. */
bool next_alias(const char **at, char *word, size_t room);
/* The default as scripts write it: `dims` counted from 1, "nil" for none. */
void put_lua_default(buf *b, const aci_param *a);
static inline bool is_list_type(ac_type t) {
  return t == AC_T_TENSORS || t == AC_T_INTS || t == AC_T_FLOATS || t == AC_T_DIMS ||
         t == AC_T_SHAPE;
}
/* Ops whose first argument is a tensor are methods as well. */
static inline bool is_method(const aci_sig *s) {
  return s->n_params > 0 && !s->param[0].optional &&
         (s->param[0].type == AC_T_TENSOR || s->param[0].type == AC_T_OPERAND);
}

#endif
