/* Declarations shared by the files of accel.console: lac_console.c (Ctrl-C), lac_channel.c
 * (messages and waiting), lac_line.c (lines from the terminal) over line_api.c, lac_keys.c (single
 * keys), lac_ranks.c (the status of ranks). */
#ifndef LAC_CONSOLE_H
#define LAC_CONSOLE_H
#include <poll.h>

#include "bindings/core/lac.h"

enum { LAC_POLL_CHANNELS = 256 };

/* ---- lac_console.c ---- */
int64_t lac_console_now(void); /* ns of CLOCK_MONOTONIC. Any signal handler may call it */
/* Readable when Ctrl-C was pressed at the session's prompt. -1: S has no session. */
int lac_console_breaks(const lac_state *S);
/* Whether the process was stopped and continued (SIGCONT, which ends a wait) since the last
 * call. */
bool lac_console_continued(void);

/* ---- lac_channel.c ---- */
/* The event that ended a wait. */
typedef enum lac_event {
  LAC_EVENT_TIME,
  LAC_EVENT_BREAK,
  LAC_EVENT_READY,
  LAC_EVENT_INPUT
} lac_event;
/* Waits for one of: Ctrl-C (of the session), a channel of the list at idx (nil: none) with a whole
 * message or an end, input on descriptor 0 (input), the time limit. seconds < 0: no limit. deaf:
 * Ctrl-C is left for the next wait. *which: position in the list, from 1. */
lac_event lac_console_poll(lua_State *L, lac_state *S, int idx, bool input, bool deaf,
                           double seconds, int *which);
/* Pushes the event for Lua: "time", "break", or "ready" and the channel. Returns the number of
 * values. */
int lac_console_push(lua_State *L, lac_event event, int which);

#endif
