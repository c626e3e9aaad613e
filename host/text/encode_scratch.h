/* The free list of a tokenizer's scratch, reused by the next call of encode. For encode_scratch.c
 * and tokenizer.c. */
#ifndef ACI_TEXT_ENCODE_SCRATCH_H
#define ACI_TEXT_ENCODE_SCRATCH_H
#include <pthread.h>

#include "text/tokenizer.h"

struct aci_encode_scratch_list {
  pthread_mutex_t mutex;
  aci_encode_scratch *free;
};
ac_status aci_encode_scratch_list_open(ac_tokenizer *t, ac_err *e);
void aci_encode_scratch_list_close(ac_tokenizer *t);

#endif
