/* What the files of accel.console share: lac_console.c (Ctrl-C), lac_channel.c (messages and waiting), lac_line.c (lines
 * from the terminal) over line_api.c, lac_keys.c (single keys), lac_ranks.c (the status of ranks). */
#ifndef LAC_CONSOLE_H
#define LAC_CONSOLE_H
#include <poll.h>

#include "core/lac.h"

enum { LAC_POLL_CHANNELS = 256 };

/* ---- lac_console.c ---- */
int64_t lac_console_now(void); /* ns of CLOCK_MONOTONIC; any signal handler may ask */
/* Readable when Ctrl-C was pressed at the session's prompt; -1: S has no session. */
int lac_console_breaks(const lac_state *S);
/* Whether the process was stopped and goes on (SIGCONT, which ends a wait) since it was last asked. */
bool lac_console_continued(void);

/* ---- lac_channel.c ---- */
/* What a wait ended with. */
typedef enum lac_event { LAC_EVENT_TIME, LAC_EVENT_BREAK, LAC_EVENT_READY, LAC_EVENT_INPUT } lac_event;
/* Waits for Ctrl-C (of the session), for a channel of the list at idx (nil: none) with a whole message or an end, for
 * input on descriptor 0 (input), or until the clock says so; seconds < 0: for ever. deaf: Ctrl-C is left for the next wait. *which: of the list,
 * from 1. */
lac_event lac_console_poll(lua_State *L, lac_state *S, int idx, bool input, bool deaf, double seconds, int *which);
/* Pushes the event as Lua sees it: "time"; "break"; "ready", channel. Returns how many. */
int lac_console_push(lua_State *L, lac_event event, int which);

#endif
