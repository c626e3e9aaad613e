# Sourced by tests that need a machine which has nothing: Debian's minbase in a folder, entered by chroot in namespaces of its own, so that
# mounts and processes end with it, however it ends. The caller sets: folder (where the machines and logs are), cache (keeps packages for
# the next run, or empty), mirror (of Debian, or empty: what this machine's apt uses).

PATH=$PATH:/usr/sbin:/sbin
skip() { echo "skipped: $*"; exit 77; }

# need_machines NAME...: ends the test with a reason (77) if this machine cannot make them.
need_machines() {
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
  for name in "$@"; do
    /usr/lib/apt/apt-helper download-file "${mirror%/}/dists/$name/Release" "$folder/Release" > /dev/null 2>&1 ||
      skip "$mirror cannot be reached, or has no $name"
  done
}

# make_machine NAME: a fresh machine in $folder/NAME. It knows this one's proxy and name servers, and no host by name.
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
