--- notebook_launcher and debug_launcher: a function on several ranks, from a script, a notebook or the prompt. As for accel.launch, it is
--- given itself, with upvalues that can be sent, or by its module or file.
local accel = require "accel"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local state = require "accel.accelerator.state"

local M = {}

local none <const> = options.none

--- Runs a function, or the one returned by a module (or file), on num_processes ranks of this machine, each with args, and returns the results
--- of all ranks. Of Accelerate's options, use_port, master_addr, rdzv_* and log_line_prefix_template have no effect: ranks of one
--- machine need no port. Raises if this process is a rank already, or has made an Accelerator.
--- example: (pcall(accel.accelerator.notebook_launcher, "no.such.module", {}, { num_processes = 2 })) --> false
---@param module string|function
---@param args? any[]
---@param opts? table
---  num_processes integer: ranks (default: one for each GPU, or for each core)
---  mixed_precision "no"|"fp16"|"bf16"|"fp8" = "no": of their Accelerators
---  max_restarts integer = 0: restarts of all ranks after one fails
---  monitor_interval number = 0.1: seconds between looks at the ranks, with max_restarts
---  node_rank integer = 0: only one machine is possible. For several, accel-run --num-machines starts ranks
---  num_nodes integer = 1: see node_rank
---  use_port string: without effect, as master_addr, rdzv_backend, rdzv_endpoint, rdzv_conf, rdzv_id and log_line_prefix_template
---@return any[] results
function M.notebook_launcher(module, args, opts, ...)
  local who = "notebook_launcher"
  check.surplus(who, ...)
  local o = options(who, opts, { num_processes = none, mixed_precision = "no", use_port = none, master_addr = none,
    node_rank = 0, num_nodes = 1, rdzv_backend = none, rdzv_endpoint = none, rdzv_conf = none, rdzv_id = none,
    max_restarts = 0, monitor_interval = 0.1, log_line_prefix_template = none })
  no_effect("accel.accelerator.notebook_launcher", o)
  check.word(who, "mixed_precision", o.mixed_precision:lower(), { "no", "fp16", "bf16", "fp8" })
  if o.node_rank >= o.num_nodes then
    raise("%s: node_rank is %d, but there are %d nodes, numbered from 0", who, o.node_rank, o.num_nodes)
  end
  if o.num_nodes > 1 then
    raise("%s: starts ranks on one machine; for several, use accel-run --num-machines", who)
  end
  if state.AcceleratorState.__index({}, "initialized") then
    raise("%s: an Accelerator exists already; make it inside the function", who)
  end
  if o.max_restarts == 0 and opts and opts.monitor_interval then no_effect.once(who, "monitor_interval", "without max_restarts; leave it out") end
  return accel.launch(module, args, { num_processes = o.num_processes or "auto", max_restarts = o.max_restarts > 0 and o.max_restarts or nil,
    monitor_interval = o.max_restarts > 0 and o.monitor_interval or nil, env = { ACCELERATE_MIXED_PRECISION = o.mixed_precision:lower() } })
end

--- The same on CPUs, for tests: num_processes is 2 unless given.
--- example: accel.accelerator.debug_launcher("accel.cli.test_ranks")[1][1].ok --> true
---@param module string|function
---@param args? any[]
---@param num_processes? integer
---@return any[] results
function M.debug_launcher(module, args, num_processes, ...)
  check.surplus("debug_launcher", ...)
  return accel.launch(module, args, { num_processes = check.positive("debug_launcher", "num_processes", num_processes or 2),
    env = { ACCELERATE_USE_CPU = "true", ACCEL_DEVICE = "cpu" } })
end

return M
