/* Files of one folder that switch together: a model's shards, index and configuration, or both
 * files of an indexed data set. Called by the bindings (accel.util.writer). Each file is written
 * under a temporary name next to its target and brought to disk. The commit then writes a note,
 * FOLDER/.accel-set, which lists the renames and removals that are left. The note is the moment of
 * the switch: before it the folder holds the old files, and after it any process that writes here
 * or calls aci_set_recover completes the switch. In a sticky folder such as /tmp a note of another
 * user does not count. The note stays locked while its process lives, so that others wait for it.
 * Names are put in place in the order of aci_set_add and removed last, so that a reader that knows
 * no notes finds the old files under an old index when the index comes last.
 *
 * NAME.<k>.set-<id> is file k of the set <id>, and .accel-set.tmp-<id> its note, locked from the
 * start (left_over.h). */
#ifndef ACI_FILE_SET_H
#define ACI_FILE_SET_H
#include <sys/stat.h>

#include "file/io.h"

#define ACI_SET_NOTE ".accel-set"
#define ACI_SET_MARK ".set-"

typedef struct aci_set aci_set;
/* Makes the folder. mode: permissions of all files, 0: the permissions of the replaced files, or of
 * the umask. */
ac_status aci_set_open(const char *folder, unsigned mode, aci_set **out, ac_err *e);
/* Opens a file of the set. Write, commit or abort it like any aci_atomic_file. Its address stays
 * the same while it is open. A symbolic link in its place is replaced, not followed. */
ac_status aci_set_add(aci_set *s, const char *name, uint64_t expected_bytes, aci_atomic_file *f,
                      ac_err *e);
/* A file that the new set does not have. It may be missing. */
ac_status aci_set_remove(aci_set *s, const char *name, ac_err *e);
/* Switches. The set is closed afterwards, also on failure. Free it with aci_set_free. STATE while
 * one of its files is open. */
ac_status aci_set_commit(aci_set *s, ac_err *e);
const char *aci_set_folder(const aci_set *s);
void aci_set_free(aci_set *s); /* drops uncommitted files. NULL is fine */

/* Completes the switch that a killed process began in this folder, or waits for a live one. A
 * damaged note is renamed after a warning. */
ac_status aci_set_recover(const char *folder, ac_err *e);
ac_status aci_set_recover_beside(const char *path, ac_err *e);

/* ---- between set.c and set_note.c ---- */
#define ACI_SET_FIRST "accel set 1\n"
#define ACI_SET_LAST "end\n"
char *aci_set_join(const char *folder, const char *name); /* malloc'ed, NULL: no memory */
/* may a note name this? One component, printable */
bool aci_set_fine(const char *name);
/* Carries out our own note, which is in place, and removes it. Changes text. */
ac_status aci_set_apply(const char *folder, char *text, size_t n, ac_err *e);

/* ---- between io.c and set.c ---- */
void aci_set_written(aci_atomic_file *f); /* takes tmp */
void aci_set_given_up(aci_atomic_file *f);
ac_status aci_atomic_refuse(const char *path, const struct stat *was, ac_err *e);
/* Permissions and owner of the file that this one replaces (NULL: none), or mode. */
ac_status aci_atomic_inherit(aci_atomic_file *f, const char *path, const struct stat *was,
                             unsigned mode, ac_err *e);

#endif
