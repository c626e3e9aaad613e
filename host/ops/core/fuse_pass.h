/* A pass over memory by the formulas of several maps and reductions (fuse.h): nodes in order, laid
 * out in rows, and run.
 *
 *   fuse.c          waiting results, and the nodes of a pass
 *   fuse_reduce.c   the same of reductions
 *   fuse_memory.c   memory for written results
 *   fuse_pass.c     passes of maps: 1024 elements by every formula, then the next 1024
 *   fuse_rows.c     passes with reductions: a row of a tensor by every formula, then the next row
 *   fuse_code.c     a pass as C text
 *   fuse_cc.c       that text compiled */
#ifndef ACI_OPS_FUSE_PASS_H
#define ACI_OPS_FUSE_PASS_H
#include "ops/core/fuse.h"
#include "tensor/tensor_impl.h"

enum {
  ACI_FUSE_MOST = 32,
  ACI_FUSE_DEPTH = 24,
  ACI_FUSE_ROWS = 40,
  ACI_FUSE_INPUTS = 16,
  ACI_FUSE_BLOCK = 1024
};
/* Rows of a pass: shorter ones cost more to begin than they gain, and the cache holds too few
 * longer ones. */
enum { ACI_FUSE_COLS_LEAST = 64, ACI_FUSE_COLS_MOST = 8192 };

/* A pass in one function (fuse_code.h): n elements, at most 1024, or a row of its inputs and
 * results. */
typedef struct aci_fuse_row {
  float *scratch; /* rows of values that are read again, step apart */
  int64_t step;
  /* node `at` of a row whose operand is x */
  float (*reduce)(const struct aci_fuse_row *r, int at, const float *x);
  const struct aci_fuse_pass *pass;
} aci_fuse_row;
typedef void (*aci_fuse_kernel)(int64_t n, const float *const *in, float *const *out,
                                const float *num, const aci_fuse_row *row);

typedef struct aci_fuse_operand {
  ac_storage *storage; /* retained. NULL: the number */
  /* of its first element, once the pass is laid out. Offset in bytes in the storage: */
  const char *ptr;
  int64_t begin;
  ac_dtype dt;
  bool linear;       /* element i lies at i */
  int64_t row, step; /* else at row (i / inner) + step (i % inner), in elements */
  float number;
} aci_fuse_operand;

typedef enum aci_fuse_kind {
  ACI_FUSE_MAP,     /* a value an element */
  ACI_FUSE_REDUCED, /* a row of elements made one value, inside a pass */
  ACI_FUSE_ROW_MAP, /* a map of such values */
  /* a reduction by its own kernel, which takes elements from a pass: no part of others */
  ACI_FUSE_WALK
} aci_fuse_kind;

typedef struct aci_fuse_node {
  struct aci_fuse *owner;
  struct aci_fuse_node *older, *newer; /* of the waiting result */
  ac_storage *out;                     /* whose provider this is. Not retained */
  aci_fuse_kind kind;
  aci_map_fn loop;
  const aci_map_loop *which;
  double heavy; /* operations an element */
  float p[ACI_MAP_MAX_P];
  int n_in, depth;
  aci_fuse_operand in[ACI_MAP_MAX_IN];
  int64_t numel, inner;
  int64_t rows, cols; /* of the reduced tensor, if kind is not ACI_FUSE_MAP */
  aci_fuse_reduction how;
  aci_reduce_plan *plan; /* of ACI_FUSE_WALK. Owned */
  ac_dtype dt;
  bool keep;   /* a gradient may read it */
  bool shared; /* in a pass: others that wait read it */
  /* computed once on the way to another: the next time it is written, so that chains do not grow
   * from reader to reader */
  bool passed;
  bool lost;    /* its region is over */
  bool walking; /* it takes its operand from a pass, or has it computed */
  bool write;
  int at, slot;          /* in a pass: position, row. -1 if none */
  ac_storage *memory_of; /* in a pass: the operand whose memory it took */
} aci_fuse_node;

typedef struct aci_fuse_pass {
  int n, rows;
  int64_t numel, cols; /* elements. Of a row if reductions take part, otherwise 0 */
  aci_fuse_node *node[ACI_FUSE_MOST];
  /* the node whose values aci_fuse_fill returns. NULL: the pass is run */
  const aci_fuse_node *taken;
  int number[ACI_FUSE_MOST][ACI_MAP_MAX_IN]; /* the row that holds an operand's number */
  /* the node of this pass that an operand comes from. NULL: it is in memory */
  aci_fuse_node *from[ACI_FUSE_MOST][ACI_MAP_MAX_IN];
  aci_fuse_kernel code; /* NULL: formula by formula */
  int n_inputs, n_outputs, n_scratch;
  const aci_fuse_operand *input[ACI_FUSE_INPUTS];
  const aci_fuse_node *input_of[ACI_FUSE_INPUTS]; /* the node that reads it */
  int output[ACI_FUSE_MOST];                      /* nodes that are written, or taken */
  /* of each node its parameters, then operands that are numbers */
  float numbers[ACI_FUSE_MOST * (ACI_MAP_MAX_P + ACI_MAP_MAX_IN)];
} aci_fuse_pass;

/* Decides which nodes are written and the row of scratch of each. False: there are not enough rows.
 * wanted NULL: only p->taken is returned. */
bool aci_fuse_lay_out(aci_fuse_pass *p, const aci_fuse_node *wanted);
/* OOM without memory for scratch. f: device, team and stream. */
ac_status aci_fuse_run(const aci_fuse_pass *p, ac_frame *f, ac_err *e);
/* Of a pass without reductions: elements [at, at + n) of the taken node. Results to be written are
 * written as well. */
void aci_fuse_fill(const void *pass, int64_t at, int64_t n, float *to);

/* ---- declarations shared by fuse_pass.c and fuse_rows.c ---- */
typedef struct aci_fuse_scratch {
  float *row; /* p->rows of them */
  int64_t step;
  float value[ACI_FUSE_MOST]; /* of nodes with one value a row */
} aci_fuse_scratch;
/* Fills the rows of operands that are numbers, n elements each. */
void aci_fuse_numbers(const aci_fuse_pass *p, int64_t n, const aci_fuse_scratch *s);
/* Elements [i, i + n) of a map. */
void aci_fuse_step(const aci_fuse_pass *p, int at, int64_t i, int64_t n, const aci_fuse_scratch *s);
/* n elements of an operand from position i on, in f32. */
void aci_fuse_fetch(const aci_fuse_operand *o, int64_t inner, int64_t i, int64_t n, float *to);
/* The pass by rows. */
ac_status aci_fuse_run_rows(const aci_fuse_pass *p, ac_frame *f, ac_err *e);

#endif
