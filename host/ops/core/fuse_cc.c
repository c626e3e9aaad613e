/* Kernels in C text made into functions (fuse_code.h): compiled by the system's compiler into a
 * shared library in a folder of the user's own, under the name of a hash of text, flags, compiler
 * and CPU, and loaded. Another process that had the same text finds the library there. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "ops/core/fuse_code.h"

extern char **environ;

/* As ops are compiled: no rounding but those that are written. */
static const char *const FLAGS[] = {"-std=c11",        "-O3",
                                    "-march=native",   "-fPIC",
                                    "-shared",         "-ffp-contract=off",
                                    "-fno-math-errno", "-fno-trapping-math",
                                    "-fwrapv",         "-w"};
enum { N_FLAGS = sizeof FLAGS / sizeof FLAGS[0] };

typedef struct hash {
  uint64_t a, b;
} hash;
static void add(hash *h, const void *data, size_t n) { /* FNV-1a twice, from two beginnings */
  const unsigned char *p = data;
  for (size_t i = 0; i < n; i++) {
    h->a = (h->a ^ p[i]) * 0x100000001B3u;
    h->b = (h->b ^ p[i]) * 0x100000001B3u + (h->b >> 47);
  }
}

/* -march=native means another code on another CPU. */
static void add_cpu(hash *h) {
  char line[4096];
  FILE *f = fopen("/proc/cpuinfo", "re");
  if (f == NULL) return;
  for (int found = 0; found < 2 && fgets(line, sizeof line, f) != NULL;) {
    if (strncmp(line, "model name", 10) != 0 && strncmp(line, "flags", 5) != 0 &&
        strncmp(line, "Features", 8) != 0)
      continue;
    add(h, line, strlen(line));
    found++;
  }
  fclose(f);
}

/* The compiler's path, and its identity by size and time. False: there is none. */
static bool find_compiler(const char *name, char *path, size_t n, hash *h) {
  struct stat s;
  const char *list = strchr(name, '/') != NULL ? "" : getenv("PATH");
  if (list == NULL) return false;
  for (const char *p = list;; p++) {
    const size_t length = strcspn(p, ":");
    const int k = length == 0 ? snprintf(path, n, "%s", name)
                              : snprintf(path, n, "%.*s/%s", (int)length, p, name);
    if (k > 0 && (size_t)k < n && path[0] == '/' && access(path, X_OK) == 0 &&
        stat(path, &s) == 0 && S_ISREG(s.st_mode)) {
      add(h, path, strlen(path));
      add(h, &s.st_size, sizeof s.st_size);
      add(h, &s.st_mtime, sizeof s.st_mtime);
      return true;
    }
    p += length;
    if (*p == '\0') return false;
  }
}

/* Code is taken from places alone that nobody else can write to. */
static bool is_ours(const char *path, bool folder) {
  struct stat s;
  return lstat(path, &s) == 0 && (folder ? S_ISDIR(s.st_mode) : S_ISREG(s.st_mode)) &&
         s.st_uid == geteuid() && (s.st_mode & 022) == 0;
}

/* Makes the folder and its missing parents. */
static bool make_folder(char *path) {
  for (char *p = path + 1; *p != '\0'; p++) {
    if (*p != '/') continue;
    *p = '\0';
    mkdir(path, 0700);
    *p = '/';
  }
  mkdir(path, 0700);
  return is_ours(path, true);
}

static bool folder_of(const ac_params *p, char *path, size_t n) {
  const char *given = ac_params_str(p, "COMPILE_CACHE"), *cache = getenv("XDG_CACHE_HOME"),
             *home = getenv("HOME");
  int k = -1;
  if (given[0] != '\0') k = snprintf(path, n, "%s", given);
  else if (cache != NULL && cache[0] == '/') k = snprintf(path, n, "%s/accel/kernels", cache);
  else if (home != NULL && home[0] == '/') k = snprintf(path, n, "%s/.cache/accel/kernels", home);
  return k > 0 && (size_t)k < n && make_folder(path);
}

static bool write_file(const char *path, const char *text, size_t n) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  bool ok = true;
  for (size_t at = 0; at < n && ok;) {
    const ssize_t k = write(fd, text + at, n - at);
    if (k > 0) at += (size_t)k;
    else ok = k < 0 && errno == EINTR;
  }
  return close(fd) == 0 && ok;
}

/* ---- machine code of devices ---- */
bool aci_fuse_cache_path(const ac_params *p, const char *source, size_t n, const char *target,
                         char *path, size_t room) {
  char folder[1024];
  hash h = {0xCBF29CE484222325u, 0x9E3779B97F4A7C15u};
  if (!folder_of(p, folder, sizeof folder)) return false;
  add(&h, source, n);
  add(&h, target, strlen(target) + 1);
  const int k = snprintf(path, room, "%s/%016llx%016llx.bin", folder, (unsigned long long)h.a,
                         (unsigned long long)h.b);
  return k > 0 && (size_t)k < room;
}

/* The text before the code in its file: drivers ignore the end of their input. */
typedef struct code_head {
  char magic[8];
  uint64_t bytes;
  uint32_t crc, zero;
} code_head;
static code_head head_of(const void *code, size_t bytes) {
  return (code_head){"accelfc1", bytes, aci_crc32c(0, code, bytes), 0};
}

static bool read_all(int fd, void *p, size_t n) {
  size_t at = 0;
  for (ssize_t k = 1; at < n && k > 0; at += k > 0 ? (size_t)k : 0)
    k = read(fd, (char *)p + at, n - at);
  return at == n;
}

bool aci_fuse_cache_read(const char *path, void **code, size_t *bytes) {
  struct stat s;
  code_head head;
  *code = NULL;
  if (!is_ours(path, false)) return false;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  if (fstat(fd, &s) == 0 && s.st_size > (off_t)sizeof head && read_all(fd, &head, sizeof head)) {
    *bytes = (size_t)s.st_size - sizeof head;
    if ((*code = malloc(*bytes)) != NULL && read_all(fd, *code, *bytes)) {
      const code_head want = head_of(*code, *bytes);
      if (memcmp(&head, &want, sizeof want) == 0) {
        close(fd);
        return true;
      }
    }
  }
  close(fd);
  free(*code);
  *code = NULL;
  return false;
}

void aci_fuse_cache_write(const char *path, const void *code, size_t bytes) {
  static atomic_uint number;
  char to[1300];
  const code_head head = head_of(code, bytes);
  const int k =
      snprintf(to, sizeof to, "%s.%ld.%u", path, (long)getpid(), atomic_fetch_add(&number, 1));
  char *file = k <= 0 || (size_t)k >= sizeof to ? NULL : malloc(sizeof head + bytes);
  if (file == NULL) return;
  memcpy(file, &head, sizeof head);
  memcpy(file + sizeof head, code, bytes);
  if (!write_file(to, file, sizeof head + bytes) || rename(to, path) != 0) unlink(to);
  free(file);
}

/* ---- shared libraries for the CPU ---- */
/* The compiler's process. Its output is dropped: a text that it refuses runs as a chain. */
static bool run(const char *compiler, const char *from, const char *to) {
  char *argv[N_FLAGS + 8];
  int n = 0;
  argv[n++] = (char *)(uintptr_t)compiler;
  for (int i = 0; i < N_FLAGS; i++) argv[n++] = (char *)(uintptr_t)FLAGS[i];
  argv[n++] = (char *)"-o";
  argv[n++] = (char *)(uintptr_t)to;
  argv[n++] = (char *)(uintptr_t)from;
  argv[n++] = (char *)"-lm";
  argv[n] = NULL;
  posix_spawn_file_actions_t a;
  if (posix_spawn_file_actions_init(&a) != 0) return false;
  for (int fd = 0; fd < 3; fd++) posix_spawn_file_actions_addopen(&a, fd, "/dev/null", O_RDWR, 0);
  pid_t pid;
  const int rc = posix_spawn(&pid, compiler, &a, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&a);
  if (rc != 0) return false;
  int status = -1;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return access(to, R_OK) == 0; /* somebody else took the child's status */
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static aci_fuse_kernel load(const char *path, void **library) {
  if (!is_ours(path, false) || (*library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) == NULL)
    return NULL;
  void *symbol = dlsym(*library, "kernel");
  aci_fuse_kernel fn;
  memcpy(&fn, &symbol, sizeof fn);
  if (fn == NULL) dlclose(*library), *library = NULL;
  return fn;
}

aci_fuse_kernel aci_fuse_compile(const ac_params *p, const char *source, size_t n, void **library) {
  char compiler[1024], folder[1024], file[1200], from[1200], to[1200];
  hash h = {0xCBF29CE484222325u, 0x9E3779B97F4A7C15u};
  *library = NULL;
  const char *name = ac_params_str(p, "COMPILE_CC");
  if (name[0] == '\0' || strcmp(name, "off") == 0 ||
      !find_compiler(name, compiler, sizeof compiler, &h))
    return NULL;
  if (!folder_of(p, folder, sizeof folder)) return NULL;
  add(&h, source, n);
  for (int i = 0; i < N_FLAGS; i++) add(&h, FLAGS[i], strlen(FLAGS[i]) + 1);
  add_cpu(&h);
  const unsigned long long a = h.a, b = h.b;
  snprintf(file, sizeof file, "%s/%016llx%016llx.so", folder, a, b);
  aci_fuse_kernel fn = load(file, library);
  if (fn != NULL) return fn;
  static atomic_uint number; /* threads of this process may make the same one */
  const unsigned mine = atomic_fetch_add(&number, 1);
  snprintf(from, sizeof from, "%s/%016llx%016llx.%ld.%u.c", folder, a, b, (long)getpid(), mine);
  snprintf(to, sizeof to, "%s/%016llx%016llx.%ld.%u.so", folder, a, b, (long)getpid(), mine);
  unlink(from);
  const bool made = write_file(from, source, n) && run(compiler, from, to) &&
                    chmod(to, 0600) == 0 && rename(to, file) == 0;
  unlink(from);
  if (!made) {
    unlink(to);
    ac_log_write(AC_LOG_DEBUG, "compile", "%s made no kernel in %s", compiler, folder);
    return NULL;
  }
  return load(file, library);
}
