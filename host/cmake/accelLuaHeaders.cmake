# Adds the headers of Lua 5.4 to accel::lua, for modules of Lua in C. Programs that only embed accel need no Lua headers: nothing fails
# if there are none.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_search_module(accel_LUA_HEADERS QUIET lua5.4 lua-5.4 lua54 lua>=5.4)
endif()
if(NOT accel_LUA_HEADERS_FOUND)
  find_package(Lua 5.4 QUIET)
  set(accel_LUA_HEADERS_INCLUDE_DIRS ${LUA_INCLUDE_DIR})
endif()
if(accel_LUA_HEADERS_INCLUDE_DIRS)
  set_property(TARGET accel::lua APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES ${accel_LUA_HEADERS_INCLUDE_DIRS})
endif()
