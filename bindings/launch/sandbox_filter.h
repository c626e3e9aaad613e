/* The system calls of a process that runs Lua from others: write to one descriptor, and exit. Used
 * by lac_sandbox.c. */
#ifndef LAC_SANDBOX_FILTER_H
#define LAC_SANDBOX_FILTER_H

/* Confines the calling thread, which must be the only one of its process, for the rest of its life:
 * the kernel ends the process at any other call and at any call by another table of calls. Works
 * inside containers, whose own filter stays in force. Returns 0 once a probe has shown the filter
 * in force, else an errno, and the caller must not run the code. */
int lac_sandbox_confine(int fd);

#endif
