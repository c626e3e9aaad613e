/* Reads and writes that the kernel carries out while we prepare the next: io_uring by its system
 * calls, which need no library. Used by disk.c and by offload/transfer.c. */
#ifndef ACI_FILE_URING_H
#define ACI_FILE_URING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ACI_URING_DEPTH = 8 };
typedef struct aci_uring aci_uring;

/* NULL: this kernel, or who runs us, does not offer it (a container's filter, old kernels). */
aci_uring *aci_uring_new(void);
void aci_uring_free(aci_uring *r); /* nothing may be under way */
/* Begins to read or write n bytes at an offset. At most ACI_URING_DEPTH at once. Returns 0 or an
 * errno. Do not touch the bytes until the operation has completed. */
int aci_uring_begin(aci_uring *r, bool write, int fd, void *p, uint32_t n, uint64_t offset,
                    uint64_t tag);
/* Waits for one of those under way: its tag, and the bytes moved or a negative errno. 0, or an
 * errno of the waiting itself. */
int aci_uring_wait(aci_uring *r, uint64_t *tag, int32_t *result);

#endif
