/* Flags of the meta device in addition to ACI_META_ACCELERATOR (device_impl.h), for ops whose shape
 * depends on values, and indices of further meta devices: 1 to 9 for the stages of pipelines
 * (accel.parallel), and one for the CPU in the dry run of an accelerator. */
#ifndef ACI_META_FLAGS_H
#define ACI_META_FLAGS_H

#include "device/device_impl.h"

enum {
  ACI_META_ZEROS = ACI_META_ACCELERATOR + 1
}; /* values count as zero, as in a dry run. Otherwise such an op raises */

/* Holds tensors without values that a real run has moved to the CPU. */
enum { ACI_META_HOST = 10 };

#endif
