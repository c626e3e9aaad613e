/* Files left by killed processes. See left_over.h. Called by io.c. */
#include "file/left_over.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base_impl.h"
#include "base/crc32c.h"
#include "base/json.h"
#include "file/set.h"

enum { DIGITS = ACI_TEMP_ID - 1, BOOT_DIGITS = 8, FOREIGN_SECONDS = 24 * 3600, FOLDERS = 64 };
static const char MARK[] = ".tmp-"; /* as long as ACI_SET_MARK */

/* Eight digits that identify the current boot. Zeros: unknown. */
static void boot_digits(char digits[BOOT_DIGITS + 1]) {
  char text[64];
  ssize_t n = -1;
  int fd;
  ACI_AGAIN(fd, open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (fd >= 0) {
    ACI_AGAIN(n, read(fd, text, sizeof text));
    close(fd);
  }
  snprintf(digits, BOOT_DIGITS + 1, "%08x", n > 0 ? (unsigned)aci_crc32c(0, text, (size_t)n) : 0);
}

void aci_temp_id(char id[ACI_TEMP_ID]) {
  boot_digits(id);
  snprintf(id + BOOT_DIGITS, ACI_TEMP_ID - BOOT_DIGITS, "%08x", (unsigned)aci_hash_key());
}

bool aci_temp_hold(int fd, const char *path) {
  struct stat sb;
  int rc;
  ACI_AGAIN(rc, flock(fd, LOCK_EX | LOCK_NB));
  if (rc != 0) return errno != EWOULDBLOCK; /* no locks here, or a sweeper has it and removes it */
  return lstat(path, &sb) == 0;
}

/* Removes name in the folder `at` when it is a file whose maker has ended, and which is of this
 * boot (ours) or old. */
static void consider(int at, const char *name, bool ours) {
  struct stat sb;
  int fd, rc = -1;
  ACI_AGAIN(fd, openat(at, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd < 0) return;
  if (fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode) &&
      (ours || difftime(time(NULL), sb.st_mtime) > FOREIGN_SECONDS))
    ACI_AGAIN(rc, flock(fd, LOCK_EX | LOCK_NB));
  if (rc == 0) unlinkat(at, name, 0);
  close(fd);
}

/* Does a process live that may still name the files of this set? Its note is locked while it is
 * made. Once the note is in place whoever completes the switch decides, and when neither is there
 * nobody will. */
static bool set_lives(int at, const char *id) {
  char note[sizeof ACI_SET_NOTE + sizeof MARK + ACI_TEMP_ID];
  struct stat sb;
  int fd, rc = -1;
  snprintf(note, sizeof note, ACI_SET_NOTE "%s%s", MARK, id);
  ACI_AGAIN(fd, openat(at, note, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd < 0 && errno != ENOENT) return true;
  if (fd >= 0) ACI_AGAIN(rc, flock(fd, LOCK_EX | LOCK_NB));
  if (fd >= 0) close(fd);
  if (fd >= 0 && rc != 0) return true;
  /* also when the note has both names, if a kill came between link and unlink (aci_rename_new) */
  return fstatat(at, ACI_SET_NOTE, &sb, AT_SYMLINK_NOFOLLOW) == 0;
}

static void consider_of_set(int at, const char *name, const char *id, bool ours) {
  struct stat sb;
  if (fstatat(at, name, &sb, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(sb.st_mode)) return;
  if ((ours || difftime(time(NULL), sb.st_mtime) > FOREIGN_SECONDS) && !set_lives(at, id))
    unlinkat(at, name, 0);
}

/* The place of the id in a name that ends in one, else 0. */
static size_t id_at(const char *name) {
  const size_t n = strlen(name);
  return n > DIGITS && strspn(name + n - DIGITS, "0123456789abcdef") == DIGITS ? n - DIGITS : 0;
}

bool aci_temp_of_set(const char *name) {
  const size_t id = id_at(name), mark = sizeof ACI_SET_MARK - 1;
  if (id <= mark || memcmp(name + id - mark, ACI_SET_MARK, mark) != 0) return false;
  size_t at = id - mark;
  while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') at--;
  return at < id - mark && at > 1 && name[at - 1] == '.';
}

void aci_temp_sweep_files(const char *path, bool again) {
  static _Atomic uint64_t seen[FOLDERS]; /* last sweep, by folder */
  char boot[BOOT_DIGITS + 1];
  struct stat sb;
  const char *slash = strrchr(path, '/'), *base = slash == NULL ? path : slash + 1;
  char *folder = slash == NULL ? strdup(".") : strndup(path, (size_t)(base - path));
  if (folder == NULL) return;
  const bool known = stat(folder, &sb) == 0;
  const uint64_t key = known ? ((uint64_t)sb.st_dev << 40 ^ (uint64_t)sb.st_ino) + 1 : 0;
  DIR *d = known && (atomic_exchange(&seen[key % FOLDERS], key) != key || again) ? opendir(folder)
                                                                                 : NULL;
  free(folder);
  if (d == NULL) return;
  const size_t length = strlen(base);
  boot_digits(boot);
  for (struct dirent *x; (x = readdir(d)) != NULL;) {
    const size_t id = id_at(x->d_name), n = sizeof MARK - 1;
    if (id <= n) continue;
    const bool ours = memcmp(x->d_name + id, boot, BOOT_DIGITS) == 0;
    if (aci_temp_of_set(x->d_name)) consider_of_set(dirfd(d), x->d_name, x->d_name + id, ours);
    if (memcmp(x->d_name + id - n, MARK, n) != 0) continue;
    const bool same = id - n == (length < ACI_TEMP_BASE ? length : ACI_TEMP_BASE) &&
                      memcmp(x->d_name, base, id - n) == 0;
    if (ours || same) consider(dirfd(d), x->d_name, ours);
  }
  closedir(d);
}
