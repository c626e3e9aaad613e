/* The inside of convolutions, shared by conv*.c: how windows walk over a source, and how a tile of
 * positions is laid out as the columns of a matrix.
 *
 * A walk reads, at position q and tap t, source position q * step + off + t * doff of every dim, 0
 * outside. A convolution is one walk over x. Its transpose is one walk over dy per residue of the
 * stride, each with the taps that fall on it. A tile is a run of positions in (image, depth, row,
 * column) order. One channel of a tile is staged: the source rows that the tile reads, in the type
 * that is multiplied, zeros filled in, and rows of a strided walk sorted by residue, so that each
 * tap reads contiguous memory along a row of positions. Stage then becomes matrix rows, one per
 * tap, by plain copies.
 *
 * Map of the folder: kernels that ops share and that need the tiles of the matrix product.
 *
 *   conv.h, conv.c          convolutions: the interface, and the choice of a way
 *   conv_product.c          by packed panels and micro-kernels. conv_tile.c makes the tiles,
 *                           conv_store.c writes results
 *   conv_direct.c           directly, for few result channels
 *   conv_fold.c             transposed ones by a product and col2im
 *   conv_winograd*.[ch]     3 x 3 taps by Winograd's transforms, forward and by weights
 *   conv_upcast.c           16-bit floats through copies in f32
 *   conv_onednn.c           through oneDNN
 *   conv_weight.c           gradients of weights
 *   flash.h, flash_impl.h   attention: flash.c forward, flash_backward.c, flash_tile.[ch] passes
 *                           over tiles of scores */
#ifndef ACI_CONV_IMPL_H
#define ACI_CONV_IMPL_H
#include <stdatomic.h>

#include "device/cpu/gemm_impl.h"
#include "device/cpu/kernels/conv.h"

enum {
  ACI_CONV_COLS = 256, /* positions of a tile at most */
  ACI_CONV_SLACK = 64, /* bytes that copies may run over */
  /* result channels of a group up to which packing costs more than it gains */
  ACI_CONV_DIRECT = 3
};

typedef struct aci_conv_axis {
  int64_t src, q; /* extents: of the source, of the positions */
  int64_t taps, step;
  int64_t off, doff;   /* tap i of position p reads p * step + off + i * doff */
  int64_t tap0, dtap;  /* and is tap0 + i * dtap of the kernel */
  int64_t dst, at, by; /* position p is at + p * by of the dst extents of the result */
} aci_conv_axis;

typedef struct aci_conv_walk {
  aci_gemm_type type;
  int stage_bytes;     /* of a staged value: 2 raw, 4 f32, 8 f64 */
  int64_t n, channels; /* images. Channels of the source in all groups together */
  const void *src;
  aci_conv_axis a[ACI_CONV_DIMS];
  int64_t taps, positions; /* products over the axes. Positions of one image */
  bool
      /* one tap that takes source to result position by position, in the staged type: no stage is
       * needed */
      direct;
} aci_conv_walk;

/* A run of positions in one row of the result. direct: in one image. */
typedef struct aci_conv_run {
  int32_t col, len; /* columns of the tile */
  int64_t
      /* of its first position and the first tap, in values. direct: offset in the source of channel
       * 0 */
      stage;
  int64_t image, position; /* position within the image */
} aci_conv_run;

/* Rows of one image and depth that are staged together. */
typedef struct aci_conv_slab {
  int64_t image, depth, row, n_rows;
} aci_conv_slab;

/* A copy of `bytes` from the stage: into row and panel of the matrix at `dst`. */
typedef struct aci_conv_piece {
  int64_t src; /* in bytes */
  int32_t dst, bytes;
} aci_conv_piece;

enum { ACI_CONV_PIECES = 2 * ACI_CONV_COLS };

typedef struct aci_conv_tile {
  const aci_conv_walk *w;
  int n_cols, n_runs, n_slabs;
  /* first position in its row and number of them, when the tile is part of one row */
  int64_t col0, n_at;
  int64_t rows, row_len; /* of a slab's depth slice, per residue: staged rows, values per row */
  int64_t slice_len, slab_len; /* in values */
  int64_t low[ACI_CONV_DIMS];  /* least i * doff */
  int width, n_panels, tail;   /* panels, their width, and the width of the last */
  int n_pieces, n_whole; /* copies per row of the matrix, and how many of them fill a whole panel */
  aci_conv_run run[ACI_CONV_COLS];
  aci_conv_slab slab[ACI_CONV_COLS];
  aci_conv_piece piece[ACI_CONV_PIECES];
} aci_conv_tile;

/* Computes the derived fields from the axes of a walk. staged: BF16 (raw), F32 or F64. */
void aci_conv_walk_finish(aci_conv_walk *w, aci_gemm_type staged);
/* How many tiles of about `cols` positions there are, and the tile's first position and number of
 * positions. Tiles of long rows are parts of one row. */
int64_t aci_conv_tiles(const aci_conv_walk *w, int64_t cols);
/* Tile `index`. Its columns are cut into panels of nr (the last of nr / 2 if that is enough) that
 * lie panel_bytes apart, or stay one row (nr = 0). */
void aci_conv_tile_make(const aci_conv_walk *w, int64_t cols, int64_t index, int nr,
                        int64_t panel_bytes, aci_conv_tile *t);
/* Counts panels of nr columns, when rows are cut into them later than here. */
void aci_conv_tile_panels(aci_conv_tile *t, int nr);
/* Bytes that staging one channel takes at most, for any tile of about `cols` positions. */
int64_t aci_conv_stage_bytes(const aci_conv_walk *w, int64_t cols);
void aci_conv_stage(const aci_conv_tile *t, int64_t channel, char *stage);
/* Offset in the stage of tap i (row-major over the axes) against the first, in bytes. */
int64_t aci_conv_tap(const aci_conv_tile *t, int64_t tap);
/* The values that the tap at offset `tap` reads at each column, as one row of the matrix: row `k`
 * of the panels at dst. Up to ACI_CONV_SLACK bytes after the row are written too, so make rows in
 * order. The unused lanes of a last panel are not written. */
void aci_conv_row(const aci_conv_tile *t, const char *stage, int64_t channel, int64_t tap,
                  char *dst, int64_t k);

static inline int64_t aci_conv_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t aci_conv_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t aci_conv_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t aci_conv_size(const int64_t *e) { return e[0] * e[1] * e[2]; }

/* A product of a walk with weights: result channel r of a group takes weight[r * w_row + c * w_chan
 * + tap]. Tiles of all groups are counted in one: tile i of group g is i * groups + g. */
typedef struct aci_conv_product {
  aci_conv_walk w;
  int64_t groups, chans, rows;                      /* source and result channels per group */
  const void *weight, *bias;                        /* bias per result channel, or NULL */
  int64_t w_group, w_row, w_chan, k[ACI_CONV_DIMS]; /* in elements. Extents of the kernel */
  void *dst;
  /* set by those who run it */
  const aci_gemm_kernel *kn;
  aci_gemm_type acc; /* F32 or F64 */
  int64_t depth;     /* K = chans * taps */
  int64_t kc, n_kb, rm, n_rc, cols, n_tiles, panel_bytes;
  /* block kb of row chunk rc of group g at ((g * n_rc + rc) * n_kb + kb) * packed_bytes */
  char *packed;
  int64_t packed_bytes;
  char *
      /* of tiles from first on: block kb of tile i at ((i - first) * n_kb + kb) * block_bytes, or
       * NULL */
      columns;
  int64_t first, block_bytes;
  _Atomic bool oom;
} aci_conv_product;

/* Runs p by packed panels and micro-kernels, or, for one or few result channels, by adding up
 * rows. */
ac_status aci_conv_run_blocked(ac_team *team, aci_conv_product *p, ac_err *e);
ac_status aci_conv_run_direct(ac_team *team, aci_conv_product *p, ac_err *e);
/* dw of a walk over x for few result channels (rows) per group. */
ac_status aci_conv_weight_direct(ac_team *team, const aci_conv_walk *walk, int64_t groups,
                                 int64_t rows, int64_t chans, const void *dy, void *dw, ac_err *e);
/* dw := the sums of all parts (n_parts sets of `all` weights, f64 for F64, otherwise f32), added in
 * order into the first. dw may be sums if the types agree. */
void aci_conv_sum_parts(ac_team *team, void *sums, int64_t n_parts, int64_t all, aci_gemm_type type,
                        void *dw);

/* Through oneDNN if that is faster and present. False: not done, and only memory that the caller
 * will overwrite has changed. */
bool aci_conv_onednn_forward(ac_team *team, const aci_conv *c, const void *x, const void *w,
                             const void *bias, void *y);
bool aci_conv_onednn_input(ac_team *team, const aci_conv *c, const void *dy, const void *w,
                           void *dx);
bool aci_conv_onednn_weight(ac_team *team, const aci_conv *c, const void *dy, const void *x,
                            void *dw);

/* A transposed convolution as a product and col2im. wants: whether it is faster here. */
bool aci_conv_wants_fold(const aci_conv *c);
ac_status aci_conv_run_fold(ac_team *team, const aci_conv *c, const void *dy, const void *w,
                            const void *bias, void *dx, ac_err *e);

/* Winograd's algorithm for 3 x 3 taps: forward, or backward from dy to dx, or to dw. wants: whether
 * it is faster here. */
bool aci_conv_wants_winograd(const aci_conv *c);
ac_status aci_conv_run_winograd(ac_team *team, const aci_conv *c, bool backward, const void *src,
                                const void *weight, const void *bias, void *dst, ac_err *e);
ac_status aci_conv_winograd_weight(ac_team *team, const aci_conv *c, const void *dy, const void *x,
                                   void *dw, ac_err *e);

/* 16-bit floats through copies in f32: forward, or backward from dy to dx, or to dw. wants: whether
 * it is faster here. */
bool aci_conv_wants_upcast(const aci_conv *c);
ac_status aci_conv_run_upcast(ac_team *team, const aci_conv *c, bool backward, const void *src,
                              const void *weight, const void *bias, void *dst, ac_err *e);
ac_status aci_conv_upcast_weight(ac_team *team, const aci_conv *c, const void *dy, const void *x,
                                 void *dw, ac_err *e);

/* The position in the kernel of the weight of tap t (in the walk's order). */
int64_t aci_conv_kernel_tap(const aci_conv_product *p, int64_t t);
/* Result channels r0.. of group g over the positions of t := sums (rows of ldt, in p->acc) plus
 * bias. */
void aci_conv_store(const aci_conv_product *p, const aci_conv_tile *t, int64_t g, int64_t r0,
                    int64_t rows, const char *sums, int64_t ldt);

/* The staged type of columns for the micro-kernels of a type. */
static inline aci_gemm_type aci_conv_staged_type(aci_gemm_type t) {
  if (t == ACI_GEMM_BF16 && aci_gemm_kernel_for(t)->pack == ACI_PACK_BF16) return ACI_GEMM_BF16;
  return t == ACI_GEMM_F64 ? ACI_GEMM_F64 : ACI_GEMM_F32;
}

#endif
