#!/bin/sh
# Nothing that is optional ends the configure step: not where it is missing, and not where it is there and broken. Stand-ins come first
# in PATH; only configures, builds nothing.
#   configure.sh <cmake> <generator> <c compiler>
set -eu
cmake=$1 generator=$2 cc=$3
work="$ACCEL_TEST_TMP/work"
rm -rf "$work"
unset CUDA_HOME CUDA_PATH CUDAARCHS CUDACXX CUDAHOSTCXX MPI_HOME ACCEL_CUDA # they come before PATH

# fake NAME STATUS [LINE...]: a program that prints these lines and ends with that status
fake() {
  name=$1 status=$2
  shift 2
  mkdir -p "$work/bin"
  { echo '#!/bin/sh'; for line in "$@"; do echo "echo '$line'"; done; echo "exit $status"; } > "$work/bin/$name"
  chmod +x "$work/bin/$name"
}

# configure TITLE [arguments]: into $log, which must end well
configure() {
  rm -rf "$work/build"
  again "$@"
}
# again TITLE [arguments]: the same in the folder of the step before
again() {
  title=$1 log="$work/log"
  shift
  PATH="$work/bin:$PATH" "$cmake" -S "$ACCEL_TEST_SRC" -B "$work/build" -G "$generator" -DCMAKE_C_COMPILER="$cc" -DBUILD_TESTING=ON \
    "$@" > "$log" 2>&1 || { cat "$log"; echo "$title: configuring failed"; exit 1; }
}
# says PATTERN: the summary does
says() {
  grep '^-- accel ' "$log" | grep -q -e "$1" || { cat "$log"; echo "$title: the summary does not say \"$1\""; exit 1; }
}

# every tool broken
for tool in nvcc mpicc mpicc.openmpi mpicc.mpich mpiexec ccache python3 pkg-config lua5.4; do fake $tool 1 "$tool: error: broken"; done
fake nvidia-smi 6 "No devices were found"
configure "broken tools" -DPython3_EXECUTABLE="$work/bin/python3"
says "MPI no"
says "CUDA no: no GPU here; -DACCEL_CUDA=ON builds for all chips"
grep -q "ccache does not compile" "$log" || { cat "$log"; echo "a broken ccache went unnoticed"; exit 1; }
rm -rf "$work/bin"

# an MPI whose wrapper names what is not installed; a GPU and an nvcc that knows it, but has no host compiler
fake mpicc 0 "gcc -I$work/nowhere/include -L$work/nowhere/lib -lmpi"
fake nvidia-smi 0 "9.0"
printf '#!/bin/sh\n[ "$1" != --list-gpu-code ] || { echo sm_90; exit 0; }\necho "error: no host compiler"\nexit 1\n' > "$work/bin/nvcc"
chmod +x "$work/bin/nvcc"
configure "broken packages"
says "MPI no: .*mpicc is there, but a program does not link"
says "CUDA no: .*nvcc makes no program (error: no host compiler)"

# a build folder follows the MPI that is there: what an earlier configuration found and built is forgotten
mkdir -p "$work/mpi" "$work/build/lib/accel"
echo 'static inline int MPI_Init(int *n, char ***v) { return n != 0 && v != 0; }' > "$work/mpi/mpi.h"
module="$work/build/lib/accel/accel_mpi.so"
again "an MPI comes"
says "MPI no"
fake mpicc 0 "gcc -I$work/mpi"
again "an MPI came"
says "MPI yes"
touch "$module"
fake mpicc 0 "gcc -I$work/nowhere/include -lmpi_of_nowhere"
again "an MPI that broke"
says "MPI no"
[ ! -e "$module" ] || { echo "$title: its module was left"; exit 1; }
fake mpicc 0 "gcc -I$work/mpi"
again "an MPI that was mended"
says "MPI yes"
touch "$module"
again "without MPI" -DACCEL_MPI=OFF
says "MPI off"
[ ! -e "$module" ] || { echo "$title: its module was left"; exit 1; }

# ACCEL_CUDA=ON is not optional
fake nvcc 1 "broken"
if PATH="$work/bin:$PATH" "$cmake" -S "$ACCEL_TEST_SRC" -B "$work/build" -DACCEL_CUDA=ON > "$work/log" 2>&1; then
  echo "ACCEL_CUDA=ON went on with a broken nvcc"
  exit 1
fi
rm -rf "$work/bin"

# flags that a user gives nvcc stay (where there is an nvcc)
nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc || true)
if [ -n "$nvcc" ] && "$nvcc" --version > /dev/null 2>&1; then
  configure "flags for nvcc" -DACCEL_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CUDA_FLAGS_RELEASE=-DAC_FLAG_OF_A_USER
  grep -rq -e -DAC_FLAG_OF_A_USER "$work/build" --include=build.ninja --include=flags.make || { echo "$title: not taken"; exit 1; }
fi
rm -rf "$work"
echo "configured with everything broken"
