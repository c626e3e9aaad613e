# Finds Lua 5.4 and LuaFileSystem, the two things that are required at configure time.
#   ac_lua          headers and library: for what embeds the interpreter
#   ac_lua_headers  headers only: for the module that an interpreter loads
find_package(PkgConfig QUIET)
set(lua_target)
set(ACCEL_PC_LUA "") # for accel.pc: what pkg-config calls it
if(PKG_CONFIG_FOUND)
  foreach(name lua5.4 lua-5.4 lua54 lua)
    pkg_check_modules(ACCEL_PC_${name} QUIET IMPORTED_TARGET "${name}>=5.4")
    if(ACCEL_PC_${name}_FOUND AND ACCEL_PC_${name}_VERSION VERSION_LESS 5.5)
      set(lua_target PkgConfig::ACCEL_PC_${name})
      set(lua_include ${ACCEL_PC_${name}_INCLUDE_DIRS})
      set(ACCEL_LUA_VERSION "${ACCEL_PC_${name}_VERSION}")
      set(ACCEL_PC_LUA "${name}")
      break()
    endif()
  endforeach()
endif()

add_library(ac_lua INTERFACE)
add_library(ac_lua_headers INTERFACE)
if(lua_target)
  target_link_libraries(ac_lua INTERFACE ${lua_target})
  target_include_directories(ac_lua_headers SYSTEM INTERFACE ${lua_include})
else()
  find_package(Lua 5.4 QUIET)
  if(NOT LUA_FOUND OR LUA_VERSION_STRING VERSION_GREATER_EQUAL 5.5)
    message(FATAL_ERROR "Lua 5.4 with headers is required (Debian and Ubuntu: liblua5.4-dev pkg-config).")
  endif()
  target_link_libraries(ac_lua INTERFACE ${LUA_LIBRARIES} ${CMAKE_DL_LIBS} m)
  target_include_directories(ac_lua SYSTEM INTERFACE ${LUA_INCLUDE_DIR})
  target_include_directories(ac_lua_headers SYSTEM INTERFACE ${LUA_INCLUDE_DIR})
  set(ACCEL_LUA_VERSION "${LUA_VERSION_STRING}")
endif()
# LuaFileSystem: hosts load it from this file when a script requires "lfs".
find_library(ACCEL_LFS_LIBRARY NAMES lua5.4-filesystem liblua5.4-filesystem.so.0 lfs.so
  PATH_SUFFIXES lua/5.4 DOC "The module lfs, or the library that has luaopen_lfs")
if(NOT ACCEL_LFS_LIBRARY AND NOT ACCEL_MODULE_ONLY)
  message(FATAL_ERROR "LuaFileSystem for Lua 5.4 is required (Debian and Ubuntu: lua-filesystem). "
    "If it is elsewhere, set -DACCEL_LFS_LIBRARY=/path/to/lfs.so.")
endif()
mark_as_advanced(ACCEL_LFS_LIBRARY)
set(ACCEL_LUA_CDIR "${CMAKE_INSTALL_LIBDIR}/lua/5.4" CACHE STRING "Where the Lua module is installed")
set(ACCEL_LUA_LDIR "${CMAKE_INSTALL_DATADIR}/lua/5.4" CACHE STRING "Where the Lua library is installed")
mark_as_advanced(ACCEL_LUA_CDIR ACCEL_LUA_LDIR)
# Both as absolute paths, the last place that programs look at.
foreach(kind C L)
  cmake_path(ABSOLUTE_PATH ACCEL_LUA_${kind}DIR BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}"
    OUTPUT_VARIABLE ACCEL_LUA_FULL_${kind}DIR)
endforeach()

# Stock interpreter: runs the checks and the test of the module. Not needed to build.
find_program(ACCEL_LUA_PROGRAM NAMES lua5.4 lua54 lua-5.4)
mark_as_advanced(ACCEL_LUA_PROGRAM)
