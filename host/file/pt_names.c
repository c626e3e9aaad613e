/* The names that a pickle of torch.save may hold. Nothing is called: each stands for a value that pt_global.c
 * makes, and every other name is refused. Called by pt_global.c.
 *
 * The names of torch.distributed.checkpoint's metadata count only while that is read. Objects of the classes
 * of DeepSpeed, of DTensor and ShardedTensor, and argparse.Namespace become their states. */
#include "file/pt_names.h"

#include <string.h>

typedef struct row {
  const char *module, *name;
  aci_pt_tag tag;
  bool metadata; /* only while metadata is read */
} row;

#define SHARDED "torch.distributed._shard."
#define CHECKPOINT "torch.distributed.checkpoint."
static const row rows[] = {
    {"collections", "OrderedDict", ACI_PT_ODICT, false},
    {"collections", "Counter", ACI_PT_COUNTER, false},
    {"collections", "defaultdict", ACI_PT_DEFAULTDICT, false},
    {"collections", "deque", ACI_PT_DEQUE, false},
    {"builtins", "set", ACI_PT_SET_OF, false},
    {"builtins", "frozenset", ACI_PT_SET_OF, false},
    {"builtins", "bytearray", ACI_PT_BYTEARRAY, false},
    {"builtins", "bytes", ACI_PT_BYTEARRAY, false},
    {"builtins", "complex", ACI_PT_COMPLEX_OF, false},
    {"builtins", "int", ACI_PT_FACTORY, false},
    {"builtins", "long", ACI_PT_FACTORY, false},
    {"builtins", "float", ACI_PT_FACTORY, false},
    {"builtins", "bool", ACI_PT_FACTORY, false},
    {"builtins", "str", ACI_PT_FACTORY, false},
    {"builtins", "list", ACI_PT_FACTORY, false},
    {"builtins", "dict", ACI_PT_FACTORY, false},
    {"builtins", "tuple", ACI_PT_FACTORY, false},
    {"builtins", "getattr", ACI_PT_GETATTR, false},
    {"_codecs", "encode", ACI_PT_ENCODE, false},
    {"torch._utils", "_rebuild_tensor", ACI_PT_TENSOR_V1, false},
    {"torch._utils", "_rebuild_tensor_v2", ACI_PT_TENSOR_V2, false},
    {"torch._utils", "_rebuild_tensor_v3", ACI_PT_TENSOR_V3, false},
    {"torch._utils", "_rebuild_parameter", ACI_PT_PARAMETER, false},
    {"torch._utils", "_rebuild_parameter_with_state", ACI_PT_PARAMETER, false},
    {"torch._utils", "_rebuild_wrapper_subclass", ACI_PT_WRAPPER, false},
    {"torch", "Size", ACI_PT_SIZE, false},
    {"torch", "device", ACI_PT_DEVICE, false},
    {"torch.serialization", "_get_layout", ACI_PT_LAYOUT, false},
    {"torch._tensor", "_rebuild_from_type_v2", ACI_PT_FROM_TYPE, false},
    {"torch", "Tensor", ACI_PT_TYPE, false},
    {"numpy.core.multiarray", "_reconstruct", ACI_PT_ARRAY_OF, false},
    {"numpy.core.multiarray", "scalar", ACI_PT_SCALAR_OF, false},
    {"numpy.core.numeric", "_frombuffer", ACI_PT_ARRAY_FROM, false},
    {"numpy", "ndarray", ACI_PT_NDARRAY, false},
    {"numpy", "dtype", ACI_PT_NPDTYPE_OF, false},
    {"argparse", "Namespace", ACI_PT_CLASS, false},
    {"deepspeed.runtime.fp16.loss_scaler", "LossScaler", ACI_PT_CLASS, false},
    {"deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler", ACI_PT_CLASS, false},
    {"deepspeed.runtime.zero.config", "ZeroStageEnum", ACI_PT_CLASS, false},
    {"deepspeed.utils.tensor_fragment", "fragment_address", ACI_PT_CLASS, false},
    {"torch.distributed.tensor", "DTensor", ACI_PT_CLASS, false},
    {"torch.distributed._tensor.api", "DTensor", ACI_PT_CLASS, false},
    {"torch.distributed.tensor._dtensor_spec", "DTensorSpec", ACI_PT_CLASS, false},
    {"torch.distributed.tensor._dtensor_spec", "TensorMeta", ACI_PT_CLASS, false},
    {"torch.distributed.tensor._dtensor_spec", "ShardOrderEntry", ACI_PT_CLASS, false},
    {"torch.distributed.tensor.placement_types", "Shard", ACI_PT_CLASS, false},
    {"torch.distributed.tensor.placement_types", "_StridedShard", ACI_PT_CLASS, false},
    {"torch.distributed.tensor.placement_types", "Replicate", ACI_PT_CLASS, false},
    {"torch.distributed.tensor.placement_types", "Partial", ACI_PT_CLASS, false},
    {"torch.distributed.device_mesh", "DeviceMesh", ACI_PT_CLASS, false},
    {"torch.distributed._mesh_layout", "_MeshLayout", ACI_PT_CLASS, false},
    {"torch.distributed._mesh_layout", "_FlatLayout", ACI_PT_CLASS, false},
    {"torch.distributed.remote_device", "_remote_device", ACI_PT_CLASS, false},
    {SHARDED "metadata", "ShardMetadata", ACI_PT_CLASS, false},
    {SHARDED "sharded_tensor.api", "ShardedTensor", ACI_PT_CLASS, false},
    {SHARDED "sharded_tensor.shard", "Shard", ACI_PT_CLASS, false},
    {SHARDED "sharded_tensor.metadata", "ShardedTensorMetadata", ACI_PT_CLASS, false},
    {SHARDED "sharded_tensor.metadata", "TensorProperties", ACI_PT_CLASS, false},
    {SHARDED "sharded_tensor.metadata", "MEM_FORMAT_ENCODING", ACI_PT_CLASS, false},
    {SHARDED "sharding_spec.chunk_sharding_spec", "ChunkShardingSpec", ACI_PT_CLASS, false},
    {CHECKPOINT "metadata", "Metadata", ACI_PT_CLASS, true},
    {CHECKPOINT "metadata", "TensorStorageMetadata", ACI_PT_CLASS, true},
    {CHECKPOINT "metadata", "BytesStorageMetadata", ACI_PT_CLASS, true},
    {CHECKPOINT "metadata", "ChunkStorageMetadata", ACI_PT_CLASS, true},
    {CHECKPOINT "metadata", "TensorProperties", ACI_PT_CLASS, true},
    {CHECKPOINT "metadata", "MetadataIndex", ACI_PT_CLASS, true},
    {CHECKPOINT "metadata", "StorageMeta", ACI_PT_CLASS, true},
    {CHECKPOINT "metadata", "_MEM_FORMAT_ENCODING", ACI_PT_CLASS, true},
    {CHECKPOINT "filesystem", "_StorageInfo", ACI_PT_CLASS, true},
    {CHECKPOINT "filesystem", "_StoragePrefix", ACI_PT_CLASS, true},
    {"pathlib", "PosixPath", ACI_PT_CLASS, true},
};

static bool is(const char *a, const char *b, size_t n) {
  return strlen(a) == n && memcmp(a, b, n) == 0;
}
static bool begins(const char *s, size_t n, const char *with) {
  return n >= strlen(with) && memcmp(s, with, strlen(with)) == 0;
}

/* A module's name of today in place of Python 2's and NumPy 2's. */
static const char *usual(const char *module, size_t *n, char buffer[64]) {
  static const char core[] = "numpy._core.";
  if (is("__builtin__", module, *n)) {
    *n = 8;
    return "builtins";
  }
  if (!begins(module, *n, core) || *n >= 64) return module;
  memcpy(buffer, "numpy.core.", 11);
  memcpy(buffer + 11, module + sizeof core - 1, *n - (sizeof core - 1));
  *n -= 1;
  return buffer;
}

int aci_pt_name_find(const ac_pt *f, const char *module, size_t n_module, const char *name,
                     size_t n_name, int *number) {
  char buffer[64];
  module = usual(module, &n_module, buffer);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (!is(rows[i].module, module, n_module) || !is(rows[i].name, name, n_name)) continue;
    if (rows[i].metadata && !f->metadata) continue;
    *number = (int)i;
    return (int)rows[i].tag;
  }
  if (is("torch.storage", module, n_module) && is("UntypedStorage", name, n_name))
    module = "torch", n_module = 5;
  if (is("torch", module, n_module) && (*number = aci_pt_dtype_find(name, n_name, true)) >= 0)
    return ACI_PT_STORAGE_OF;
  return -1;
}

const char *aci_pt_class_name(int number) { return rows[number].name; }

const char *aci_pt_name_advice(const char *module, size_t n_module, const char *name,
                               size_t n_name) {
  static const char *const of[][3] = {
      {"torch._utils", "_rebuild_sparse", "save the tensor's to_dense()"},
      {"torch._utils", "_rebuild_qtensor", "save the tensor's dequantize()"},
      {"torch._utils", "_rebuild_nested", "save the list of its tensors, unbind()"},
      {"torch._utils", "_rebuild_meta",
       "a meta tensor has no values; load them before you save it"},
      {"torch.storage", "", "save the tensor with torch.save"},
      {"torch", "", "save state_dict() in place of the object"},
      {"transformers", "", "save the weights and to_dict() in place of the object"},
  };
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    const size_t n = strlen(of[i][0]);
    if (begins(module, n_module, of[i][0]) && (n_module == n || module[n] == '.') &&
        begins(name, n_name, of[i][1]))
      return of[i][2];
  }
  return "save plain values and tensors in its place";
}
