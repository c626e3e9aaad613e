/* Compares the declarations of library.h with NCCL's own header, if that is available. */
#include "comm/nccl/library.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/signature.cuh"

#if !defined(ACI_CUDA_EMULATED) && __has_include(<nccl.h>)
#include <nccl.h>
#if NCCL_VERSION_CODE >= 21800

#define SAME(ours, theirs) static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(ACI_NCCL_SUCCESS, ncclSuccess);
SAME(ACI_NCCL_IN_PROGRESS, ncclInProgress);
SAME(ACI_NCCL_SUM, ncclSum);
SAME(ACI_NCCL_PROD, ncclProd);
SAME(ACI_NCCL_MAX, ncclMax);
SAME(ACI_NCCL_MIN, ncclMin);
SAME(ACI_NCCL_AVG, ncclAvg);
SAME(ACI_NCCL_I8, ncclInt8);
SAME(ACI_NCCL_U8, ncclUint8);
SAME(ACI_NCCL_I32, ncclInt32);
SAME(ACI_NCCL_U32, ncclUint32);
SAME(ACI_NCCL_I64, ncclInt64);
SAME(ACI_NCCL_F16, ncclFloat16);
SAME(ACI_NCCL_F32, ncclFloat32);
SAME(ACI_NCCL_F64, ncclFloat64);
SAME(ACI_NCCL_BF16, ncclBfloat16);
SAME(ACI_NCCL_NO_COLOR, NCCL_SPLIT_NOCOLOR);
SAME(ACI_NCCL_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
SAME(sizeof(aci_nccl_id), sizeof(ncclUniqueId));
SAME(ACI_NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
#define FIELD(ours, theirs) \
  static_assert(offsetof(aci_nccl_config, ours) == offsetof(ncclConfig_t, theirs), #theirs)
FIELD(magic, magic);
FIELD(version, version);
FIELD(blocking, blocking);
FIELD(max_ctas, maxCTAs);
FIELD(net_name, netName);
FIELD(split_share, splitShare);

/* Parameter by parameter. The id goes by value in both, which differ in name alone. */
template <class P> struct alike { typedef typename aci_plain<P>::type type; };
template <> struct alike<ncclUniqueId> { typedef aci_nccl_id type; };
template <class F> struct taken;
template <class R, class... P> struct taken<R(P...)> {
  typedef std::tuple<typename aci_plain<R>::type, typename alike<P>::type...> type;
};
#define SAME_CALL(name, params) \
  static_assert(std::is_same<taken<decltype(::name)>::type, taken<int params>::type>::value, #name);
ACI_NCCL_CALLS(SAME_CALL)
#if NCCL_VERSION_CODE >= 21903
ACI_NCCL_LATER_CALLS(SAME_CALL)
#endif
#endif
#endif
