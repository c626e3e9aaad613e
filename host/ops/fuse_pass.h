/* A pass over memory by the formulas of several maps (fuse.h): nodes in order, laid out in rows, and run. */
#ifndef ACI_OPS_FUSE_PASS_H
#define ACI_OPS_FUSE_PASS_H
#include "ops/map/plan.h"
#include "tensor/tensor_impl.h"

enum { ACI_FUSE_MOST = 32, ACI_FUSE_DEPTH = 24, ACI_FUSE_ROWS = 40, ACI_FUSE_INPUTS = 16 };

/* A pass in one function (fuse_code.h): n elements, at most 1024, of its inputs and results. */
typedef void (*aci_fuse_kernel)(int64_t n, const float *const *in, float *const *out, const float *num);

typedef struct aci_fuse_operand {
  ac_storage *storage; /* retained; NULL: the number */
  const char *ptr;     /* of its first element; of one that waits: where it will be */
  ac_dtype dt;
  bool linear;       /* element i lies at i */
  int64_t row, step; /* else at row (i / inner) + step (i % inner), in elements */
  float number;
} aci_fuse_operand;

typedef struct aci_fuse_node {
  struct aci_fuse *owner;
  struct aci_fuse_node *older, *newer; /* of what waits */
  ac_storage *out;                     /* whose provider this is; not retained */
  aci_map_fn loop;
  const aci_map_loop *which;
  double heavy; /* operations an element */
  float p[ACI_MAP_MAX_P];
  int n_in, depth;
  aci_fuse_operand in[ACI_MAP_MAX_IN];
  int64_t numel, inner;
  ac_dtype dt;
  bool keep; /* a gradient may read it */
  bool lost; /* its region is over */
  bool write;
  int at, slot; /* in a pass: position, row; -1 */
} aci_fuse_node;

typedef struct aci_fuse_pass {
  int n, rows;
  aci_fuse_node *node[ACI_FUSE_MOST];
  int number[ACI_FUSE_MOST][ACI_MAP_MAX_IN]; /* the row that holds an operand's number */
  aci_fuse_node *from[ACI_FUSE_MOST][ACI_MAP_MAX_IN]; /* the node of this pass that an operand comes from; NULL: it lies in memory */
  aci_fuse_kernel code; /* NULL: formula by formula */
  int n_inputs, n_outputs;
  const aci_fuse_operand *input[ACI_FUSE_INPUTS];
  int64_t input_inner[ACI_FUSE_INPUTS];
  int output[ACI_FUSE_MOST]; /* nodes that are written */
  float numbers[ACI_FUSE_MOST * (ACI_MAP_MAX_P + ACI_MAP_MAX_IN)]; /* of each node its parameters, then operands that are numbers */
} aci_fuse_pass;

/* Says what is written and which row of scratch each node has; false: they do not suffice. */
bool aci_fuse_lay_out(aci_fuse_pass *p, const aci_fuse_node *wanted);
void aci_fuse_run(const aci_fuse_pass *p, ac_team *team);

#endif
