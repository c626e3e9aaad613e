/* Sampling at positions of a grid: arguments and shapes of grid_sample and of its gradients, for
 * the CPU and for device modules. grid_taps.h has the formula.
 *
 * x (N, C, H, W), grid (N, H', W', 2) of (x, y), or x (N, C, D, H, W), grid (N, D', H', W', 3) of
 * (x, y, z), both from -1 to 1 over x. */
#ifndef ACI_OPS_GRID_H
#define ACI_OPS_GRID_H
#include "accel/opdef.h"
#include "base/hostdev.h"

enum { ACI_GRID_BILINEAR, ACI_GRID_NEAREST, ACI_GRID_BICUBIC };
enum { ACI_GRID_ZEROS, ACI_GRID_BORDER, ACI_GRID_REFLECTION };
enum { ACI_GRID_DIMS = 3, ACI_GRID_TAPS = 64 };

typedef struct aci_grid {
  int mode, padding, space; /* space: 2 or 3 dims */
  bool corners;
  int64_t images, channels, positions, plane; /* positions: of the result. plane: elements of x */
  int64_t in[ACI_GRID_DIMS];                  /* extents of x as grid counts them: W, H, D */
  int taps;                                   /* elements of x that a position looks at */
} aci_grid;

/* Elements that a position looks at along one dim. */
AC_HOSTDEV static inline int aci_grid_width(int mode) {
  return mode == ACI_GRID_NEAREST ? 1 : mode == ACI_GRID_BILINEAR ? 2 : 4;
}

/* x_shape: of the sampled tensor. Arguments mode, padding_mode and align_corners begin at `at`. */
static inline aci_grid aci_grid_of(const ac_frame *f, const int64_t *x_shape, int ndim,
                                   const int64_t *grid_shape, int at) {
  aci_grid g;
  g.mode = (int)f->args[at].i;
  g.padding = (int)f->args[at + 1].i;
  g.corners = f->args[at + 2].b;
  g.space = ndim - 2;
  g.images = x_shape[0];
  g.channels = x_shape[1];
  g.positions = g.plane = 1;
  g.taps = 1;
  for (int d = 0; d < g.space; d++) {
    g.in[d] = x_shape[ndim - 1 - d];
    g.plane *= g.in[d];
    g.positions *= grid_shape[1 + d];
    g.taps *= aci_grid_width(g.mode);
  }
  for (int d = g.space; d < ACI_GRID_DIMS; d++) g.in[d] = 1;
  return g;
}

#endif
