/* Temporary files, and those that killed processes have left behind. A name ends in an id: eight hex digits of this boot of this
 * machine, and eight that are drawn. Whoever made it holds a lock on it (flock), which ends with the process, so that here the lock alone
 * decides; what another boot or machine has made counts as left over after a day without a change. Where there are no locks nothing is. */
#ifndef ACI_FILE_LEFT_OVER_H
#define ACI_FILE_LEFT_OVER_H
#include <stdbool.h>

enum { ACI_TEMP_ID = 17, ACI_TEMP_BASE = 200 /* bytes of NAME at most: names end at 255 */ };
void aci_temp_id(char id[ACI_TEMP_ID]);
/* Locks what was just made at path and is open as fd. False: somebody took it for left over meanwhile; make another. */
bool aci_temp_hold(int fd, const char *path);
/* Removes the files NAME.tmp-<id> of path's folder that are left over: of any NAME those of this boot, of others those of path's. A process looks
 * once into a folder. */
void aci_temp_sweep_files(const char *path);

#endif
