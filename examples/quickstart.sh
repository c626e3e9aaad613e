#!/bin/sh
# From a fresh Debian or Ubuntu machine to sampled text, in one command: installs packages (as root or through
# sudo), builds into build/release, trains a small GPT on real text for about two minutes, plots the loss and
# samples.
#
#   sh examples/quickstart.sh [arguments of examples/train_gpt.lua]
#   sh examples/quickstart.sh --install-packages       installs the packages and ends (for containers)
#
# Run again, it finds nothing to install, to build or to train: it loads the trained model and samples from it.
set -eu
for argument in "$@"; do
  case $argument in
    -h | --help)
      sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
      echo
      echo "Once it is built, build/release/bin/accel-run examples/train_gpt.lua --help names those arguments."
      exit 0
      ;;
  esac
done
cd "$(dirname "$0")/.."
. tests/support/packages.sh

[ "${1:-}" = --install-packages ] ||
  say "This installs what is missing, builds accel into build/release (a minute or two), trains a small GPT and lets it write"
REQUIRED="$REQUIRED libdnnl-dev"
optional="ninja-build $LIBRARIES"
if command -v mpirun > /dev/null; then # its headers; a machine without MPI stays without
  case $(mpirun --version 2>&1) in *"Open MPI"*) optional="$optional libopenmpi-dev" ;; *) optional="$optional libmpich-dev" ;; esac
fi
need_packages "$REQUIRED" "$optional"
[ "${1:-}" != --install-packages ] || exit 0
build_preset release

out=build/quickstart
train() {
  say "build/release/bin/accel-run examples/train_gpt.lua $*"
  status=0
  build/release/bin/accel-run examples/train_gpt.lua "$@" || status=$?
}

# The parts that this build lacks, and the packages that bring them.
left_out() {
  build/release/bin/accel-run env | sed -n 's/^\([a-z0-9]*\)  *absent: \(.*\)/\1: \2/p'
}

if [ $# -gt 0 ]; then
  train "$@"
else
  mkdir -p $out
  set -- --out $out/checkpoint --model $out/gpt --svg $out/loss.svg
  build/release/bin/accel-run env | grep -q '^sqlite *absent' || set -- "$@" --track $out/runs
  status=3 # of train_gpt.lua: there is no checkpoint that fits
  if [ -d $out/checkpoint ]; then
    say "Trained before: $out/checkpoint (delete it to start anew)"
    train "$@" --resume
  fi
  if [ $status -eq 3 ]; then
    say "Training for about two minutes; Ctrl-C saves, and the next run continues"
    train "$@" --on-existing beside
  fi
fi
[ $status -eq 0 ] || exit $status

if [ -f $out/gpt/config.json ]; then
  say "Try next (accel-run is build/release/bin/accel-run)"
  cat << END
  build/release/bin/accel-run generate $out/gpt "To be"
  build/release/bin/accel-run quantize $out/gpt $out/gpt-int8 --int8
  build/release/bin/accel-run ui $out/runs          # loss curves in a browser; Ctrl-C ends it
  build/release/bin/accel-run help guide            # the guides
  build/release/bin/accel-run examples/train_gpt.lua --help
  sh tests/run.sh                                   # build with tests and run them
END
fi
missing=$(left_out)
if [ -n "$missing" ]; then
  say "Left out of this build; to add a part, install its packages (sudo apt install ...) and run this again"
  printf '%s\n' "$missing" | sed 's/^/  /'
fi
