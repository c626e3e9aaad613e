#!/bin/sh
# The two commands of the README on a machine that has nothing: Debian's minbase in a folder, the committed tree beside it, and
#   sh examples/quickstart.sh      from packages to sampled text
#   sh tests/run.sh                from packages to the last test
# Prints a table of results and times. Run by hand, as root; takes as long as the two commands, and 2 to 4 GB.
#
#   sh tests/install/bare.sh [options] [bookworm|trixie ...]     default: both
#     --only quickstart|tests    one of the commands
#     --folder DIR               where the machines and the logs lie (default: build/bare)
#     --cache DIR                keeps the packages for the next run
#     --mirror URL               of Debian (default: what this machine's apt uses)
#     --keep                     leaves the machines there: chroot DIR/<name>
#
# Status 1: a command failed; 77: nothing was tried, for the reason printed. All runs in namespaces of its own: mounts and processes end
# with it, however it ends.
set -eu
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin
skip() { echo "skipped: $*"; exit 77; }
usage() { sed -n '/^#   sh tests\/install/,/^#$/s/^# \{0,1\}//p' "$0"; exit "$1"; }

only="quickstart tests" folder=$PWD/build/bare cache='' mirror='' keep='' names=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage 0 ;;
    --keep) keep=yes ;;
    --only | --folder | --cache | --mirror)
      [ $# -gt 1 ] || usage 2
      case $1 in
        --only) only=$2 ;;
        --folder) folder=$(realpath -m "$2") ;;
        --cache) cache=$(realpath -m "$2") ;;
        --mirror) mirror=$2 ;;
      esac
      shift
      ;;
    -*) usage 2 >&2 ;;
    *) names="$names $1" ;;
  esac
  shift
done
names=${names:-bookworm trixie}

[ "$(id -u)" = 0 ] || skip "only root may make a machine in a folder"
for tool in debootstrap unshare chroot git; do
  command -v $tool > /dev/null || skip "$tool is not installed (Debian and Ubuntu: debootstrap, git)"
done
unshare --mount --pid --fork mount -t tmpfs none /mnt 2> /dev/null || skip "no mounts are allowed here"
if [ -z "$mirror" ]; then
  mirror=$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2> /dev/null |
    awk '$1 == "Debian" && $2 == "main" && $3 !~ /security/ { print $3; exit }')
  [ -n "$mirror" ] || skip "apt here names no mirror of Debian; --mirror URL does"
fi
mkdir -p "$folder"
for name in $names; do
  /usr/lib/apt/apt-helper download-file "${mirror%/}/dists/$name/Release" "$folder/Release" > /dev/null 2>&1 ||
    skip "$mirror cannot be reached, or has no $name"
done

# make NAME: a fresh machine in $folder/NAME. It knows this one's proxy and name servers, and no host by name.
make_machine() {
  root=$folder/$1
  rm -rf "$root"
  [ -z "$cache" ] || mkdir -p "$cache/$1"
  debootstrap --variant=minbase ${cache:+--cache-dir="$cache/$1"} "$1" "$root" "$mirror" > "$folder/$1-debootstrap.log" 2>&1 || {
    tail -20 "$folder/$1-debootstrap.log"
    return 1
  }
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  apt-config dump | grep -i '^Acquire::[a-z]*::Proxy ' > "$root/etc/apt/apt.conf.d/90proxy" || true
  if [ -n "$cache" ]; then
    echo 'APT::Keep-Downloaded-Packages "true";' > "$root/etc/apt/apt.conf.d/91keep"
    cp "$cache/$1/"*.deb "$root/var/cache/apt/archives/" 2> /dev/null || true
  fi
  mkdir "$root/accel"
  git archive HEAD | tar -x -C "$root/accel"
}

# inside NAME COMMAND...: as root of that machine, in its /accel. In the background, where Ctrl-C would be ignored for good.
inside() {
  root=$folder/$1
  shift
  unshare --mount --pid --fork --kill-child sh -ec '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount --rbind /dev "$root/dev"
    exec chroot "$root" env -i --default-signal=INT,QUIT HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} ${TERM:+TERM="$TERM"} \
      sh -c "cd /accel && exec \"\$@\"" sh "$@"' sh "$root" "$@" < /dev/null &
  echo $! > "$folder/pid"
  wait $!
}

# Every line with the second in which it came.
stamped() { while IFS= read -r line; do printf '%s %s\n' "$(date +%s)" "$line"; done; }

# row NAME WHAT STATUS LOG: what the log says about times. Downloads are as long as apt says that it fetched.
row() {
  awk -v name="$1" -v what="$2" -v status="$3" '
    function seconds(text,   part, n) {
      n = split(text, part, " ")
      return part[1] * (part[1] ~ /min/ ? 60 : 1) + (n > 1 ? part[2] : 0)
    }
    { at = $1; sub(/^[0-9]+ /, "") }
    NR == 1 { start = at }
    /^Fetched .* in / { text = $0; sub(/.* in /, "", text); sub(/ \(.*/, "", text); fetched += seconds(text) }
    /^== Configuring/ { configure = at }
    /^== Building/ { building = at }
    /^== (Training|Testing)/ && !built { built = at }
    /^trigram baseline/ { first = at }
    /tests passed|tests failed/ { tests = $0 }
    END {
      printf "%-9s %-10s %-7s %8d %9d %9d %7d", name, what, status == 0 ? "passed" : "FAILED", fetched, configure - start - fetched,
        building - configure, built - building
      printf " %10s %7d  %s\n", first ? first - start - fetched : "-", at - start, tests
    }' "$4"
}

# shellcheck disable=SC2154 # status
end() {
  status=$?
  trap - EXIT INT TERM HUP
  [ ! -s "$folder/pid" ] || kill -KILL "$(cat "$folder/pid")" 2> /dev/null && wait
  [ -n "$keep" ] || for name in $names; do rm -rf "${folder:?}/$name"; done
  exit "$status"
}
trap end EXIT
trap 'exit 130' INT TERM HUP

table=$folder/table
printf '%-9s %-10s %-7s %8s %9s %9s %7s %10s %7s\n' debian command result download packages configure build first-step all > "$table"
failed=0
for name in $names; do
  for what in $only; do
    printf '\n== %s: %s\n' "$name" "$what"
    make_machine "$name" || exit 1
    case $what in
      quickstart) command=examples/quickstart.sh ;;
      tests) command=tests/run.sh ;;
      *) usage 2 >&2 ;;
    esac
    log=$folder/$name-$what.log
    { inside "$name" sh "$command" 2>&1 && rc=0 || rc=$?; echo "$rc" > "$folder/status"; } | stamped > "$log" &
    wait # which a signal ends, as it would not end a pipeline
    rm -f "$folder/pid"
    rc=$(cat "$folder/status")
    [ -z "$cache" ] || cp -u "$folder/$name/var/cache/apt/archives/"*.deb "$cache/$name/" 2> /dev/null || true
    if [ "$rc" != 0 ]; then
      failed=1
      tail -40 "$log" | cut -d' ' -f2-
    fi
    row "$name" "$what" "$rc" "$log" >> "$table"
    tail -1 "$table"
  done
done
printf '\n'
cat "$table"
echo "seconds; download is not in first-step; the logs lie in $folder"
exit $failed
