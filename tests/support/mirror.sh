# Sourced by tests/run.sh: what has to be built for some tests, and from changed files to the tests that mirror them.
# Uses support/packages.sh and run_ctest of run.sh.

# Names of the tests of every change.
mirror_all() { ctest --test-dir build/dev -N -LE "slow|matrix|gpu" | sed -n 's/^ *Test *#[0-9]*: //p'; }

# The name of the test that mirrors a file exactly.
mirror_stem() {
  case $1 in
    tests/*)
      stem=${1#tests/}
      stem=${stem%.*}
      stem=$(printf '%s' "$stem" | sed 's,\(^\|/\)test_\([^/]*\)$,\1\2,; s,_test$,,; s,_suite$,,')
      ;;
    host/*.cu | host/*.cuh) stem=cuda/$(basename "${1%.*}") ;;
    stdlib/accel/*) stem=stdlib/${1#stdlib/accel/} stem=${stem%.*} stem=${stem%/init} ;;
    bindings/*) stem=bindings/$(basename "${1%.*}" | sed 's/^lac_//') ;;
    *) stem=${1%.*} ;;
  esac
  printf '%s\n' "$stem"
}

# example_names <file of examples/>: names of tests in $all whose text names the file.
example_names() {
  for test in $(grep -lF "$(basename "$1" .lua)" tests/examples/*_test.lua); do
    printf '%s\n' "$all" | grep -x "$(mirror_stem "$test")" || true
  done
}

# mirror_names <file>: names of tests in $all (one a line) that mirror a file: those called as it is, or as it is with _more or /more
# behind; where there are none, those of its name without its last part (json_read: json), then of the nearest folder above.
mirror_names() {
  stem=$(mirror_stem "$1")
  case $1 in
    examples/*)
      found=$(example_names "$1")
      if [ -n "$found" ]; then
        printf '%s\n' "$found"
        return 0
      fi
      ;;
  esac
  while :; do
    found=$(printf '%s\n' "$all" | grep -E "^$stem(\$|_|/)" || true)
    if [ -n "$found" ]; then
      printf '%s\n' "$found"
      return 0
    fi
    case ${stem##*/} in
      *_*)
        stem=${stem%_*}
        continue
        ;;
    esac
    case $stem in
      */*) stem=${stem%/*} ;;
      *) return 0 ;;
    esac
  done
}

# targets_of <preset> <ctest arguments>: what has to be built for the tests that the arguments select, as targets. ctest itself does not
# say the command of a program that is not built, so it is read from its files.
targets_of() {
  tested=$1
  shift
  ctest --test-dir "build/$tested" -N "$@" | sed -n 's/^ *Test *#[0-9]*: //p' > "build/$tested/selected"
  find "build/$tested" -name CTestTestfile.cmake -exec cat {} + | awk -v list="build/$tested/selected" '
    BEGIN { while ((getline name < list) > 0) selected[name] = 1 }
    match($0, /\[=\[[^]]*\]=\]/) { name = substr($0, RSTART + 3, RLENGTH - 6) }
    !(name in selected) { next }
    /^add_test/ && match($0, /\/tests\/bin\/[^"]*/) { print substr($0, RSTART + 11, RLENGTH - 11) }
    /accel_cuda_twin\.so/ { twin = 1 }
    END { if (twin) print "accel_cuda_twin cudnn_twin cublaslt_twin" }' | sort -u | tr '\n' ' '
  echo accel_test_modules
}

# The public ops of files below host/ops, from the table that the build generated.
mirror_ops() {
  [ $# -eq 0 ] || build/dev/bin/accel-run -e '
    local wanted = {}
    for i = 2, #arg do wanted[arg[i]] = true end
    local file <close> = assert(io.open(arg[1]))
    for _, op in ipairs(require "accel".json.decode(file:read "a").ops) do
      if wanted[op.file] and not op.hidden then print(op.name) end
    end' build/dev/gen/ops.json "$@"
}

# has_new_test <file>: whether a test of the file's name (or the file, if it is one) is not in the build so far.
has_new_test() {
  stem=$(mirror_stem "$1")
  for test in "tests/${stem}_test.lua" "tests/$(dirname "$stem")/test_$(basename "$stem").c"; do
    if [ -e "$test" ] && ! grep -qF "[=[$stem]=]" build/dev/tests/CTestTestfile.cmake; then return 0; fi
  done
  return 1
}

# run_mirrors <file>...
run_mirrors() {
  for file in "$@"; do
    [ -e "$file" ] || die "there is no file $file (paths count from the top of the tree)"
  done
  if [ ! -f build/dev/CMakeCache.txt ]; then
    configure_preset dev ${CMAKE_ARGS:-}
  fi
  for file in "$@"; do
    if has_new_test "$file"; then
      configure_preset dev ${CMAKE_ARGS:-} > /dev/null
      break
    fi
  done
  all=$(mirror_all)
  for file in "$@"; do
    case $file in
      tests/*_test.lua | tests/*/test_*.c) ;;
      *) continue ;;
    esac
    name=$(mirror_stem "$file")
    printf '%s\n' "$all" | grep -qx "$name" || die "$file is not a test of the tier of every change: sh tests/run.sh dev -R '$name'"
  done
  names=check/sources op_files= targets= examples=
  for file in "$@"; do
    names="$names
$(mirror_names "$file")"
    case $file in
      host/ops/*.c | stdlib/accel/*.lua | lua/meta/*) names="$names
lua/reference" targets="$targets reference" ;; # runs the examples of comments
    esac
    case $file in
      examples/*.lua) examples="$examples $(basename "$file" .lua)" ;;
      host/ops/*.c) op_files="$op_files ${file#host/ops/}" ;;
      host/*.cu | host/*.cuh) targets="$targets accel_cuda_twin" ;;
    esac
    case $file in
      *.lua)
        if command -v luacheck > /dev/null; then luacheck --no-color --codes --quiet "$file" || die "luacheck failed"; fi
        ;;
    esac
  done
  regex=$(printf '%s\n' "$names" | sort -u | sed '/^$/d; s/[.+]/\\&/g; s/.*/^&$/' | tr '\n' '|')
  regex=${regex%|}
  build_targets dev $targets $(targets_of dev -R "$regex")
  # every op of the files through the generated tests: dtypes, layouts, gradients, meta device, wrong arguments
  for op in $(mirror_ops $op_files); do
    say "op $op"
    for test in tests/numerics/ops_dtypes_test.lua tests/numerics/ops_layouts_test.lua tests/numerics/ops_gradients_test.lua \
      tests/numerics/ops_meta_test.lua tests/numerics/ops_errors_test.lua; do
      printf '%-40s ' "$test"
      ACCEL_TEST_BUILD=build/dev ACCEL_DEVICE=cpu build/dev/bin/accel-run "$test" "$op" || die "$test $op failed"
    done
  done
  case " $*" in
    *" tests/"*) ;; # a test that is named runs whole
    *) [ -z "$examples" ] || export ACCEL_TEST_EXAMPLES="$examples" ;;
  esac
  run_ctest dev -R "$regex"
}
