/* Samples of the machine and the process. Used by store.c. */
#ifndef ACI_TRACK_SYSTEM_H
#define ACI_TRACK_SYSTEM_H

enum { ACI_SYSTEM_VALUES = 5 };
typedef struct aci_system {
  double busy, all, own, wall; /* of the sample before */
} aci_system;
typedef struct aci_system_value {
  const char *tag;
  double value;
} aci_system_value;

/* Fills out (ACI_SYSTEM_VALUES) and returns how many there are: percentages of CPUs since the sample before (of the process: 100 is one
 * CPU), percentage of memory in use, the process's resident MiB, GiB that are free where folder lies. */
int aci_system_sample(aci_system *s, double now, const char *folder, aci_system_value *out);

#endif
