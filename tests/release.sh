#!/bin/sh
# The checklist of a release: runs every step that was not passed yet at this commit, prints one line for each, and writes its log.
#
#   sh tests/release.sh                  all steps: some hours; a second call continues after the steps that passed
#   sh tests/release.sh --list           the steps with their commands and states, runs nothing
#   sh tests/release.sh STEP...          these steps only, also if they passed
#   sh tests/release.sh --anew           forgets what passed
#
# Exit status: 0 if all steps passed, 1 if one failed, 3 if one could not run here (as root on Debian, all can). A failed step does not
# keep the others from running. Logs and states: build/checklist. A state counts for its commit, and for a tree without changes.
# --steps FILE reads other steps (the test of this script), --folder DIR keeps logs elsewhere.
set -eu
cd "$(dirname "$0")/.."

# name | purpose | command
steps() {
  abi="ACCEL_TEST_SRC=\$PWD ACCEL_TEST_TMP=\$PWD/build/checklist/abi sh tests/install/abi.sh"
  built="\$PWD/build/package"
  site=build/package/reference/html/index.html
  cat << END
version   | the version, the changelog, the soname and the rock agree      | sh tests/install/version.sh
spelling  | no misspelt words, and no habits that our pages avoid          | sh tests/install/spelling.sh
tests     | all tiers, then memory tests under sanitizers                  | sh tests/run.sh all
gate      | goals of reliability at their figures                          | sh tests/gate.sh --hours 2
package   | the build for packages                                         | cmake --preset package && cmake --build build/package
docs      | guides, reference and site are built                           | cmake --build build/package --target reference && ls $site
abi       | old programs run with the library that is packaged             | $abi "$built/lib/libaccel.so" cc "$built/share/lua/5.4"
packages  | .deb, .rpm and .tar.gz are complete, lintian, the archive moves | sh tests/install/packages.sh make build/package
installed | .deb in a bare Debian: installed, used, removed without a trace | sh tests/install/packages.sh use build/package
bare      | quickstart and tests on bare Debian 12 and 13                  | sh tests/install/bare.sh
END
}

folder=build/checklist table='' list='' wanted=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --list) list=yes ;;
    --anew) anew=yes ;;
    --steps | --folder)
      [ $# -gt 1 ] || { echo "release.sh: $1 needs a value" >&2; exit 2; }
      case $1 in --steps) table=$2 ;; *) folder=$2 ;; esac
      shift
      ;;
    -*) echo "release.sh: unexpected option '$1'; --help lists the options" >&2; exit 2 ;;
    *) wanted="$wanted $1" ;;
  esac
  shift
done
mkdir -p "$folder"
[ -z "${anew:-}" ] || rm -f "$folder"/*.passed
if [ -n "$table" ]; then cat "$table"; else steps; fi > "$folder/steps"
for name in $wanted; do
  grep -q "^$name *|" "$folder/steps" || { echo "release.sh: unknown step '$name'; --list shows the steps" >&2; exit 2; }
done

# What a state counts for: the commit, and a digest of the changes that are not committed.
commit=$({ git rev-parse HEAD && git diff HEAD && git status --porcelain; } 2> /dev/null | cksum | tr ' ' '-')
field() { printf '%s\n' "$line" | awk -F ' *[|] *' -v n="$1" '{ for (i = n + 1; n == 3 && i <= NF; i++) $n = $n " | " $i; print $n }'; }
passed() { [ "$(cat "$folder/$name.passed" 2> /dev/null)" = "$commit" ]; }

failed=0 skipped=0
while IFS= read -r line; do
  case $line in '' | '#'*) continue ;; esac
  name=$(field 1) purpose=$(field 2) command=$(field 3)
  if [ -n "$list" ]; then
    state=open
    ! passed || state=passed
    printf '%-10s %-7s %s\n%-18s %s\n' "$name" "$state" "$purpose" '' "$command"
    continue
  fi
  case " $wanted " in
    "  ") if passed; then printf '%-10s passed before\n' "$name"; continue; fi ;;
    *" $name "*) ;;
    *) continue ;;
  esac
  log=$folder/$name.log start=$(date +%s) status=0
  rm -f "$folder/$name.passed"
  printf '%-10s ' "$name"
  sh -c "$command" > "$log" 2>&1 < /dev/null || status=$?
  seconds=$(($(date +%s) - start))
  case $status in
    0)
      echo "$commit" > "$folder/$name.passed"
      printf 'passed in %d s\n' "$seconds"
      ;;
    77)
      skipped=$((skipped + 1))
      printf 'not run: %s\n' "$(sed -n 's/^skipped: //p' "$log" | tail -1)"
      ;;
    130 | 143)
      echo "interrupted; the log is $log"
      exit "$status"
      ;;
    *)
      failed=$((failed + 1))
      printf 'FAILED after %d s with status %d; the log is %s\n' "$seconds" "$status" "$log"
      ;;
  esac
done < "$folder/steps"
[ -z "$list" ] || exit 0
if [ $failed -gt 0 ]; then
  echo "$failed failed. Mend the cause, commit, and run this again."
  exit 1
elif [ $skipped -gt 0 ]; then
  echo "$skipped could not run here; a release needs them."
  exit 3
fi
echo "All steps passed at $(git rev-parse --short HEAD 2> /dev/null || echo 'this tree')."
