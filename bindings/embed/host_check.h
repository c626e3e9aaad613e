/* Checks of arguments at the border of ac_host_*: a program that passes nonsense gets AC_INVALID
 * with words, never a crash. */
#ifndef LAC_HOST_CHECK_H
#define LAC_HOST_CHECK_H
#include "host_impl.h"

/* Returns AC_INVALID from the calling function, whose name begins the message, unless `ok`. `e` may
 * be NULL. */
#define HOST_NEEDS(ok, e, ...)                                      \
  do {                                                              \
    if (!(ok)) return lac_host_invalid((e), __func__, __VA_ARGS__); \
  } while (0)

ac_status lac_host_invalid(ac_err *e, const char *function, const char *fmt, ...) AC_PRINTF(3, 4);

/* Programs keep pointers to hosts that they have closed. A host that was closed is found out as
 * long as no other has its address. */
void lac_host_opened(ac_host *h);
bool lac_host_forget(ac_host *h); /* false: it is not open */
bool lac_host_is_open(const ac_host *h);
/* INVALID: the host is NULL, or was closed. */
ac_status lac_host_check_open(const ac_host *h, const char *function, ac_err *e);

/* A type of ac_host_type, a string with bytes, a tensor that is not NULL. `what`: "argument",
 * "result". i counts from 0. */
ac_status lac_host_check_values(const char *function, const char *what, int n,
                                const ac_host_value *v, ac_err *e);

/* A name of parts that are joined by dots, none of them empty. */
ac_status lac_host_check_name(const char *function, const char *name, ac_err *e);

#endif
