#!/bin/sh
# From a fresh Debian or Ubuntu machine to sampled text, in one command: installs packages (as root or through
# sudo), builds into build/release, trains a small GPT on real text for about two minutes, plots the loss and
# samples.
#
#   sh examples/quickstart.sh [arguments of examples/train_gpt.lua]
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

say "This installs what is missing, builds accel into build/release (a minute or two), trains a small GPT and lets it write"
REQUIRED="$REQUIRED libdnnl-dev"
need_packages "$REQUIRED" "ninja-build libyaml-dev libsqlite3-dev"
build_preset release

out=build/quickstart
train() {
  say "build/release/bin/accel-run examples/train_gpt.lua $*"
  status=0
  build/release/bin/accel-run examples/train_gpt.lua "$@" || status=$?
}

if [ $# -gt 0 ]; then
  train "$@"
else
  mkdir -p $out
  status=3 # of train_gpt.lua: there is no checkpoint that fits
  if [ -d $out/gpt ]; then
    say "Trained before: $out/gpt (delete it to start anew)"
    train --out $out/gpt --svg $out/loss.svg --resume
  fi
  if [ $status -eq 3 ]; then
    say "Training for about two minutes; Ctrl-C saves, and the next run goes on from there"
    train --out $out/gpt --svg $out/loss.svg
  fi
fi
[ $status -eq 0 ] || exit $status

say "Where things are"
cat << END
  build/release/bin/accel-run        runs any script: accel-run script.lua
  examples/train_gpt.lua             what just ran; --help names its options
  $out/                  the model and its loss curve, when no arguments were given
  stdlib/accel/models/gpt2.lua       what the model is made of
  accel-run help guide               what else there is: guides, and README.md
  sh tests/run.sh                    builds with tests and runs them
END
