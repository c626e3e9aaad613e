/* The events of a device while work on it is recorded (ops/core/capture.h), or watched for operations
 * that cannot be recorded: ac_device.capture. */
#ifndef ACI_CAPTURE_H
#define ACI_CAPTURE_H
#include "device/device_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aci_device_capture {
  bool recording;
  char why[200]; /* the first thing that cannot be recorded, "" */
} aci_device_capture;

/* Refuses an operation that cannot be recorded. Its text must complete "... inside of it". AC_OK
 * unless work is being recorded. */
ACI_MODULE_API ac_status aci_capture_refuse(const ac_device *d, const char *what, ac_err *e);

#define ACI_CAPTURE_FROM_CPU \
  "a tensor of the CPU is copied to the device (move it outside, or give it as an argument)"

#ifdef __cplusplus
}
#endif
#endif
