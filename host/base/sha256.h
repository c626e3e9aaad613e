/* SHA-256 (FIPS 180-4), for file names derived from file contents. Not for secrets. */
#ifndef ACI_SHA256_H
#define ACI_SHA256_H
#include <stddef.h>
#include <stdint.h>

void aci_sha256(const void *p, size_t n, uint8_t out[32]);

#endif
