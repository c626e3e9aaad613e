/* The cut of reductions (reduction.cuh), by shape and strides alone. */
#include "ops/reduce/reduction.cuh"

#ifdef ACI_CUDA_EMULATED
enum { PIECE = 256, ENOUGH = 4 }; /* so that small tests reach every path */
#else
enum {
  PIECE = 1 << 14,
  ENOUGH = 2048
}; /* elements of a piece. Outputs that fill the machine by themselves */
#endif

void aci_reduction_cut(aci_reduction_args *a) {
  const aci_reduce_plan *p = &a->plan;
  const int64_t n = p->n_reduced;
  a->columns = n > 1 && p->n_out > 1 && p->keep_stride[p->n_keep - 1] == 1 &&
               p->red_stride[p->n_red - 1] != 1;
  /* rows: as many lanes as the list can use. Columns: a warp of adjacent outputs */
  a->lanes = ACI_BLOCK;
  while (a->lanes > 1 && (a->columns ? a->lanes > ACI_BLOCK / 32 : a->lanes / 2 >= n))
    a->lanes /= 2;
  a->lists = ACI_BLOCK / a->lanes;
  a->piece = n > 0 ? n : 1;
  if (p->n_out < ENOUGH && n > PIECE) a->piece = PIECE;
  a->n_pieces = n > 0 ? (n + a->piece - 1) / a->piece : 1;
}
