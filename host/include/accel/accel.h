/* accel/accel.h - everything of accel's C API. */
#ifndef ACCEL_ACCEL_H
#define ACCEL_ACCEL_H
#include "accel/autograd.h"
#include "accel/base.h"
#include "accel/comm.h"
#include "accel/device.h"
#include "accel/file.h"
#include "accel/host.h"
#include "accel/launch.h"
#include "accel/op.h"
#include "accel/opdef.h"
#include "accel/ops.h"
#include "accel/precision.h"
#include "accel/profile.h"
#include "accel/tensor.h"
#include "accel/version.h"

#endif
