# accel_tool(<target> <sources>...) - a program that the build itself runs (generators). A native build compiles it as any other target.
# A cross build needs it for the machine that builds: it takes the one that ACCEL_OPGEN names, or of that name next to it, or compiles
# the sources by a compiler of this machine, ACCEL_BUILD_CC. Sets <target>_COMMAND, the path to run, and <target>_DEPENDS.
if(CMAKE_CROSSCOMPILING)
  find_program(ACCEL_BUILD_CC NAMES cc gcc clang NO_CMAKE_FIND_ROOT_PATH DOC "C compiler for programs that the build runs")
  mark_as_advanced(ACCEL_BUILD_CC)
endif()

function(accel_tool target)
  set(tools "${PROJECT_BINARY_DIR}/tools")
  if(NOT CMAKE_CROSSCOMPILING)
    add_executable(${target} ${ARGN})
    target_link_libraries(${target} PRIVATE ac_flags)
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${tools}")
    set(${target}_COMMAND $<TARGET_FILE:${target}> PARENT_SCOPE)
    set(${target}_DEPENDS ${target} PARENT_SCOPE)
    return()
  endif()
  if(ACCEL_OPGEN)
    get_filename_component(folder "${ACCEL_OPGEN}" DIRECTORY)
    set(program "${folder}/${target}")
    if(target STREQUAL "accel-opgen")
      set(program "${ACCEL_OPGEN}")
    endif()
    if(NOT EXISTS "${program}")
      message(FATAL_ERROR "ACCEL_OPGEN: ${program} is missing. Build the target ${target} in a native build folder, and name its tools/accel-opgen.")
    endif()
    set(${target}_COMMAND "${program}" PARENT_SCOPE)
    set(${target}_DEPENDS "${program}" PARENT_SCOPE)
    return()
  endif()
  if(NOT ACCEL_BUILD_CC)
    message(FATAL_ERROR "A cross build needs a C compiler for this machine (cc) for its generators. Set ACCEL_BUILD_CC to one, or "
      "ACCEL_OPGEN to the accel-opgen of a native build folder.")
  endif()
  set(sources)
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    list(APPEND sources "${source}")
  endforeach()
  add_custom_command(
    OUTPUT "${tools}/${target}"
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${tools}"
    COMMAND "${ACCEL_BUILD_CC}" -std=c11 -O1 -D_GNU_SOURCE "-I${PROJECT_SOURCE_DIR}/host" "-I${PROJECT_SOURCE_DIR}/host/include"
            ${sources} -o "${tools}/${target}" -lm -ldl -lpthread
    DEPENDS ${sources}
    COMMENT "Compiling ${target} for this machine"
    VERBATIM)
  set(${target}_COMMAND "${tools}/${target}" PARENT_SCOPE)
  set(${target}_DEPENDS "${tools}/${target}" PARENT_SCOPE)
endfunction()
