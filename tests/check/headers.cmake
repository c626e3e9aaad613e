# ac_header_tests(): every public header compiles alone, and twice in one file, as C11 and as C++17 with all
# warnings as errors. One entry per header and language; C++ is left out where no compiler for it is
# installed.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  set(ac_cxx "${CMAKE_CXX_COMPILER}")
else()
  message(STATUS "No C++ compiler: public headers are tested as C only")
endif()

function(ac_header_tests)
  file(GLOB headers RELATIVE "${PROJECT_SOURCE_DIR}/host/include" CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/host/include/accel/*.h")
  if(TARGET accel_gen)
    list(APPEND headers accel/ops.h)
  endif()
  set(flags -Wall -Wextra -Wpedantic -Werror -fsyntax-only
    "-I${PROJECT_SOURCE_DIR}/host/include" "-I${PROJECT_BINARY_DIR}/gen")
  foreach(header IN LISTS headers)
    get_filename_component(name "${header}" NAME_WE)
    set(unit "${PROJECT_BINARY_DIR}/tests/headers/${name}")
    foreach(suffix c cpp)
      file(CONFIGURE OUTPUT "${unit}.${suffix}"
        CONTENT "#include \"${header}\"\n#include \"${header}\"\nextern int ac_unit_is_not_empty;\n" @ONLY)
    endforeach()
    ac_add_test("headers/${name}/c11" TIMEOUT 300 LABELS check
      COMMAND "${CMAKE_C_COMPILER}" -std=c11 -Wstrict-prototypes ${flags} "${unit}.c")
    if(ac_cxx)
      ac_add_test("headers/${name}/c++17" TIMEOUT 300 LABELS check
        COMMAND "${ac_cxx}" -std=c++17 ${flags} "${unit}.cpp")
    endif()
  endforeach()
endfunction()
