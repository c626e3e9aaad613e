/* What the twin's files share: streams, events, and work that is recorded (capture.cpp). */
#ifndef CUDA_TWIN_EMULATION_H
#define CUDA_TWIN_EMULATION_H
#include "cuda_runtime.h"

#include <vector>

struct emulated_graph {
  int users = 1; /* the graph itself, and what was made of it to run */
  int number = 0, device = 0;
  bool ended = false, spoiled = false;
  cudaStream_t origin = NULL;
  std::vector<cudaStream_t> streams; /* that record */
  std::vector<std::function<void()>> work;
  std::vector<const void *> kernels;
  long copies = 0, fills = 0, runs = 0;
};
struct emulated_stream {
  int device;
  bool copies; /* made with a priority: its copies from page-locked memory go on beside other work, see emulation.cpp */
  emulated_graph *capture; /* NULL: it does what it is given */
  long work, joined;       /* recorded on it, and how much of that the origin waits for */
  long waits;              /* for events, since a library was given it last */
};
struct emulated_event {
  cudaStream_t stream; /* that it was recorded on, with copies to come */
  long number;
  int asked; /* queries that found it not ready */
  emulated_graph *capture; /* that it belongs to */
  cudaStream_t recorded_on;
  long recorded;
};

cudaError_t emulated_give(cudaError_t code);
/* Calls that wait for the device, or may: not while this thread records, unless it said that it knows. */
bool emulated_may_wait();
/* The recording of the stream is worth nothing any more; the error that the call gives. */
cudaError_t emulated_spoil(cudaStream_t s);
/* A stream waits for an event where one of them records. */
cudaError_t emulated_join(cudaStream_t s, cudaEvent_t e);
/* A kernel was launched that is not recorded. */
void emulated_launched(const void *kernel);
void emulated_work_on(cudaStream_t s);
/* For libraries of their own, which find it by name: they are about to queue work on the stream. NULL, or what is wrong with that. */
extern "C" __attribute__((visibility("default"))) const char *emulated_library_call(void *stream);
extern "C" __attribute__((visibility("default"))) int emulated_device(); /* this thread's */

#endif
