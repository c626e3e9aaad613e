# install: headers with the generated one, libraries, accel-run, the Lua module, stdlib (by its own folder),
# and the two ways in which other builds find us: pkg-config accel, CMake accel::accel.
#
# Each rule names a component, and AccelPackages.cmake makes a package of each:
#   runtime   accel-run, its manual pages, completions and benchmarks
#   library   libaccel.so.<soname> and the modules that it loads (mpi, opencl, cuda: components of their own, by their dependencies)
#   common    the Lua library and the stubs for editors
#   lua       the module for stock Lua interpreters
#   dev       headers, the link libaccel.so, pkg-config and CMake files
#   doc       README, changelog, guides, reference, examples
include(CMakePackageConfigHelpers)

if(NOT TARGET accel OR NOT ACCEL_INSTALL)
  return()
endif()

install(TARGETS accel_core LIBRARY DESTINATION "${ACCEL_LUA_CDIR}/accel" COMPONENT lua)
foreach(pair accel_onednn=library accel_mpi=mpi accel_cuda=cuda)
  string(REGEX REPLACE "=.*" "" module ${pair})
  string(REGEX REPLACE ".*=" "" component ${pair})
  if(TARGET ${module})
    install(TARGETS ${module} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/accel" COMPONENT ${component})
  endif()
endforeach()
if(ACCEL_MODULE_ONLY)
  return()
endif()
install(TARGETS accel accel_lua EXPORT accelTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library NAMELINK_COMPONENT dev)
if(TARGET accel-run)
  install(TARGETS accel-run RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT runtime)
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/host/include/accel" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  COMPONENT dev FILES_MATCHING PATTERN "*.h")
if(TARGET accel_gen)
  install(FILES "${PROJECT_BINARY_DIR}/gen/accel/ops.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/accel" COMPONENT dev)
  install(FILES "${PROJECT_BINARY_DIR}/gen/ops.json" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT dev)
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT doc)

set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/accel")
install(EXPORT accelTargets NAMESPACE accel:: DESTINATION "${config_dir}" COMPONENT dev)
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/accelConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/CMakeFiles/accelConfig.cmake" INSTALL_DESTINATION "${config_dir}"
  PATH_VARS ACCEL_LUA_LDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/accelConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/CMakeFiles/accelConfig.cmake" "${PROJECT_BINARY_DIR}/accelConfigVersion.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/accelLuaHeaders.cmake"
  DESTINATION "${config_dir}" COMPONENT dev)
# The same for the build folder, which others may use where it lies: -Daccel_DIR=build/release.
export(EXPORT accelTargets NAMESPACE accel:: FILE "${PROJECT_BINARY_DIR}/accelTargets.cmake")
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/accelConfig.cmake" @ONLY CONTENT [[
# Defines accel::accel, the embedding library of this build folder, accel::lua, for modules of Lua in C, and accel_LUA_DIR, where its
# Lua part is.
include("${CMAKE_CURRENT_LIST_DIR}/accelTargets.cmake")
include("@PROJECT_SOURCE_DIR@/host/cmake/accelLuaHeaders.cmake")
set(accel_LUA_DIR "${CMAKE_CURRENT_LIST_DIR}/share/lua/5.4")
]])

# The prefix is written relative to the file, so that an installed tree can be moved.
file(RELATIVE_PATH ACCEL_PC_UP "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" ACCEL_PC_UP "${ACCEL_PC_UP}")
foreach(name accel accel-lua)
  configure_file("${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in" "${PROJECT_BINARY_DIR}/CMakeFiles/${name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/CMakeFiles/${name}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
    COMPONENT dev)
endforeach()
# The build folder's own: headers lie in two places, and programs find the library where it was built. pkg-config splits at blanks.
foreach(name SOURCE BINARY)
  string(REPLACE " " "\\ " ACCEL_PC_${name} "${PROJECT_${name}_DIR}")
endforeach()
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/accel.pc" @ONLY CONTENT [[
Name: accel
Description: @PROJECT_DESCRIPTION@ (a build folder)
Version: @PROJECT_VERSION@
libdir=@ACCEL_PC_BINARY@/lib
Libs: -L${libdir} -laccel -Wl,-rpath,${libdir}
Cflags: -I@ACCEL_PC_SOURCE@/host/include -I@ACCEL_PC_BINARY@/gen
]])
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/accel-lua.pc" @ONLY CONTENT [[
Name: accel-lua
Description: For modules of Lua in C that work on accel's tensors: headers of accel and Lua (a build folder)
Version: @PROJECT_VERSION@
Requires.private: @ACCEL_PC_LUA@
Cflags: -I@ACCEL_PC_SOURCE@/host/include -I@ACCEL_PC_BINARY@/gen
]])
