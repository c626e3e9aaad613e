/* Tells the CPU that this thread spins, so that the other one of its core runs faster. */
#ifndef ACI_RELAX_H
#define ACI_RELAX_H

static inline void aci_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb"); /* yield does nothing on most: this takes about as long as x86's pause */
#endif
}

#endif
