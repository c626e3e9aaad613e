/* dst := src converted; dst := 0. */
kernel void copy(const struct layout l, MEM(dst), MEM(src)) {
  const long i = get_global_id(0);
  if (i < l.n) PUT(DST, dst, element(&l, 0, i), GET(SRC, src, element(&l, 1, i)));
}

kernel void zero(const struct layout l, MEM(dst)) {
  const long i = get_global_id(0);
  if (i < l.n) PUT(DST, dst, element(&l, 0, i), 0);
}
