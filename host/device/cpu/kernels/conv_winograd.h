/* Declarations shared by the Winograd kernels (conv_winograd.c, conv_winograd_weight.c): tiles of 4
 * x 4 of the source, cut out and transformed channel by channel.
 *
 * Rows of tiles are counted over all images. A block is a run of them. Its tiles are the columns of
 * panels. */
#ifndef ACI_CONV_WINOGRAD_H
#define ACI_CONV_WINOGRAD_H
#include "device/cpu/isa.h"
#include "device/cpu/kernels/conv_impl.h"

enum { ACI_WINO_SPOTS = 16 /* of a tile: row of the transform * 4 + column */ };

typedef struct aci_wino {
  const float *src; /* (n, chans, in) */
  int64_t n, chans;
  int64_t in[2], out[2], pad[2], tiles[2]; /* heights and widths */
  int64_t block_rows, cols;                /* of a block: rows of tiles. Columns of its panels */
  /* columns and rows of a panel. Values from spot to spot */
  int64_t panel, depth, spot;
  /* values of a channel's rows of one parity, transformed */
  int64_t sequence;
} aci_wino;

/* The scratch of a thread. */
typedef struct aci_wino_work {
  float *panels; /* spots of (panel, depth, panel's columns) */
  float *lines;  /* (parity, 2 * sequence): a channel's source rows */
  float *across; /* (parity, 4, sequence): those transformed along their columns */
  float *flat;   /* (spot, sequence): its tiles */
} aci_wino_work;

/* in, out, pad and tiles of a convolution, or of its transpose. */
void aci_wino_set(aci_wino *w, const aci_conv *c, bool backward);
/* Computes sequence and spot from the other fields. */
void aci_wino_finish(aci_wino *w);
/* Values that aci_wino_position hands out of p: all but the panels. */
int64_t aci_wino_size(const aci_wino *w);
void aci_wino_position(const aci_wino *w, float *p, aci_wino_work *s);
/* Before the first channel of the rows of tiles [g0, g1). */
void aci_wino_open(const aci_wino *w, aci_wino_work *s);
/* Channel `chan` of these rows as row `row` of the panels, the last of which is half as wide if
 * that is enough. Columns without a tile keep their contents. */
void aci_wino_take(const aci_wino *w, int64_t g0, int64_t g1, int64_t chan, int64_t row,
                   aci_wino_work *s);

static inline int64_t aci_wino_up16(int64_t n) { return (n + 15) / 16 * 16; }

#endif
