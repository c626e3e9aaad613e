# accel_mpi.so: built by the MPI that is installed, where there is one. The library itself is the same with and
# without it.
if(ACCEL_MPI)
  find_package(MPI QUIET COMPONENTS C)
  if(MPI_C_FOUND)
    add_library(accel_mpi MODULE "${CMAKE_CURRENT_LIST_DIR}/module.c")
    target_link_libraries(accel_mpi PRIVATE ac_flags MPI::MPI_C)
    set_target_properties(accel_mpi PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden
      LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/accel")
  endif()
endif()
