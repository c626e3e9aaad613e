#!/bin/sh
# What the two libraries show and need: only public names are exported, the Lua module does not link Lua (its
# interpreter brings the symbols), the embedding library does, and neither reaches for what belongs to the program around
# them: its end, its signals, its locale, folder and environment, its standard streams.
#   symbols.sh <libaccel.so> <core.so> <archive of the same objects> <source tree>
set -eu
failed=0
say() { failed=1; echo "$1"; }

for library in "$1" "$2"; do
  odd=$(nm -D --defined-only "$library" | awk '{ print $3 }' |
    grep -v -E '^(ac_[a-z]|luaopen_accel|_init$|_fini$|__(asan|ubsan|tsan|odr_asan|start|stop)_)' || true)
  [ -z "$odd" ] || say "$library exports what is not public: $(echo "$odd" | head -20 | tr '\n' ' ')"
  nm -D --defined-only "$library" | grep -q ' luaopen_accel' || say "$library lacks luaopen_accel"
done
if readelf -d "$2" | grep NEEDED | grep -q lua; then say "$2 links Lua"; fi
readelf -d "$1" | grep NEEDED | grep -q lua || say "$1 does not link Lua"

archive=$3 src=$4
# needs <symbol|symbol...>: "object symbol" for every object that takes one of them from outside
needs() {
  pattern=$(echo "$1" | sed 's/|/\\|/g')
  nm -A --undefined-only "$archive" 2> /dev/null | sed -n "s/^.*:\([^:]*\): *U \($pattern\)\(@.*\)\{0,1\}\$/\1 \2/p"
}
# only <symbols> <object...>: these objects may need them, no other one
only() {
  symbols=$1
  shift
  allowed=" $* "
  odd=$(needs "$symbols" | while read -r object symbol; do
    case $allowed in *" $object "*) ;; *) printf '%s needs %s, ' "$object" "$symbol" ;; esac
  done)
  [ -z "$odd" ] || say "what is the program's own: $odd"
}
only 'exit|quick_exit|_Exit|atexit|at_quick_exit|on_exit|chdir|fchdir|umask|setenv|putenv|unsetenv|clearenv'
# SIGURG of a host that listens: ac_host_listen, asked for by the program.
only 'signal|sigaction' attach_stacks.c.o $(for object in lac_process lac_console lac_sandbox; do echo "$object.c.o"; done) \
  $(cd "$src/host/launch" && for file in *.c; do echo "$file.o"; done)
only 'bsd_signal|sysv_signal|sigset|alarm|setitimer|raise|rand|srand|fesetround|fesetenv|system|popen'
only 'stdin|stderr|printf|vprintf|puts|putchar|perror|psignal|__printf_chk|__vprintf_chk'
# An internal check that fails is an error (AC_CHECK): nothing of ours ends the process, not even in a trap.
none() {
  odd=$(nm -D --undefined-only "$1" | awk '{ print $2 }' | grep -E "^($2)(@|\$)" | tr '\n' ' ' || true)
  [ -z "$odd" ] || say "$1 can end the program around it: $odd"
}
for library in "$1" "$2"; do none "$library" 'abort|exit|_Exit|quick_exit|raise|__assert_fail'; done
# The terminal of a session that a script asks for: accel.repl; it gives back what it takes.
only 'setlocale|uselocale|stdout' lac_line.c.o
# Children that a script asks for: accel.launch and accel.process, those that run configurations, and the compiler of accel.compile.
only _exit $(cd "$src/host/launch" && for file in *.c; do echo "$file.o"; done) # between fork and exec
only 'fork|vfork|execve|execv|execvp|posix_spawn|sigprocmask' lac_process.c.o lac_console.c.o lac_sandbox.c.o fuse_cc.c.o \
  $(cd "$src/host/launch" && for file in *.c; do echo "$file.o"; done)
# Signals and exits by system call stand in these files only; each is for a child, for a thread that has a handler for it, or, in
# comm/watch.c, the signal 0, in comm/join.c SIGCHLD for the launcher, and in lac_keys.c the stop that Ctrl-Z at a prompt asks for.
calls='\b(kill|tgkill|pthread_kill|sigqueue|killpg) ?\(|__builtin_(trap|unreachable|abort)'
calls="$calls|SYS_(exit|exit_group|kill|tkill|tgkill|rt_sigqueueinfo|rt_tgsigqueueinfo|pidfd_send_signal)\\b"
places='host/(app|launch)/|host/comm/(watch|join)\.c:|bindings/[a-z]+/(attach_stacks|lac_keys|lac_attach|lac_process|lac_sandbox|sandbox_filter)\.c:'
odd=$(cd "$src" && grep -rnE "$calls" --include='*.[ch]' host bindings | grep -vE "^($places)" || true)
[ -z "$odd" ] || say "may end the own process: $odd"
n=$(nm -A --undefined-only "$archive" 2> /dev/null | grep -c ' U malloc') || true
[ "$n" -gt 10 ] || say "the archive $archive says nothing: $n objects call malloc"
[ $failed -eq 0 ] && echo "exports and needs are as they should be"
exit $failed
