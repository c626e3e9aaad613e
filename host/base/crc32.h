/* CRC-32 (IEEE 802.3), the checksum of zip archives. */
#ifndef ACI_CRC32_H
#define ACI_CRC32_H
#include <stddef.h>
#include <stdint.h>

/* The checksum of the bytes already in `crc` followed by n bytes. Start with 0. */
uint32_t aci_crc32(uint32_t crc, const void *p, size_t n);

#endif
