# accel_cuda.so: every .cu below host/ and the formulas that the build collects, for sm_90 as machine code and, as PTX that the driver
# compiles, for older chips (compute_75) and newer ones (compute_90). The CUDA runtime is linked statically and looks for the driver
# when it is first asked, so that the module loads without one.
#   ACCEL_CUDA=AUTO (default: where the toolkit is found), ON (an error where it is not) or OFF
# The twin, the same files compiled for the CPU by tests/cuda, needs a C++ compiler and no toolkit.
set(default AUTO)
if(DEFINED ENV{ACCEL_CUDA}) # for builds whose command line belongs to others (luarocks)
  set(default "$ENV{ACCEL_CUDA}")
endif()
set(ACCEL_CUDA "${default}" CACHE STRING "Build the CUDA module: AUTO, ON or OFF")
set_property(CACHE ACCEL_CUDA PROPERTY STRINGS AUTO ON OFF)
file(GLOB_RECURSE cuda_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/host/*.cu")
set(ACCEL_CUDA_FILES ${cuda_files} ${ACCEL_CUDA_MAPS})

set(ACCEL_CUDA_STATE "off")
if(ACCEL_CUDA STREQUAL "OFF")
  return()
endif()
if(ACCEL_SANITIZE AND ACCEL_CUDA STREQUAL "AUTO")
  set(ACCEL_CUDA_STATE "off with sanitizers")
  return()
endif()
find_program(ACCEL_NVCC nvcc HINTS "${CUDAToolkit_ROOT}/bin" ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
mark_as_advanced(ACCEL_NVCC)
if(NOT ACCEL_NVCC AND NOT CMAKE_CUDA_COMPILER)
  set(ACCEL_CUDA_STATE "no: nvcc was not found (set CUDAToolkit_ROOT)")
  if(ACCEL_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ACCEL_CUDA=ON, but nvcc was not found; set CUDAToolkit_ROOT to the toolkit's folder.")
  endif()
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER "${ACCEL_NVCC}")
endif()
# Named before the language is enabled: CMake's own default is a chip that new toolkits do not know any more.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75-virtual 90 CACHE STRING "Chips: <n>-real is machine code, <n>-virtual PTX, <n> both")
endif()
if(ACCEL_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${ACCEL_CCACHE}")
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)

add_library(accel_cuda MODULE ${ACCEL_CUDA_FILES})
set_source_files_properties(${ACCEL_CUDA_MAPS} PROPERTIES GENERATED TRUE)
add_dependencies(accel_cuda accel_gen)
target_include_directories(accel_cuda PRIVATE "${PROJECT_SOURCE_DIR}/host" "${PROJECT_SOURCE_DIR}/host/include" "${PROJECT_BINARY_DIR}/gen")
target_compile_definitions(accel_cuda PRIVATE _GNU_SOURCE)
# As everywhere: no contraction, so that formulas give the CPU's bits.
target_compile_options(accel_cuda PRIVATE -fmad=false -Xcompiler=-ffp-contract=off,-Wall,-Wno-unused-function
  --diag-suppress=177,550 --compress-mode=size)
target_link_libraries(accel_cuda PRIVATE Threads::Threads ${CMAKE_DL_LIBS} rt)
set_target_properties(accel_cuda PROPERTIES PREFIX "" CUDA_VISIBILITY_PRESET hidden
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/accel")
set(ACCEL_CUDA_STATE "yes (${CMAKE_CUDA_COMPILER_VERSION})")
