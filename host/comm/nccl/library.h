/* The part of NCCL (2.18 and later) that accel calls, declared from its documentation: the library
 * is loaded if present, and is not needed to build. The test twin's stand-in
 * (tests/cuda/twin/nccl.cpp) defines the same functions. Enumerations are ints, and every call
 * returns a status. If NCCL's own header is available, library_check.cu compares. */
#ifndef ACI_COMM_NCCL_LIBRARY_H
#define ACI_COMM_NCCL_LIBRARY_H
#include <stddef.h>

/* ncclResult_t */
enum { ACI_NCCL_SUCCESS = 0, ACI_NCCL_IN_PROGRESS = 7 };
/* ncclRedOp_t */
enum { ACI_NCCL_SUM = 0, ACI_NCCL_PROD = 1, ACI_NCCL_MAX = 2, ACI_NCCL_MIN = 3, ACI_NCCL_AVG = 4 };
/* ncclDataType_t */
enum {
  ACI_NCCL_I8 = 0,
  ACI_NCCL_U8 = 1,
  ACI_NCCL_I32 = 2,
  ACI_NCCL_U32 = 3,
  ACI_NCCL_I64 = 4,
  ACI_NCCL_F16 = 6,
  ACI_NCCL_F32 = 7,
  ACI_NCCL_F64 = 8,
  ACI_NCCL_BF16 = 9
};
enum { ACI_NCCL_NO_COLOR = -1, ACI_NCCL_ID_BYTES = 128 };

typedef struct ncclComm *aci_nccl_comm;
typedef struct aci_nccl_id { /* ncclUniqueId */
  char bytes[ACI_NCCL_ID_BYTES];
} aci_nccl_id;
/* ncclConfig_t as version 2.18 has it: later ones take a shorter struct by its size and version. */
typedef struct aci_nccl_config {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char *net_name;
  int split_share;
} aci_nccl_config;
enum { ACI_NCCL_CONFIG_VERSION = 21800, ACI_NCCL_UNDEFINED = -2147483647 - 1 };
#define ACI_NCCL_CONFIG_MAGIC 0xcafebeefu

/* Names and parameters. Streams are cudaStream_t. */
#define ACI_NCCL_CALLS(X)                                                                         \
  X(ncclGetVersion, (int *version))                                                               \
  X(ncclGetUniqueId, (aci_nccl_id * id))                                                          \
  X(ncclCommInitRankConfig,                                                                       \
    (aci_nccl_comm * comm, int n, aci_nccl_id id, int rank, aci_nccl_config *config))             \
  X(ncclCommSplit,                                                                                \
    (aci_nccl_comm comm, int color, int key, aci_nccl_comm *out, aci_nccl_config *config))        \
  X(ncclCommGetAsyncError, (aci_nccl_comm comm, int *error))                                      \
  X(ncclCommFinalize, (aci_nccl_comm comm))                                                       \
  X(ncclCommDestroy, (aci_nccl_comm comm))                                                        \
  X(ncclCommAbort, (aci_nccl_comm comm))                                                          \
  X(ncclGroupStart, (void))                                                                       \
  X(ncclGroupEnd, (void))                                                                         \
  X(ncclAllReduce,                                                                                \
    (const void *send, void *recv, size_t n, int type, int op, aci_nccl_comm comm, void *stream)) \
  X(ncclReduce, (const void *send, void *recv, size_t n, int type, int op, int root,              \
                 aci_nccl_comm comm, void *stream))                                               \
  X(ncclBroadcast, (const void *send, void *recv, size_t n, int type, int root,                   \
                    aci_nccl_comm comm, void *stream))                                            \
  X(ncclAllGather,                                                                                \
    (const void *send, void *recv, size_t n, int type, aci_nccl_comm comm, void *stream))         \
  X(ncclReduceScatter,                                                                            \
    (const void *send, void *recv, size_t n, int type, int op, aci_nccl_comm comm, void *stream)) \
  X(ncclSend, (const void *p, size_t n, int type, int peer, aci_nccl_comm comm, void *stream))    \
  X(ncclRecv, (void *p, size_t n, int type, int peer, aci_nccl_comm comm, void *stream))

/* Functions of later versions: NULL if missing. A handle is NCCL's for memory that a communicator
 * may use in place. */
#define ACI_NCCL_LATER_CALLS(X)                                                      \
  X(ncclCommRegister, (aci_nccl_comm comm, void *base, size_t bytes, void **handle)) \
  X(ncclCommDeregister, (aci_nccl_comm comm, void *handle))                          \
  X(ncclMemAlloc, (void **ptr, size_t bytes))                                        \
  X(ncclMemFree, (void *ptr))

typedef struct aci_nccl_library {
#define ACI_NCCL_FIELD(name, params) int(*name) params;
  ACI_NCCL_CALLS(ACI_NCCL_FIELD)
  ACI_NCCL_LATER_CALLS(ACI_NCCL_FIELD)
#undef ACI_NCCL_FIELD
  const char *(*ncclGetErrorString)(int status);
  int version; /* 22809 */
} aci_nccl_library;

#endif
