/* The common part of libedit and readline, loaded when the first prompt needs it. For
 * lac_line.c. */
#ifndef LAC_LINE_API_H
#define LAC_LINE_API_H

/* Their functions and variables. */
typedef struct lac_line_api {
  const char *name;
  void (*install)(const char *prompt, void (*on_line)(char *));
  void (*remove_handler)(void);
  void (*read_char)(void);
  void (*update)(void);
  int (*on_new_line)(void);
  int (*set_prompt)(const char *);
  void (*add_history)(const char *);
  void (*stifle)(int);
  char **(*matches)(const char *, char *(*)(const char *, int));
  char **(**attempted)(const char *, int, int);
  int (*bind)(const char *line); /* NULL: it has none */
  int *attempted_over, *append, *catch_signals, *catch_winch, *point;
  char **line;
  const char **breaks, **basic_breaks;
} lac_line_api;

/* The libraries by preference: 0 .. LAC_LINE_LIBRARIES - 1. */
enum { LAC_LINE_LIBRARIES = 2 };
const char *lac_line_name(int i); /* "libedit" */
/* Loads it. NULL: it is not there, or cannot be used in this process. */
const lac_line_api *lac_line_load(int i);

#endif
