/* CRC-32C (Castagnoli), the checksum of safetensors metadata, manifests and event files. */
#ifndef ACI_CRC32C_H
#define ACI_CRC32C_H
#include <stddef.h>
#include <stdint.h>

/* The checksum of the bytes already in `crc` followed by n bytes. Start with 0. */
uint32_t aci_crc32c(uint32_t crc, const void *p, size_t n);
/* The same without the CPU's instruction, as other CPUs run it. Named for the tests. */
uint32_t aci_crc32c_by_table(uint32_t crc, const void *p, size_t n);
/* The checksum of A followed by B, from the checksums of A and B (n_b bytes): pieces may be summed
 * in parallel. */
uint32_t aci_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t n_b);

/* The masked form that TFRecord files hold. */
static inline uint32_t aci_crc32c_mask(uint32_t crc) {
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

#endif
