/* Samples of the machine and the process. Used by store.c. */
#ifndef ACI_TRACK_SYSTEM_H
#define ACI_TRACK_SYSTEM_H

#include "track/gpu.h"

enum { ACI_SYSTEM_VALUES = 5 + ACI_GPUS * ACI_GPU_VALUES };
typedef struct aci_system {
  double busy, all, own, wall; /* of the sample before */
  aci_gpus gpus;
} aci_system;
typedef struct aci_system_value {
  char tag[32];
  double value;
} aci_system_value;

/* Fills out (ACI_SYSTEM_VALUES) and returns the number of values: percentages of CPUs since the
 * sample before (of the process: 100 is one CPU), percentage of memory in use, the process's
 * resident MiB, free GiB of folder's file system, and gpu.h's values of each GPU of the machine. */
int aci_system_sample(aci_system *s, double now, const char *folder, aci_system_value *out);
void aci_system_close(aci_system *s);

#endif
