#include "file/table/table.h"
ac_status aci_parquet_open(aci_table *t, int fd, uint64_t bytes, ac_err *e) {
  return AC_FAIL(e, UNSUPPORTED, "no Parquet yet");
}
