/* The formulas of maps as text (gen/map_text.c, which accel-opgen writes), for fuse_code.c. */
#ifndef ACI_OPS_FUSE_TEXT_H
#define ACI_OPS_FUSE_TEXT_H

typedef struct aci_map_text {
  /* the file's name without ".c". "vmath", the first: base/vmath.h and the headers that formulas
   * share */
  const char *stem;
  const char *const *lines; /* each with its end. NULL ends them */
} aci_map_text;
extern const aci_map_text aci_map_texts[]; /* ended by a row without a stem */

#endif
