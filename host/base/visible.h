/* Foreign text (names of files, runs and tensors, answers of servers) as a terminal may get it:
 * nothing in it moves the cursor, changes the direction of writing, or pretends to be another
 * line. */
#ifndef ACI_VISIBLE_H
#define ACI_VISIBLE_H
#include <stdbool.h>
#include <stddef.h>

/* Writes the text into out, at most cap - 1 bytes and a zero byte, and returns the bytes written.
 * Control characters, bytes that are not UTF-8, characters that change the direction, that separate
 * lines or that have no width appear as \x1b or \u202e. lines: newlines and tabs stay. Output is
 * cut at a whole character. out may be NULL if cap is 0. needed (or NULL): bytes of the whole. */
size_t aci_visible(char *out, size_t cap, const char *s, size_t n, bool lines, size_t *needed);
/* Whether the text is shown as it is. */
bool aci_is_visible(const char *s, size_t n, bool lines);

#endif
