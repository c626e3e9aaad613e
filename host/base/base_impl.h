/* The private face of base: what other stages of the host (never a program that embeds it) may call
 * besides accel/base.h.
 *
 * Map of the folder:
 *
 *   err.c log.c params.c params.def   status and messages, the log sink, the table of ACCEL_*
 *                                     variables
 *   fault.h                           internal checks that failed, and the contexts that they end
 *   json.h json_*.c                   JSON: event reader, document, writer
 *   strbuf.[ch] number.[ch] nearest.c text buffers, numbers as text, "did you mean"
 *   team.c                            the thread team behind ac_parallel_for
 *   biased.[ch]                       the biased lock of a pool
 *   small.[ch] thread_counter.[ch]    free lists of small objects, live objects counted per thread
 *   philox.h vmath.h hostdev.h        random numbers and elementary functions, shared by the CPU's
 *                                     and CUDA's kernels
 *   crc32c.[ch] crc32.[ch]            CRC-32C checksums, and the CRC-32 of zip archives
 *   sha256.[ch]                       the hash of W&B's files
 *   hmac.[ch] gate.[ch]               secrets of peers, limits for connections that have not proved
 *                                     one
 *   module.c sysinfo.c                loading of modules next to the library, memory and CPUs of
 *                                     the machine and cgroup */
#ifndef ACI_BASE_IMPL_H
#define ACI_BASE_IMPL_H
#include <signal.h>

#include "accel/base.h"

/* Memory this process may use: the physical memory or the tightest memory cgroup around us,
 * whichever is less. 0: unknown. */
uint64_t aci_host_memory(void);
/* Memory available now without swapping: free memory plus the page cache that can be dropped. The
 * minimum over the machine and all memory cgroups around us. 0: unknown. */
uint64_t aci_host_available(void);
/* The parameter `name` (a BOOL, with ACCEL_ in front) straight from the environment, for kernels,
 * which know no context. otherwise: the result when it is unset or neither true nor false. */
bool aci_params_flag(const char *name, bool otherwise);
/* Further rows of the table, for the life of the process (borrowed). STATE when one of them is
 * there already or the table is full. */
ac_status aci_params_declare(const ac_param_info *rows, int n, ac_err *e);
/* Reads into a snapshot the rows that were declared since it was taken. */
ac_status aci_params_extend(ac_params *p, ac_err *e);
/* CPUs this process may run on: its affinity mask, lowered by a cgroup CPU quota. At least 1. */
int aci_host_cpus(void);

/* Opens a module of the library by its file name, "accel_mpi.so". NULL: it is missing or does not
 * load. dlerror() has the reason. */
void *aci_module_open(const char *file);
/* Makes this library's public functions visible to modules that are loaded later, even if an
 * interpreter loaded the library privately. */
void aci_module_publish(void);

/* "1.5 GiB", "64 B": for messages. Returns buf (at least 24 bytes). */
const char *aci_bytes_text(char *buf, size_t buf_bytes, uint64_t bytes);

/* fn runs once on every worker thread of every team, of those that exist at latest before their
 * next piece of work. It never runs on callers' threads. For libraries with settings per thread
 * (omp_set_num_threads). Each fn registers once. */
void aci_team_on_start(void (*fn)(void));
/* True inside a piece of ac_parallel_for. */
bool aci_team_inside(void);
/* From here on the calling thread runs all pieces by itself, whatever the team: for threads that
 * already run in parallel. */
void aci_team_alone(void);
/* The signals that our threads block: all except faults. */
void aci_worker_signals(sigset_t *set);

#endif
