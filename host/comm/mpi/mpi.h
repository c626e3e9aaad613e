/* The face between the library (mpi.c) and accel_mpi.so (module.c): the only code that knows MPI's
 * types, built by the MPI that is installed. The module needs no symbol of the library, so that it
 * loads wherever we are loaded.
 *
 * All functions may be called by any thread. One mutex makes MPI see one call at a time
 * (MPI_THREAD_SERIALIZED is enough). Those that fail leave the reason in `why` (ACI_MPI_TEXT
 * bytes). */
#ifndef ACI_COMM_MPI_H
#define ACI_COMM_MPI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACI_MPI_SYMBOL "accel_mpi_open"
enum { ACI_MPI_API_VERSION = 2, ACI_MPI_TEXT = 320 };

/* One message of any size. Read by the library, owned by the module. */
typedef struct aci_mpi_transfer {
  bool over;
  /* LENGTH: the peer sent another number of bytes */
  enum { ACI_MPI_FINE, ACI_MPI_LENGTH, ACI_MPI_BROKEN } fault;
  int peer;
  size_t bytes;
  struct aci_mpi_requests *requests;
} aci_mpi_transfer;

typedef struct aci_mpi_api {
  uint32_t version;
  const char *library; /* "Open MPI v4.1.4" */
  /* init: one world at a time. Uses the program's MPI if that is already initialised. */
  bool (*init)(int *rank, int *size, char *why);
  /* fini: good when all ranks call it and nothing is under way. Then another world may follow, and
   * MPI is finalised at process exit if init initialised it. Otherwise MPI is left alone. */
  void (*fini)(bool good);
  /* Collectives of the whole world that do not block: begin one, then test until it gives 1 (0: not
   * yet, -1: failed). Buffers are borrowed until then. */
  bool (*gather_begin)(const void *mine, size_t bytes, void *all, char *why);
  bool (*barrier_begin)(char *why);
  int (*test)(char *why);
  /* renew: new communicators, so that no earlier message matches a later one. Call renew_end once
   * test returns 1. */
  bool (*renew_begin)(char *why);
  void (*renew_end)(void);
  /* progress: MPI's own progress while this rank waits for something else: sent messages may still
   * be in its queues. */
  void (*progress)(void);
  /* start: begins a message. Messages of one peer, direction and channel arrive in the order in
   * which they were started. NULL: failed. */
  aci_mpi_transfer *(*start)(int peer, bool sends, uint64_t channel, void *ptr, size_t bytes,
                             char *why);
  /* poll: one turn of MPI's progress for n transfers. Sets ->over and ->fault. Returns the number
   * of transfers that finished, -1 when one of them has a fault. */
  int (*poll)(aci_mpi_transfer *const *t, int n, char *why);
  /* drop: frees it. One under way is given up: its buffer may be touched until the next call of any
   * function here. */
  void (*drop)(aci_mpi_transfer *t);
} aci_mpi_api;
typedef const aci_mpi_api *(*aci_mpi_open_fn)(void);

/* Of mpi.c. "Open MPI v4.1.4". NULL: there is no module, or it does not load. Loads it. */
const char *aci_mpi_library(void);

#endif
