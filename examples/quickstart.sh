#!/bin/sh
# From a fresh Debian or Ubuntu machine to sampled text, in one command: installs packages (as root or through
# sudo), builds into build/release, trains a small GPT on real text for about two minutes, plots the loss and
# samples.
#
#   sh examples/quickstart.sh [arguments of examples/train_gpt.lua]
#
# Run it again: installing and building find nothing to do.
set -eu
cd "$(dirname "$0")/.."
. tests/support/packages.sh

REQUIRED="$REQUIRED libdnnl-dev"
need_packages "$REQUIRED" "ninja-build"
build_preset release

say "Training: build/release/bin/accel-run examples/train_gpt.lua $*"
build/release/bin/accel-run examples/train_gpt.lua "$@"

say "Where things are"
cat << 'END'
  build/release/bin/accel-run        runs any script: accel-run script.lua
  examples/train_gpt.lua             what just ran; --help names its options
  stdlib/accel/models/gpt2.lua       the model
  README.md                          what else there is
  sh tests/run.sh                    builds with tests and runs them
END
