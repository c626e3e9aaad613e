/* TIFF: what tiff.c (the header, by libtiff) and tiff_rows.c (the pixels) share. */
#ifndef ACI_IMAGE_TIFF_H
#define ACI_IMAGE_TIFF_H
#ifdef ACCEL_HAVE_TIFF
#include <tiffio.h>

#include "file/image/image.h"

#define ACI_TIFF_FUNCTIONS(X)             \
  X(TIFFOpenOptionsAlloc)                 \
  X(TIFFOpenOptionsFree)                  \
  X(TIFFOpenOptionsSetMaxSingleMemAlloc)  \
  X(TIFFOpenOptionsSetErrorHandlerExtR)   \
  X(TIFFOpenOptionsSetWarningHandlerExtR) \
  X(TIFFClientOpenExt)                    \
  X(TIFFClose)                            \
  X(TIFFGetField)                         \
  X(TIFFGetFieldDefaulted)                \
  X(TIFFSetField)                         \
  X(TIFFScanlineSize)                     \
  X(TIFFReadScanline)                     \
  X(TIFFIsTiled) X(TIFFTileSize) X(TIFFTileRowSize) X(TIFFReadTile) X(TIFFReadRGBAImageOriented)

typedef struct aci_tiff {
  struct {
#define X(name) __typeof__(name) *name;
    ACI_TIFF_FUNCTIONS(X)
#undef X
  } lib;
  TIFF *file;
  const ac_image *im;
  uint64_t at;       /* where libtiff reads */
  char message[240]; /* the first of libtiff */
  uint16_t bits, samples, format, photometric, planes, compression, n_extra;
  const uint16_t *palette[3];
  bool by_rgba; /* libtiff itself makes RGBA of it */
} aci_tiff;

ac_status aci_tiff_fault(const ac_image *im, ac_err *e); /* with libtiff's message */
ac_status aci_tiff_read(ac_image *im, ac_err *e);

#endif
#endif
