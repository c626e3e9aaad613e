rockspec_format = "3.0"
package = "accel"
version = "scm-1"
source = { url = "git+file://." }
description = {
  summary = "An embeddable scripting host for training",
  detailed = "Native tensors, autograd and a training library for Lua 5.4, as a module of a stock interpreter.",
  license = "Apache-2.0",
}
supported_platforms = { "linux" }
dependencies = { "lua >= 5.4, < 5.5", "luafilesystem >= 1.8" }
build = {
  type = "cmake",
  variables = {
    CMAKE_BUILD_TYPE = "Release",
    CMAKE_INSTALL_PREFIX = "$(PREFIX)",
    CMAKE_INSTALL_LIBDIR = "lib",
    BUILD_TESTING = "OFF",
    ACCEL_MODULE_ONLY = "ON",
    ACCEL_LUA_CDIR = "$(LIBDIR)",
    ACCEL_LUA_LDIR = "$(LUADIR)",
  },
}
