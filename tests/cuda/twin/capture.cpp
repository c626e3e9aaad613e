/* The twin's recorded work: streams that record, graphs, runs. What CUDA refuses while a stream records - waiting for it, host memory that is not
 * page-locked, asking for an event, memory from the driver in a strict mode, a stream that nobody joins again - is refused here. */
#include "emulation.h"

#include <stdio.h>

#include <algorithm>
#include <string>

namespace {
thread_local cudaStreamCaptureMode exchanged = cudaStreamCaptureModeGlobal;
thread_local emulated_graph *mine; /* this thread began it */

/* What CUDA_TWIN_GRAPHS is told. */
struct told {
  std::string text;
  std::vector<const void *> kernels; /* launched so far, without those of graphs */
  int graphs = 0;
  ~told() {
    const char *path = getenv("CUDA_TWIN_GRAPHS");
    FILE *f = path != NULL ? fopen(path, "w") : NULL;
    if (f == NULL) return;
    fputs(text.c_str(), f);
    fclose(f);
  }
} told;

struct on_device {
  on_device() { emulated_open(); }
  ~on_device() { emulated_close(); }
};
} // namespace

void emulated_launched(const void *kernel) { told.kernels.push_back(kernel); }

bool emulated_may_wait() { return mine == NULL || exchanged == cudaStreamCaptureModeRelaxed; }

cudaError_t emulated_spoil(cudaStream_t s) {
  s->capture->spoiled = true;
  return cudaErrorStreamCaptureUnsupported;
}

bool emulated_records(cudaStream_t s) { return s->capture != NULL; }

void emulated_record(cudaStream_t s, const void *what, std::function<void()> work) {
  const on_device lock;
  if (what != NULL) s->capture->kernels.push_back(what);
  s->capture->work.push_back(std::move(work));
  s->work++;
}

cudaError_t emulated_join(cudaStream_t s, cudaEvent_t e) {
  if (e->capture == NULL || e->capture->ended) return cudaSuccess; /* nothing of the graph's: it waits for no one */
  if (s->capture != NULL && s->capture != e->capture) return emulated_spoil(s);
  if (s->capture == NULL) {
    s->capture = e->capture;
    s->work = s->joined = 0;
    e->capture->streams.push_back(s);
  } else if (s == s->capture->origin && e->recorded > e->recorded_on->joined) {
    e->recorded_on->joined = e->recorded;
  }
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  const cudaStreamCaptureMode was = exchanged;
  exchanged = *mode;
  *mode = was;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  const on_device lock;
  if (s->capture != NULL) return emulated_give(cudaErrorInvalidValue);
  s->capture = mine = new emulated_graph();
  s->capture->origin = s;
  s->capture->device = s->device;
  s->capture->streams.push_back(s);
  s->work = s->joined = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
  const on_device lock;
  emulated_graph *g = s->capture;
  *graph = NULL;
  if (g == NULL || g->origin != s) return emulated_give(cudaErrorInvalidValue);
  bool joined = true;
  for (cudaStream_t each : g->streams) {
    joined &= each == s || each->joined == each->work;
    each->capture = NULL;
  }
  g->ended = true;
  mine = NULL;
  if (g->spoiled) return emulated_give(cudaErrorStreamCaptureInvalidated); /* events may still point at it: it stays */
  if (!joined) return emulated_give(cudaErrorStreamCaptureUnjoined);
  *graph = g;
  g->number = ++told.graphs;
  const size_t n = g->kernels.size();
  const bool same = std::search(told.kernels.begin(), told.kernels.end(), g->kernels.begin(), g->kernels.end()) != told.kernels.end();
  told.text += "graph " + std::to_string(g->number) + " kernels " + std::to_string(n) + " copies " + std::to_string(g->copies) + " fills " +
               std::to_string(g->fills) + (same ? " same\n" : " other\n");
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *run, cudaGraph_t graph, unsigned long long) {
  graph->users++;
  return *run = graph, cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t run, cudaStream_t s) {
  const on_device open;
  if (s->device != run->device) return emulated_give(cudaErrorInvalidResourceHandle);
  emulated_work_on(s);
  for (const auto &work : run->work) work();
  told.text += "run " + std::to_string(run->number) + " of " + std::to_string(++run->runs) + "\n";
  return cudaSuccess;
}

/* Never freed: events that were recorded in it may be asked. */
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return graph->users--, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t run) {
  if (--run->users == 0) run->work.clear();
  return cudaSuccess;
}
