# Sourced by tests/run.sh and examples/quickstart.sh: packages of Debian and Ubuntu, and one way to configure
# and build. Everything is checked first, so that a second call does nothing.

# Width-bounded, one line per step, so that a reader of the log sees what happens to the machine.
say() { printf '\n== %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# For this machine's architecture: a machine for cross builds has packages of others as well, and dpkg-query prints all of them.
installed() {
  dpkg-query -W -f='${Status} ${Architecture}\n' "$1" 2> /dev/null | grep -q -x -e 'install ok installed all' \
    -e "install ok installed $(dpkg --print-architecture)"
}

missing_of() {
  missing=
  for package in "$@"; do installed "$package" || missing="$missing $package"; done
  printf '%s' "$missing"
}

# need_packages "<required>" "<optional>": installs what is missing, as root or through sudo. Without apt the
# tools may still be there under other names, so only a failing configure step would prove them absent: say
# what to install, go on.
need_packages() {
  if ! command -v apt-get > /dev/null || ! command -v dpkg-query > /dev/null; then
    if command -v cmake > /dev/null && command -v cc > /dev/null; then
      say "No apt here; if the build stops, install what these Debian packages hold: $1"
      return 0
    fi
    die "no apt here; install what these Debian packages hold, then run this again: $1"
  fi
  required=$(missing_of $1)
  optional=$(missing_of $2)
  if [ -z "$required$optional" ]; then
    say "Packages: all installed"
    return 0
  fi
  root=
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo > /dev/null; then
      root=sudo
    elif [ -z "$required" ]; then
      return 0
    else
      die "run this as root or with sudo installed; missing packages:$required"
    fi
  fi
  apt="$root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o APT::Update::Error-Mode=any"
  say "Packages: installing$required$optional"
  $apt update || say "apt-get update failed; trying with the lists that are there"
  $apt install -y --no-install-recommends $required $optional && return 0 # all at once takes half the time
  if [ -n "$required" ]; then
    $apt install -y --no-install-recommends $required || die "these packages could not be installed:$required"
  fi
  for package in $optional; do
    $apt install -y --no-install-recommends "$package" || say "going on without $package"
  done
}

# configure_preset <preset> [cmake arguments]: configures build/<preset>.
configure_preset() {
  preset=$1
  shift
  generator=
  if [ ! -f "build/$preset/CMakeCache.txt" ] && command -v ninja > /dev/null; then generator="-G Ninja"; fi
  say "Configuring build/$preset"
  cmake --preset "$preset" $generator "$@" || die "configuring failed; packages that are needed: $REQUIRED"
}

# build_targets <preset> [target...]: builds them, or everything, with all cores.
build_targets() {
  preset=$1
  shift
  say "Building build/$preset"
  [ $# -eq 0 ] || set -- --target "$@"
  cmake --build "build/$preset" --parallel "$(nproc 2> /dev/null || echo 2)" "$@" || die "the build failed"
}

# build_preset <preset> [cmake arguments]: configures build/<preset> and builds all of it.
build_preset() {
  configure_preset "$@"
  build_targets "$1"
}

# The packages of the libraries that are loaded on first use. A build without them lacks what they are for.
LIBRARIES=$(awk -F '[ ]*[|][ ]*' '/^[a-z]/ { print $3 }' host/base/libraries.txt | tr '\n' ' ')
REQUIRED="build-essential cmake pkg-config liblua5.4-dev lua-filesystem"
