/* The filter of sandbox_filter.h, as the kernel's classic BPF. Its strict mode (write and exit
 * only) would say the same, but the kernel refuses strict mode to a process that has a filter
 * already, as every process in a container has. */
#include "sandbox_filter.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#if defined(__x86_64__) && defined(__LP64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__) && !defined(__AARCH64EB__)
#define NATIVE AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define NATIVE AUDIT_ARCH_RISCV64
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
#define NATIVE AUDIT_ARCH_PPC64LE
#endif

#ifndef NATIVE
int lac_sandbox_confine(int fd) {
  (void)fd;
  return ENOSYS;
}
#else

#ifndef SECCOMP_RET_KILL_PROCESS
#define SECCOMP_RET_KILL_PROCESS 0x80000000u
#endif

enum {
  /* a call that never fails, so an answer of PROBE_ERRNO can come from the filter only */
  PROBE = SYS_getppid,
  PROBE_ERRNO = EHWPOISON,
  X32 = 0x40000000 /* bit of x86's second table of calls */
};

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))
#define IF_EQUAL(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (skip))
#define ANSWER(call, what) IF_EQUAL((call), 1), RETURN(what)

int lac_sandbox_confine(int fd) {
  struct sock_filter rules[] = {
      LOAD(arch),
      IF_EQUAL(NATIVE, 6),
      LOAD(nr),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32, 4, 0),
      IF_EQUAL(SYS_write, 4),
      /* the low half on these machines. The kernel also reads a descriptor of 32 bits */
      LOAD(args[0]),
      ANSWER((uint32_t)fd, SECCOMP_RET_ALLOW),
      RETURN(SECCOMP_RET_KILL_PROCESS),
      ANSWER(SYS_exit, SECCOMP_RET_ALLOW),
      ANSWER(SYS_exit_group, SECCOMP_RET_ALLOW),
      ANSWER(PROBE, SECCOMP_RET_ERRNO | PROBE_ERRNO),
      /* math.randomseed() asks for the time on machines that need a call for it. It gets none */
      ANSWER(SYS_clock_gettime, SECCOMP_RET_ERRNO | ENOSYS),
#ifdef SYS_time
      ANSWER(SYS_time, SECCOMP_RET_ERRNO | ENOSYS),
#endif
      RETURN(SECCOMP_RET_KILL_PROCESS),
  };
  const struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return errno;
  errno = 0;
  return syscall(PROBE) == -1 && errno == PROBE_ERRNO ? 0 : ENOTSUP;
}
#endif
