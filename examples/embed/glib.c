/* A program with GLib's main loop, as GTK programs and services have: an idle source gives the spare time to a script that trains, and a
 * timer of the program ticks meanwhile. The script is frames.lua, which knows nothing of either.
 *
 *   glib frames.lua [--stop TICKS]
 *
 * An idle source runs whenever no other source is ready. It returns after one step or 5 ms, so that a click or a message never waits longer.
 * A single op is not cut: its time comes on top. */
#include <accel/accel.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 10
#define IDLE_SECONDS 0.005

typedef struct program {
  GMainLoop *loop;
  ac_host *host;
  ac_status status;
  ac_err error;
  bool ended;
  int ticks, last_tick; /* last_tick: stop there. 0: run to the end */
  int steps, steps_at_tick, ticks_between_steps;
  double loss;
} program;

/* app.report(loss), for the script. */
static ac_status report(void *user, ac_ctx *c, int n, const ac_host_value *args, int max_results, ac_host_value *results, int *n_results,
                        ac_err *e) {
  program *p = user;
  (void)c, (void)max_results, (void)results, (void)n_results;
  if (n != 1 || args[0].type != AC_HOST_NUMBER) return AC_FAIL(e, INVALID, "expected the loss, a number");
  p->loss = args[0].n;
  return AC_OK;
}

static void say(void *user, ac_host *h, ac_host_stream stream, const char *text, size_t len) {
  (void)user, (void)h, (void)stream, (void)len;
  printf("script: %s", text);
}

/* The idle source: the script's turn. */
static gboolean train(gpointer user) {
  program *p = user;
  ac_host_progress progress = AC_HOST_PAUSED;
  p->status = ac_host_step(p->host, IDLE_SECONDS, &progress, &p->error);
  if (p->status == AC_OK && progress == AC_HOST_AT_STEP) p->steps++;
  p->ended = p->status != AC_OK || progress == AC_HOST_ENDED;
  if (!p->ended) return G_SOURCE_CONTINUE;
  g_main_loop_quit(p->loop);
  return G_SOURCE_REMOVE;
}

/* The program's own work, here a counter. */
static gboolean tick(gpointer user) {
  program *p = user;
  p->ticks++;
  if (p->steps > p->steps_at_tick) p->ticks_between_steps++;
  p->steps_at_tick = p->steps;
  if (p->ticks == p->last_tick) g_main_loop_quit(p->loop);
  return G_SOURCE_CONTINUE;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: glib frames.lua [--stop TICKS]\n");
    return 2;
  }
  program p = {.last_tick = argc > 3 && strcmp(argv[2], "--stop") == 0 ? atoi(argv[3]) : 0};
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  o.output = say;
  p.loop = g_main_loop_new(NULL, FALSE);
  p.status = ac_host_open(&o, &p.host, &p.error);
  if (p.status == AC_OK) p.status = ac_host_register(p.host, "app.report", report, &p, &p.error);
  if (p.status == AC_OK) p.status = ac_host_start_file(p.host, argv[1], 0, NULL, &p.error);
  if (p.status == AC_OK) {
    const guint idle = g_idle_add(train, &p), timer = g_timeout_add(TICK_MS, tick, &p);
    g_main_loop_run(p.loop);
    if (!p.ended) g_source_remove(idle);
    g_source_remove(timer);
  }
  if (p.status != AC_OK) fprintf(stderr, "%s: %s\n", ac_status_name(p.status), p.error.msg);
  else
    printf("%d ticks, %d of them between steps, %d optimizer steps, loss %.4f%s\n", p.ticks, p.ticks_between_steps, p.steps, p.loss,
           p.ended ? "" : ", stopped");
  ac_host_stop(p.host); /* nothing if it has ended */
  ac_host_close(p.host);
  g_main_loop_unref(p.loop);
  return p.status == AC_OK ? 0 : 1;
}
