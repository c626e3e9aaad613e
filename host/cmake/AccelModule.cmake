# ac_module(<stage> [O3] [EXCLUDE <regex>...]) - one stage of the house: every .c below the calling folder
# becomes part of the object library ac_<stage>. A new file needs no edit here. O3: kernels, compiled with -O3
# in optimised builds. accel_libraries() joins the stages into the products named in the root CMakeLists.
# accel_install(...) - install(...), unless ACCEL_INSTALL is off. Each rule names its component, which becomes a package
# (AccelInstall.cmake lists them).
macro(accel_install)
  if(ACCEL_INSTALL)
    install(${ARGN})
  endif()
endmacro()

define_property(GLOBAL PROPERTY ACCEL_STAGES BRIEF_DOCS "object libraries" FULL_DOCS "in order")

function(ac_module stage)
  cmake_parse_arguments(arg "O3" "" "EXCLUDE;SOURCES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.c")
  foreach(pattern IN LISTS arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${pattern}")
  endforeach()
  list(APPEND sources ${arg_SOURCES})
  if(NOT sources)
    return()
  endif()
  add_library(ac_${stage} OBJECT ${sources})
  target_link_libraries(ac_${stage} PRIVATE ac_flags)
  set_target_properties(ac_${stage} PROPERTIES C_VISIBILITY_PRESET hidden)
  if(arg_O3)
    target_compile_options(ac_${stage} PRIVATE ${ACCEL_KERNEL_FLAGS})
  endif()
  # Stages from ops on may include generated headers (gen/accel/ops.h, gen/ops_x.h).
  if(TARGET accel_gen AND NOT stage MATCHES "^(base|text|device|tensor)$")
    add_dependencies(ac_${stage} accel_gen)
  endif()
  set_property(GLOBAL APPEND PROPERTY ACCEL_STAGES ac_${stage})
endfunction()

# Marks files of the calling folder for -O3 in optimised builds.
function(ac_kernels)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${ACCEL_KERNEL_FLAGS};${ACCEL_VECTOR_FLAGS}")
endfunction()

function(accel_libraries)
  get_property(stages GLOBAL PROPERTY ACCEL_STAGES)
  if(NOT stages)
    message(WARNING "host/ has no sources")
    return()
  endif()
  set(objects)
  foreach(stage IN LISTS stages)
    list(APPEND objects $<TARGET_OBJECTS:${stage}>)
  endforeach()

  add_library(accel_testing STATIC EXCLUDE_FROM_ALL ${objects})
  target_link_libraries(accel_testing PUBLIC ac_flags ac_lua)
  set_target_properties(accel_testing PROPERTIES ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")

  add_library(accel SHARED ${objects})
  add_library(accel::accel ALIAS accel)
  if(ACCEL_MODULE_ONLY)
    set_target_properties(accel PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  target_link_libraries(accel PRIVATE $<BUILD_INTERFACE:ac_flags> $<BUILD_INTERFACE:ac_lua>)
  target_include_directories(accel INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/host/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/gen>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  # Before 1.0 each minor version may change the ABI, and has a soname of its own.
  set(soversion ${PROJECT_VERSION_MAJOR})
  if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(soversion 0.${PROJECT_VERSION_MINOR})
  endif()
  set_target_properties(accel PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${soversion})

  # For modules of Lua in C that work on our tensors: headers, and no library, because the process has one.
  add_library(accel_lua INTERFACE)
  add_library(accel::lua ALIAS accel_lua)
  set_target_properties(accel_lua PROPERTIES EXPORT_NAME lua)
  target_include_directories(accel_lua INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/host/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/gen>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  get_target_property(lua_headers ac_lua_headers INTERFACE_INCLUDE_DIRECTORIES)
  foreach(folder IN LISTS lua_headers)
    target_include_directories(accel_lua SYSTEM INTERFACE $<BUILD_INTERFACE:${folder}>)
  endforeach()

  # The interpreter that loads the module brings the lua_* symbols.
  add_library(accel_core MODULE ${objects})
  target_link_libraries(accel_core PRIVATE ac_flags ac_lua_headers)
  # calls between our own public functions need no detour through the loader's table
  # and threads keep lists whose destructor must outlive a dlclose
  target_link_options(accel PRIVATE -Wl,-Bsymbolic-functions -Wl,-z,nodelete)
  target_link_options(accel_core PRIVATE -Wl,-Bsymbolic-functions -Wl,-z,nodelete)
  set_target_properties(accel_core PROPERTIES PREFIX "" OUTPUT_NAME core SUFFIX ".so"
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/lua/5.4/accel")

  # What is loaded on first use (accel_onednn.so) lies in lib/accel: dlopen of the bare name finds it from either
  # library, in the build folder and in an installation that was moved.
  file(RELATIVE_PATH modules "${ACCEL_LUA_FULL_CDIR}/accel" "${CMAKE_INSTALL_FULL_LIBDIR}/accel")
  set_target_properties(accel PROPERTIES
    BUILD_RPATH "$ORIGIN/accel" INSTALL_RPATH "$ORIGIN/accel")
  set_target_properties(accel_core PROPERTIES
    BUILD_RPATH "$ORIGIN/../../../accel" INSTALL_RPATH "$ORIGIN/${modules}")

  if(NOT ACCEL_SANITIZE)
    target_link_options(accel PRIVATE -Wl,-z,defs)
  endif()
endfunction()

function(accel_summary)
  message(STATUS
    "accel ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, Lua ${ACCEL_LUA_VERSION}, oneDNN ${ACCEL_DNNL_STATE}, "
    "MPI ${ACCEL_MPI_STATE}, CUDA ${ACCEL_CUDA_STATE}; loaded on first use: ${ACCEL_LIBRARIES_STATE}")
endfunction()
