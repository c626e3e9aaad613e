/* A device from outside the tree: OpenCL, as a library of its own that stands on accel's public headers alone.
 *
 * Map of the folder. kernels/<name>.cl are the OpenCL C sources; the build makes kernels.h of them.
 *
 *   provider.c       the table that accel asks for: parameters, probe, names, kernels by op
 *   device.[ch]      platforms, contexts, queues, programs; what a failed call means; calls of kernels
 *   memory.c         the pool's segments as buffers, copies, streams, events
 *   layout.[ch]      operands with their strides laid out for kernels; copies that lie in one run
 *   map.c formulas.h elementwise ops: one kernel, a formula each
 *   move.c           fill, copy, cat, pieces, masks of attention
 *   reduce.c         sums, extrema, moments, counts over any dims
 *   rows.c           softmax and norms: a work-group per row
 *   matmul.c         products in tiles of local memory
 *   mlp.c            two products with an activation between them
 *   index.c          embedding, gather, scatter_add, index_select; sums in the order of the indices
 *   loss.c           cross_entropy
 *   random.c         draws of accel's counter-based generator, the CPU's values
 *   optim.c          adam, adamw, sgd, clip_grad_norm_
 *
 * What is of the process: a device's context, its queue and its programs, which all hosts of the process share (contexts of accel open a
 * device each for themselves, and tensors go from one to the other). */
#ifndef OCL_DEVICE_H
#define OCL_DEVICE_H
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "accel/opdef.h"

enum { OCL_MAX_DEVICES = 16, OCL_MAX_STREAMS = 32, OCL_GROUP = 64 /* work-items of a group, everywhere but in products */ };

struct ocl_program;
typedef struct ocl_device {
  cl_device_id id;
  char label[64];       /* "opencl:0" */
  int users;            /* accel devices that have it open, under the lock of all */
  cl_context context;
  cl_command_queue queue; /* in order; the order of everything that names no stream */
  cl_command_queue streams[OCL_MAX_STREAMS]; /* beside it, under its lock */
  bool f64, exact_divide, cpu;
  size_t global_bytes, largest_bytes;
  _Atomic int lost;     /* the code of the call that found it gone, 0 */
  pthread_mutex_t lock; /* programs, and the arguments of their kernels */
  struct ocl_program *programs;
} ocl_device;

/* How many devices there are; 0: why says what is missing. */
int ocl_count(const char *kinds, char *why, size_t n);
void ocl_describe(int index, char *text, size_t n);
const char *ocl_libraries(void);
ocl_device *ocl_at(int index);
static inline ocl_device *ocl_of(const ac_device *d) { return ocl_at(ac_device_index(d)); }
/* First use makes context and queue, the last one gives them back. */
ac_status ocl_enter(ocl_device *d, ac_err *e);
void ocl_leave(ocl_device *d);
const ac_device_vtable *ocl_vtable(void);

/* AC_OK for CL_SUCCESS; OOM, or DEVICE for a device that is lost, which stays so. */
ac_status ocl_check(ocl_device *d, cl_int code, const char *what, ac_err *e);
/* DEVICE once it was lost. */
ac_status ocl_alive(ocl_device *d, ac_err *e);

static inline cl_command_queue ocl_queue(const ocl_device *d, ac_stream *s) { return s != NULL ? (cl_command_queue)(void *)s : d->queue; }
/* The buffer that an address lies in, and how far from its start. DEVICE: it is not memory of this device. */
ac_status ocl_find(ocl_device *d, const void *p, cl_mem *mem, size_t *at, ac_err *e);
/* Bytes from anywhere to anywhere, and of the host to the device; the host's are its own again when it returns. */
ac_status ocl_fetch(const ac_frame *f, void *dst, const void *src, size_t bytes, ac_err *e);
ac_status ocl_upload(const ac_frame *f, void *dst, const void *src, size_t bytes, ac_err *e);

/* ---- a call of a kernel ----
 *   ocl_call c;
 *   ocl_begin(&c, f, ocl_map_cl, "map");
 *   ocl_define(&c, "#define T %s\n", "float");       goes in front of the source: a program per head
 *   ocl_value(&c, &layout, sizeof layout);           arguments in order
 *   ocl_memory(&c, ac_tensor_data(x));               two: buffer and offset (MEM of prelude.cl)
 *   return ocl_run(&c, n, OCL_GROUP, e); */
typedef struct ocl_call {
  ac_frame *f;
  ocl_device *d;
  const char *source, *kernel;
  ac_status st; /* of the first argument that failed */
  ac_err why;
  int n_args;
  size_t n_head, n_bytes;
  struct {
    size_t at, size;
  } arg[32];
  char bytes[3072];
  char head[3072];
} ocl_call;

void ocl_begin(ocl_call *c, ac_frame *f, const char *source, const char *kernel);
__attribute__((format(printf, 2, 3))) void ocl_define(ocl_call *c, const char *format, ...);
void ocl_value(ocl_call *c, const void *value, size_t size);
void ocl_long(ocl_call *c, int64_t v);
void ocl_real(ocl_call *c, const char *type, double v); /* as `type`, float or double */
void ocl_wide(ocl_call *c, double v);                    /* as `wide` of prelude.cl: double where the device has it */
void ocl_memory(ocl_call *c, const void *p); /* NULL: none */
/* n work-items, rounded up to whole groups: kernels compare their number with n themselves. */
ac_status ocl_run(ocl_call *c, int64_t n, int group, ac_err *e);
ac_status ocl_run3(ocl_call *c, const size_t global[3], const size_t local[3], ac_err *e);

/* "float" "double" "long": what elements of a dtype are computed in. UNSUPPORTED: a dtype that the device has no arithmetic for. */
ac_status ocl_type(const ac_frame *f, ac_dtype dt, const char **type, ac_err *e);
static inline size_t ocl_type_bytes(ac_dtype dt) { return ac_dtype_is_float(dt) && dt != AC_F64 ? 4 : 8; }
static inline double ocl_scalar(ac_scalar s) { return s.kind == AC_SCALAR_FLOAT ? s.f : (double)s.i; }

/* ---- kernels by op: rows of each file, ended by one without an op ---- */
extern const ac_device_kernel ocl_map_kernels[], ocl_move_kernels[], ocl_reduce_kernels[], ocl_row_kernels[], ocl_matmul_kernels[],
    ocl_mlp_kernels[], ocl_index_kernels[], ocl_loss_kernels[], ocl_random_kernels[], ocl_optim_kernels[];
/* Maps come from their formulas: the name of formula i, NULL behind the last. */
const char *ocl_map_name(int i);
ac_status ocl_map(ac_frame *f, ac_err *e);
/* out := the formula of op of these arguments, within a kernel of another op. */
ac_status ocl_map_as(const ac_frame *f, const char *op, const ac_value *args, int n_args, ac_tensor *out, ac_err *e);
/* out := the sum over the dims of mask. */
ac_status ocl_sum(ac_frame *f, const ac_tensor *x, uint32_t mask, const ac_tensor *out, ac_err *e);
/* out := rows of x (..., k) times weight^T, weight (n, k), or times weight, (k, n), where it is transposed; + bias (n), or NULL. */
ac_status ocl_rows_product(ac_frame *f, const ac_tensor *x, const ac_tensor *weight, bool transposed, const ac_tensor *bias, ac_tensor *out,
                           ac_err *e);

#endif
