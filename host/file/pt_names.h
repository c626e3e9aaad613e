/* Names that a pickle of torch.save may hold, and the tag of each: between pt_names.c, which lists them,
 * and pt_global.c, pt_numpy.c and pt_tensor.c, which make values of them. */
#ifndef ACI_FILE_PT_NAMES_H
#define ACI_FILE_PT_NAMES_H
#include "file/pt.h"

/* A value of the kind ACI_PT_TAG has its tag in n. i: of STORAGE the index of its dtype, of all others
 * the index of the name. */
typedef enum aci_pt_tag {
  ACI_PT_ODICT,
  ACI_PT_COUNTER,
  ACI_PT_DEFAULTDICT,
  ACI_PT_DEQUE,
  ACI_PT_SET_OF,
  ACI_PT_BYTEARRAY,
  ACI_PT_COMPLEX_OF,
  ACI_PT_ENCODE,
  ACI_PT_FACTORY, /* int, list: of a defaultdict, which keeps only its entries here */
  ACI_PT_GETATTR, /* of an enumeration's member by its name */
  ACI_PT_TENSOR_V1,
  ACI_PT_TENSOR_V2,
  ACI_PT_TENSOR_V3,
  ACI_PT_PARAMETER,
  ACI_PT_WRAPPER, /* a tensor that consists of others: DTensor, ShardedTensor */
  ACI_PT_SIZE,
  ACI_PT_DEVICE,
  ACI_PT_LAYOUT,
  ACI_PT_STORAGE_OF,
  ACI_PT_FROM_TYPE, /* a tensor of a subclass: its rebuild's result, without the attributes */
  ACI_PT_TYPE,      /* torch.Tensor, the subclass in question */
  ACI_PT_CLASS,     /* an object that keeps its state */
  ACI_PT_ARRAY_OF, /* NumPy's: an array that BUILD fills, of bytes, a scalar, the classes of both */
  ACI_PT_ARRAY_FROM,
  ACI_PT_SCALAR_OF,
  ACI_PT_NDARRAY,
  ACI_PT_NPDTYPE_OF
} aci_pt_tag;

/* The tag of module.name, -1: it is not in the list. *number: i of the value. */
int aci_pt_name_find(const ac_pt *f, const char *module, size_t n_module, const char *name,
                     size_t n_name, int *number);
/* The class of a CLASS tag, without its module. */
const char *aci_pt_class_name(int number);
/* The advice for a name that is not in the list. */
const char *aci_pt_name_advice(const char *module, size_t n_module, const char *name,
                               size_t n_name);

#endif
