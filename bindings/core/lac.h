/* Declarations for most files of the bindings, and the map of the folder.
 *
 *   core/state    the C state of a Lua state, openers           core/box     handles of tensors
 *   core/site     lines of scripts                              core/raise   error objects
 *   core/check    arguments, lists of tensors                   core/opts    tables of options
 *   core/callback Lua functions that the core calls             core/guard   modes until the end of
 *   a block
 *   core/gc       when Lua collects for native memory           core/op      calls of ops by name,
 *                 new tensors
 *   core/chunk    Lua files inside the library                  core/path    the place of the other
 *                 Lua files
 *   core/key      keys of t[key]
 *   init          accel.core, put together from the openers     host with host_*
 *                 ac_host_* (accel/host.h)
 *   call          the function of every op, over lac_ops        lac_tensor, lac_convert, lac_index,
 *                 lac_scope   tensors
 *   lac_factory, lac_bytes, lac_random, lac_dlpack, lac_quant   making them. math_random:
 *   math.random's state
 *   lac_autograd, lac_function over function_node, lac_saved, lac_gradients        gradients
 *   lac_precision, lac_device, lac_info, lac_step (interrupt.h), lac_profile (profile.h)   the
 *   machine, modes, steps, spans
 *   lac_file, lac_writer (writer.h), lac_tokens, lac_gguf, lac_json, lac_yaml, lac_track, lac_codec
 *   over codec_*  files and data
 *   lac_text, lac_encoding, lac_train over text_args                               tokenizers
 *   lac_dist, lac_group, lac_collective, lac_coll_list, lac_work over world, coll_args (dist.h)
 *   ranks
 *   lac_console, lac_channel, lac_line over line_api, lac_ranks (console.h)        prompts
 *   lac_offload, lac_shard, lac_ckpt, lac_prefetch                                  tiers, shards,
 *   checkpoints, copies ahead
 *   lac_process, lac_blob, lac_sandbox over plain, sandbox_arena, lac_worker with _thread, _queue,
 *   _draws   other processes and threads
 *
 * Functions work in a fixed order: check arguments, push empty boxes, call the core, fill the
 * boxes. No call that may raise may stand between the core and a box. Functions raise on the
 * lua_State they were called with, never on another one. No file needs another in a circle
 * (check/circles). */
#ifndef LAC_LAC_H
#define LAC_LAC_H
#include "bindings/core/box.h"
#include "bindings/core/check.h"
#include "bindings/core/opts.h"
#include "bindings/core/raise.h"
#include "bindings/core/site.h"
#include "bindings/core/state.h"

#endif
