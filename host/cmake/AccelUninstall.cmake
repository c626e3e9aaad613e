# The target `uninstall`: removes what this build folder installed, with the folders that the installation made.
#   cmake --build build/release --target uninstall
# Two scripts run around the install rules (uninstall.cmake): the first one, here, notes which folders are there already, and the second
# one, after accel_record_installation(), the files. Both write <build>/installed.txt, which has all installations of the build folder, each
# with its prefix and DESTDIR. What cpack installs to make packages is not in it.
if(ACCEL_INSTALL AND PROJECT_IS_TOP_LEVEL)
  # Folders that others use as well. All others below the prefix are accel's own.
  set(shared "")
  foreach(folder "${CMAKE_INSTALL_BINDIR}" "${CMAKE_INSTALL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_LIBDIR}/cmake" "${CMAKE_INSTALL_INCLUDEDIR}"
      "${ACCEL_LUA_CDIR}" "${ACCEL_LUA_LDIR}" "${CMAKE_INSTALL_DOCDIR}/.." "${CMAKE_INSTALL_MANDIR}/man1"
      "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" "${CMAKE_INSTALL_DATADIR}/zsh/site-functions"
      "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
    cmake_path(NORMAL_PATH folder)
    while(folder AND NOT folder STREQUAL "/")
      string(REGEX REPLACE "/$" "" folder "${folder}")
      list(APPEND shared "${folder}")
      cmake_path(GET folder PARENT_PATH folder)
    endwhile()
  endforeach()
  list(REMOVE_DUPLICATES shared)
  set(ACCEL_SHARED_FOLDERS ${shared}) # for packages
  set(own "${CMAKE_INSTALL_DOCDIR}" "${CMAKE_INSTALL_DATADIR}/accel" "${CMAKE_INSTALL_INCLUDEDIR}/accel" "${ACCEL_LUA_LDIR}/accel")
  set(script "${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake")
  install(CODE "if(NOT DEFINED ACCEL_RECORD)
  set(ACCEL_RECORD \"${PROJECT_BINARY_DIR}/installed.txt\")
endif()
set(ACCEL_SHARED_FOLDERS \"${shared}\")
set(ACCEL_OWN_FOLDERS \"${own}\")
set(ACCEL_STEP before)
include(\"${script}\")" ALL_COMPONENTS)
  add_custom_target(uninstall
    COMMAND "${CMAKE_COMMAND}" "-DACCEL_STEP=uninstall" "-DACCEL_RECORD=${PROJECT_BINARY_DIR}/installed.txt" -P "${script}"
    COMMENT "Removing what this build folder installed"
    VERBATIM)
endif()

macro(accel_record_installation)
  if(ACCEL_INSTALL AND PROJECT_IS_TOP_LEVEL)
    install(CODE "set(ACCEL_STEP after)\ninclude(\"${PROJECT_SOURCE_DIR}/host/cmake/uninstall.cmake\")" ALL_COMPONENTS)
  endif()
endmacro()
