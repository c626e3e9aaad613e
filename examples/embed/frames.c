/* A program with a loop of its own, as a game, a GUI or an instrument has: each frame draws, and gives the rest of its time to a script that
 * trains. The script knows nothing of frames: ac_host_step runs it until its next optimizer step or until the time is over. Keys, here the
 * frame number, can change the script's tables between steps, and --stop N ends it in the middle, as a closed window would.
 *
 *   frames frames.lua [--stop N]
 *
 * glib.c does this in GLib's main loop. With libuv, call frame() from a uv_timer_t. */
#include <accel/accel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FRAME_MS 16
#define DRAW_MS 2

typedef struct program {
  ac_host *host;
  int frame, steps, pauses;
  double loss; /* as the script reports it */
} program;

static double now_ms(void) {
  struct timespec t;
  timespec_get(&t, TIME_UTC);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* app.report(loss), for the script. */
static ac_status report(void *user, ac_ctx *c, int n, const ac_host_value *args, int max_results, ac_host_value *results, int *n_results,
                        ac_err *e) {
  program *p = user;
  (void)c, (void)max_results, (void)results, (void)n_results;
  if (n != 1 || args[0].type != AC_HOST_NUMBER) return AC_FAIL(e, INVALID, "expected the loss, a number");
  p->loss = args[0].n;
  return AC_OK;
}

/* The output of the script is a line of the program's window. */
static void say(void *user, ac_host *h, ac_host_stream stream, const char *text, size_t len) {
  (void)user, (void)h, (void)stream, (void)len;
  printf("script: %s", text);
}

/* Draws, and trains for the rest of the frame. Returns the state of the script. */
static ac_status frame(program *p, ac_host_progress *progress, ac_err *e) {
  const double end = now_ms() + FRAME_MS - DRAW_MS;
  ac_status st = AC_OK;
  p->frame++;
  do {
    const double left = end - now_ms();
    if (left <= 0) break;
    st = ac_host_step(p->host, left / 1e3, progress, e);
    p->steps += st == AC_OK && *progress == AC_HOST_AT_STEP;
    p->pauses += st == AC_OK && *progress == AC_HOST_PAUSED;
  } while (st == AC_OK && *progress != AC_HOST_ENDED);
  return st;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: frames frames.lua [--stop N]\n");
    return 2;
  }
  const int last = argc > 3 && strcmp(argv[2], "--stop") == 0 ? atoi(argv[3]) : 0;
  program p = {.loss = 0};
  ac_err e;
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  ac_host_progress progress = AC_HOST_PAUSED;
  o.output = say;
  ac_status st = ac_host_open(&o, &p.host, &e);
  if (st == AC_OK) st = ac_host_register(p.host, "app.report", report, &p, &e);
  if (st == AC_OK) st = ac_host_start_file(p.host, argv[1], 0, NULL, &e);
  while (st == AC_OK && progress != AC_HOST_ENDED && (last == 0 || p.frame < last)) st = frame(&p, &progress, &e);
  if (st != AC_OK) fprintf(stderr, "%s: %s\n", ac_status_name(st), e.msg);
  else printf("%d frames, %d optimizer steps, loss %.4f%s\n", p.frame, p.steps, p.loss, progress == AC_HOST_ENDED ? "" : ", stopped");
  ac_host_stop(p.host); /* nothing if it has ended */
  ac_host_close(p.host);
  return st == AC_OK ? 0 : 1;
}
