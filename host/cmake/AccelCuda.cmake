# accel_cuda.so: every .cu below host/ and the formulas that the build collects. The CUDA runtime is linked statically and looks for the
# driver when it is first asked, so that the module loads without one.
#   ACCEL_CUDA=AUTO  (default) for the GPUs that are here, or the chips that CMAKE_CUDA_ARCHITECTURES names; not at all where there are
#                    neither (minutes of compiling for nobody), and where nvcc is missing or broken
#   ACCEL_CUDA=ON    for all chips, or those named: sm_90 as machine code and, as PTX that the driver compiles, older chips (compute_75)
#                    and newer ones (compute_90). What is missing is an error
#   ACCEL_CUDA=OFF   not at all
# The twin, the same files compiled for the CPU by tests/cuda, needs a C++ compiler and no toolkit.
include(AccelCudaProbe)
set(default AUTO)
if(DEFINED ENV{ACCEL_CUDA}) # for builds whose command line belongs to others (luarocks)
  set(default "$ENV{ACCEL_CUDA}")
endif()
set(ACCEL_CUDA "${default}" CACHE STRING "Build the CUDA module: AUTO, ON or OFF")
set_property(CACHE ACCEL_CUDA PROPERTY STRINGS AUTO ON OFF)
file(GLOB_RECURSE cuda_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/host/*.cu")
set(ACCEL_CUDA_FILES ${cuda_files} ${ACCEL_CUDA_MAPS})

set(chips "${CMAKE_CUDA_ARCHITECTURES}")
if(NOT chips)
  set(chips "$ENV{CUDAARCHS}")
endif()
set(nvcc "${CMAKE_CUDA_COMPILER}")
if(NOT nvcc AND NOT ACCEL_CUDA STREQUAL "OFF")
  find_program(ACCEL_NVCC nvcc HINTS "${CUDAToolkit_ROOT}" ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
  mark_as_advanced(ACCEL_NVCC)
  if(ACCEL_NVCC)
    set(nvcc "${ACCEL_NVCC}")
  elseif(ACCEL_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ACCEL_CUDA=ON, but nvcc was not found; set CUDAToolkit_ROOT to the toolkit's folder.")
  endif()
endif()

# Why it is not built; empty when it is.
set(ACCEL_CUDA_STATE "")
if(ACCEL_CUDA STREQUAL "OFF")
  set(ACCEL_CUDA_STATE "off")
elseif(ACCEL_CUDA STREQUAL "ON")
  if(NOT chips)
    set(chips 75-virtual 90)
  endif()
elseif(ACCEL_SANITIZE)
  set(ACCEL_CUDA_STATE "off with sanitizers")
elseif(NOT nvcc)
  set(ACCEL_CUDA_STATE "no: nvcc was not found (set CUDAToolkit_ROOT)")
else()
  if(NOT chips)
    accel_cuda_chips("${nvcc}" chips ACCEL_CUDA_STATE)
  endif()
  if(ACCEL_CUDA_STATE STREQUAL "" AND NOT ACCEL_NVCC_WORKS STREQUAL nvcc)
    accel_cuda_compiles("${nvcc}" "${PROJECT_BINARY_DIR}/CMakeFiles/accel_cuda_probe" ACCEL_CUDA_STATE)
    if(ACCEL_CUDA_STATE STREQUAL "")
      set(ACCEL_NVCC_WORKS "${nvcc}" CACHE INTERNAL "the nvcc that made a program")
    endif()
  endif()
endif()
if(NOT ACCEL_CUDA_STATE STREQUAL "") # "off" is false
  # One that an earlier configuration built would be loaded.
  file(REMOVE "${PROJECT_BINARY_DIR}/lib/accel/accel_cuda.so")
  return()
endif()

set(CMAKE_CUDA_COMPILER "${nvcc}")
# Named before the language is enabled: CMake's own default is a chip that new toolkits do not know any more. Not cached, so that AUTO
# follows the machine.
set(CMAKE_CUDA_ARCHITECTURES ${chips})
if(ACCEL_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${ACCEL_CCACHE}")
endif()
set(CMAKE_CUDA_STANDARD 14) # the library's headers of C++17 are a third of a small file's time
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
# Of the host's half, which makes launches; the device's is optimised whatever stands here. In the place of CMake's own default, so that
# flags which a user gives stay. A project around this one keeps its own.
foreach(config RELEASE RELWITHDEBINFO)
  if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_CUDA_FLAGS_${config} "-O1" CACHE STRING "Flags of nvcc in ${config} builds")
  else()
    set(CMAKE_CUDA_FLAGS_${config} "-O1")
  endif()
endforeach()
enable_language(CUDA)

add_library(accel_cuda MODULE ${ACCEL_CUDA_FILES} $<TARGET_OBJECTS:ac_module_stubs>)
set_source_files_properties(${ACCEL_CUDA_MAPS} PROPERTIES GENERATED TRUE)
add_dependencies(accel_cuda accel_gen)
target_include_directories(accel_cuda PRIVATE "${PROJECT_SOURCE_DIR}/host" "${PROJECT_SOURCE_DIR}/host/include" "${PROJECT_BINARY_DIR}/gen")
target_compile_definitions(accel_cuda PRIVATE _GNU_SOURCE)
# As everywhere: no contraction, so that formulas give the CPU's bits.
target_compile_options(accel_cuda PRIVATE -fmad=false -Xcompiler=-ffp-contract=off,-Wall,-Wno-unused-function
  --diag-suppress=177,550 --compress-mode=size)
target_link_libraries(accel_cuda PRIVATE Threads::Threads ${CMAKE_DL_LIBS} rt)
# The library's functions are the stubs, also where a library of the same names is in sight.
target_link_options(accel_cuda PRIVATE "LINKER:-Bsymbolic-functions")
set_target_properties(accel_cuda PROPERTIES PREFIX "" CUDA_VISIBILITY_PRESET hidden
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/accel")
list(JOIN chips " " chips)
set(ACCEL_CUDA_STATE "yes (${CMAKE_CUDA_COMPILER_VERSION}, for ${chips})")
