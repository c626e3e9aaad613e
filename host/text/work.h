/* The works of a tokenizer that wait for the next call. For work.c and tokenizer.c. */
#ifndef ACI_TEXT_WORK_H
#define ACI_TEXT_WORK_H
#include <pthread.h>

#include "text/tokenizer.h"

struct aci_works {
  pthread_mutex_t mutex;
  aci_work *free;
};
ac_status aci_works_open(ac_tokenizer *t, ac_err *e);
void aci_works_close(ac_tokenizer *t);

#endif
