/* Temporary files, including those left by killed processes. A name ends in an id: eight hex digits
 * of this boot of this machine, and eight that are drawn. The creator holds a lock on it (flock),
 * which ends with the process. So on this boot the lock alone decides. A file of another boot or
 * machine counts as left over after a day without a change. Without locks, no file counts as left
 * over. Files of a set (set.h) are left over when the note of the set is neither locked nor in
 * place. */
#ifndef ACI_FILE_LEFT_OVER_H
#define ACI_FILE_LEFT_OVER_H
#include <stdbool.h>

enum { ACI_TEMP_ID = 17, ACI_TEMP_BASE = 200 /* bytes of NAME at most: names end at 255 */ };
void aci_temp_id(char id[ACI_TEMP_ID]);
/* Is this the name of a file of a set, NAME.<k>.set-<id>? Users' own names may well end in hex
 * digits. */
bool aci_temp_of_set(const char *name);
/* Locks the new file at path, open as fd. False: another process took it for left over meanwhile.
 * Make another. */
bool aci_temp_hold(int fd, const char *path);
/* Removes the left-over files NAME.tmp-<id> of path's folder: of this boot for any NAME, of other
 * boots only for path's NAME. A process sweeps a folder once, unless again is set. */
void aci_temp_sweep_files(const char *path, bool again);

#endif
