/* The log of one thread (log.c): a host takes the messages of the thread that runs it. */
#ifndef ACI_BASE_LOG_H
#define ACI_BASE_LOG_H
#include "accel/base.h"

typedef struct aci_log_sink {
  ac_log_fn fn; /* NULL: the process's */
  void *user;
  ac_log_level level;
} aci_log_sink;

/* Messages that this thread writes go to s from now on. Returns the sink before, to be set again. */
aci_log_sink aci_log_thread(aci_log_sink s);

#endif
