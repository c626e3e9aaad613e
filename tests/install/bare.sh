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
. tests/install/machine.sh
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

need_machines $names

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
    mkdir "$folder/$name/accel"
    git archive HEAD | tar -x -C "$folder/$name/accel"
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
