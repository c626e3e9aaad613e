#!/bin/sh
# Run by packages.sh in a bare Debian, in /accel: installs the packages in debs/, uses them, removes them, and compares the machine with
# the one before.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
step() { echo "-- $*"; }
fail() { echo "$*"; exit 1; }
quietly() { "$@" > /tmp/log 2>&1 || { tail -30 /tmp/log; fail "$*"; }; }
apt() { quietly apt-get -q -o Dpkg::Use-Pty=0 "$@"; }

# All files but the package manager's own and caches.
state() {
  find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /accel -o -path /var/cache -o -path /var/log -o -path /var/lib/apt \
    -o -path /var/lib/dpkg -o -path /etc/ld.so.cache -o -path /run \) -prune -o -print | LC_ALL=C sort
  dpkg-query -W -f '${Package} ${Status}\n'
}

step "tools that are not ours: a compiler, Lua, man"
apt update
apt install -y --no-install-recommends gcc libc6-dev pkg-config lua5.4 man-db bash
# Caches of man and the fonts of libraries come into being at their first update.
state > /tmp/before

step "install"
apt install -y ./debs/*.deb
packages=$(for deb in debs/*.deb; do dpkg-deb -f "$deb" Package; done)
cd /tmp

step "accel-run"
cat > train.lua << 'END'
-- y = 2 x + 1 by gradient descent: a closed form to compare with
local accel = require "accel"
local nn, optim = require "accel.nn", require "accel.optim"
local model = nn.Linear(1, 1)
local optimizer = optim.SGD(model:parameters(), { lr = 0.1 })
local x = accel.tensor { { -1.0 }, { 0.0 }, { 1.0 }, { 2.0 } }
local y = x * 2 + 1
for _ = 1, 300 do
  optimizer:zero_grad()
  nn.functional.mse_loss(model(x), y):backward()
  optimizer:step()
end
assert(math.abs(model.weight:item() - 2) < 1e-3 and math.abs(model.bias:item() - 1) < 1e-3)
print "trained"
END
[ "$(accel-run train.lua)" = trained ] || fail "the script fails"
[ "$(accel-run --num_processes 2 train.lua | grep -c trained)" -ge 1 ] || fail "two ranks fail"
accel-run env > env
# MPI and CUDA are packages of their own.
! grep ' absent' env | grep -v -e '^mpi ' -e '^cuda ' || fail "the recommended packages do not bring what is above"

step "a C program, by pkg-config"
gcc -std=c11 /accel/consumer.c -o consumer $(pkg-config --cflags --libs accel)
./consumer
readelf -d consumer | grep NEEDED | grep -q 'libaccel\.so\.' || fail "the program does not name the library by its soname"
pkg-config --exists accel-lua || fail "pkg-config does not find accel-lua"

step "stock Lua"
lua5.4 /accel/stock.lua

step "manual pages, completion, documentation"
man -P cat accel-run > page 2>&1 && grep -q 'ACCEL-RUN(1)\|accel-run(1)' page || fail "no manual page: $(head -3 page)"
man -w accel-run-doctor > /dev/null || fail "commands have no manual page"
bash -c '. /usr/share/bash-completion/completions/accel-run && complete -p accel-run' > /dev/null || fail "no completion for bash"
[ -s /usr/share/zsh/vendor-completions/_accel-run ] || fail "no completion for zsh"
[ -s /usr/share/fish/vendor_completions.d/accel-run.fish ] || fail "no completion for fish"
accel-run help guide start | grep -q . || fail "no guides"
for file in reference/html/index.html examples/train_gpt.lua README.md; do
  [ -s "/usr/share/doc/accel/$file" ] || fail "no /usr/share/doc/accel/$file"
done
rm -f train.lua env consumer page

step "remove"
apt purge -y $packages
apt autoremove -y --purge
state > /tmp/after
diff /tmp/before /tmp/after || fail "< was there before the installation, > is there after the removal"
echo "installed, used and removed: $(echo $packages)"
