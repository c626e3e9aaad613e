/* The secret of a job and the key that its ranks prove to each other. Called by launch/, which
 * hands the key to local ranks in the segment, and by tcp/ for ranks that other programs started.
 *
 * The secret comes from --job-secret-file (ACCEL_JOB_SECRET_FILE), else ACCEL_JOB_SECRET, else a
 * file of the user, which the first start creates: $XDG_CONFIG_HOME/accel/job_secret or
 * ~/.config/accel/job_secret. Machines that share home folders share it. The key is
 * HMAC-SHA-256(secret, run id). */
#ifndef ACI_COMM_SECRET_H
#define ACI_COMM_SECRET_H
#include "base/hmac.h"
#include "comm/comm_impl.h"

enum { ACI_SECRET_MOST = 4096 }; /* bytes of a secret */

typedef struct aci_job_key {
  uint8_t key[ACI_HMAC];
  bool insecure;    /* nobody proves anything */
  char origin[200]; /* of the secret, for messages */
  char weak[120];   /* why others may know the secret; "" */
} aci_job_key;

/* The name of a job: run_id, or "HOST:PORT" if that is empty. INVALID: it is too long, and a part
 * of it might be another job's. */
ac_status aci_run_id_of(const char *run_id, const char *address, int port, char out[ACI_RUN_ID],
                        ac_err *e);
/* Finds the secret according to the parameters and derives the key. one_machine: without a library
 * the job continues without proof, after a warning. Several machines are an error then. The
 * messages of INVALID, IO and UNSUPPORTED name the remedy. */
ac_status aci_job_key_find(const ac_params *p, const char *run_id, bool one_machine,
                           aci_job_key *out, ac_err *e);
/* Warns if several machines run without proofs, or if others may know the secret. */
void aci_job_key_warn(const aci_job_key *k);
/* A fresh key, for ranks that get it without the network. */
ac_status aci_job_key_make(aci_job_key *out, ac_err *e);
/* Forgets bytes for good. */
void aci_forget(void *p, size_t n);

#endif
