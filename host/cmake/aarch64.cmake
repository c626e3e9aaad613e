# Toolchain file: cross compiles for 64-bit Arm on a Debian or Ubuntu machine of another kind. The preset aarch64 uses it.
#   dpkg --add-architecture arm64 && apt-get update
#   apt-get install gcc-aarch64-linux-gnu liblua5.4-dev:arm64 lua-filesystem:arm64 libyaml-dev:arm64
# and, to run the result here, qemu-user. Libraries are those of arm64 that are installed beside this machine's own. Headers of libraries
# that are loaded on first use may be of either, because they do not depend on the machine.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
find_program(ACCEL_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
mark_as_advanced(ACCEL_QEMU)
if(ACCEL_QEMU) # ctest and the build start programs of arm64 by it
  set(CMAKE_CROSSCOMPILING_EMULATOR "${ACCEL_QEMU}")
endif()
