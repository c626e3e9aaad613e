# Writes the table of openers: a row for each line LAC_OPEN("module", part) { of the bindings (core/state.h).
#   cmake -DSRC=<bindings> -DOUT=<file.c> -P openers.cmake
file(GLOB_RECURSE files "${SRC}/*.c")
list(SORT files)
set(prototypes)
set(rows)
set(n 0)
foreach(file IN LISTS files)
  file(STRINGS "${file}" lines REGEX "^LAC_OPEN\\(")
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "^LAC_OPEN\\((\"accel[a-z.]*\"), ([a-z_]+)\\) {$")
      message(FATAL_ERROR "${file}: not the form LAC_OPEN(\"module\", part) {: ${line}")
    endif()
    string(APPEND prototypes "void lac_open_${CMAKE_MATCH_2}(lua_State *L, lac_state *S);\n")
    string(APPEND rows "  {${CMAKE_MATCH_1}, lac_open_${CMAKE_MATCH_2}},\n")
    math(EXPR n "${n} + 1")
  endforeach()
endforeach()
file(WRITE "${OUT}.new" "/* Generated from the LAC_OPEN lines of bindings/. */
#include \"bindings/core/lac.h\"
${prototypes}
const lac_opener lac_openers[] = {
${rows}};
const int lac_n_openers = ${n};
")
file(COPY_FILE "${OUT}.new" "${OUT}" ONLY_IF_DIFFERENT)
file(REMOVE "${OUT}.new")
