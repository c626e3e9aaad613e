--- The inside of accel-run --dry-run: plays one rank of a world that is not there. The script runs on the meta device, where tensors are
--- shapes alone, among ranks that the sim backend stands in for, until every optimizer has made its steps; what it allocated, sent and
--- calculated is written down. accel.cli.dry_run starts one such process per rank that it looks at.
local accel = require "accel"
local caller = require "accel.util.caller"
local core = require "accel.profiler.core"
local spans = require "accel.profiler.spans"

local M = {}

-- Values that are not there --------------------------------------------------------------------------

--- Asked for a value, a tensor on meta answers 0 (or false), and the line that asked is kept: what the script makes of it may differ from
--- a real run.
local asked, lines, unwritten = {}, {}, {}

local function note(what)
  local info = caller()
  local line = info and ("%s:%d"):format(info.short_src, info.currentline) or "?"
  local key = what .. " at " .. line
  if not asked[key] then lines[#lines + 1] = key end
  asked[key] = (asked[key] or 0) + 1
end

local function zeros_like(shape, dim, zero)
  if dim > #shape then return zero end
  local out = {}
  for i = 1, shape[dim] do out[i] = zeros_like(shape, dim + 1, zero) end
  return out
end

local function placeholders()
  local Tensor = accel.Tensor
  local item, tolist = Tensor.item, Tensor.tolist
  local function zero(t)
    if t.dtype == "bool" then return false end
    return t.dtype:find "^[fb]" and 0.0 or 0
  end
  local to, cpu = Tensor.to, Tensor.cpu
  --- What a real run reads on the CPU stays where it is; no pool of the device is asked for it.
  function Tensor.to(t, a, b)
    if not t.device:find "^meta" then return to(t, a, b) end
    if a == "cpu" then a, b = b, nil end
    if b == "cpu" then b = nil end
    for _, o in ipairs { a, b } do
      if type(o) == "table" and o.device == "cpu" then o.device = nil end
    end
    if a == nil and b == nil then return t end
    if b == nil then return to(t, a) end
    return to(t, a, b)
  end
  if cpu then
    function Tensor.cpu(t) return t.device:find "^meta" and t or cpu(t) end
  end
  function Tensor.item(t)
    if not t.device:find "^meta" or t:numel() ~= 1 then return item(t) end
    note "item()"
    return zero(t)
  end
  function Tensor.tolist(t)
    if not t.device:find "^meta" then return tolist(t) end
    note "tolist()"
    return zeros_like(t.shape, 1, zero(t))
  end
end

-- What stays unwritten -------------------------------------------------------------------------------

-- Functions that write weights or a state: module, name, which argument is the path, whether they return it.
local WRITERS <const> = {
  { "accel.accelerator.checkpoint", "_save", 2, true }, { "accel.accelerator.save", "save", 3 }, { "accel.accelerator.save", "save_model", 3 },
  { "accel.accelerator.standalone", "save", 2 }, { "accel.models.pretrained_model", "save_pretrained", 2 },
  { "accel.peft.model", "save_pretrained", 2, class = "PeftModel" }, { "accel", "save", 1 },
}

--- Nothing that the script would leave behind is written: there are no values, and what lies there is of real runs. Runs of a store go
--- into `folder`, which the dry run removes. Modules are changed when the script loads them: those that it does not use would make the
--- heap of Lua larger than that of a real run, which decides when memory is collected.
local function write_nothing(folder)
  local change = {
    ["accel.accelerator.trackers"] = function(M_) M_._silent = true end,
    ["accel.track.run"] = function(Run)
      Run.path_of = function() return folder .. "/runs.db" end
    end,
  }
  for _, row in ipairs(WRITERS) do
    local other, position = change[row[1]], row[3]
    change[row[1]] = function(owner)
      if other then other(owner) end
      owner = row.class and owner[row.class] or owner
      owner[row[2]] = function(...)
        local path = select(position, ...)
        path = type(path) == "string" and path or "?"
        if not unwritten[path] then unwritten[#unwritten + 1], unwritten[path] = path, true end
        if row[4] then return path end
        return true
      end
    end
  end
  for name, fn in accel.pairs(change) do
    if package.loaded[name] then
      fn(package.loaded[name])
      change[name] = nil
    end
  end
  table.insert(package.searchers, 1, function(name)
    local fn = change[name]
    if not fn then return nil end
    change[name] = nil -- the search that follows is the usual one
    for i = 2, #package.searchers do
      local load, extra = package.searchers[i](name)
      if type(load) == "function" then
        return function()
          local made = load(name, extra)
          fn(made)
          return made
        end
      end
    end
  end)
end

-- Steps ---------------------------------------------------------------------------------------------

local STOP <const> = setmetatable({}, { __tostring = function() return "the dry run has seen its steps" end })

--- Calls on_step(k) once every optimizer that has stepped so far made its k-th step, and ends the script after the last one.
local function watch_steps(most, on_step)
  local Optimizer = require "accel.optim.optimizer"
  local step, counts, done = Optimizer.step, {}, 0
  function Optimizer:step(closure)
    local result = step(self, closure)
    counts[self] = (counts[self] or 0) + 1
    local least = math.huge
    for _, n in next, counts do least = math.min(least, n) end
    if least > done then
      done = least
      on_step(done)
      if done >= most then error(STOP, 0) end
    end
    return result
  end
  return function() return done end
end

-- What was seen -----------------------------------------------------------------------------------------

local PRODUCTS <const> = { linear = true, matmul = true, addmm = true, baddbmm = true, mixed_product = true, conv = true,
  bmm = true }

--- Which rate an op's time is told by.
local function class_of(name)
  if name:find "^mlp" then return "mlp" end
  if PRODUCTS[name] or name:find "^conv" then return "product" end
  if name:find "^flash_attention" then return name:find "backward" and "attention_backward" or "attention" end
  if name:find "cross_entropy" or name:find "softmax" then return "softmax" end
  if name:find "_step_$" then return "optimizer" end
  if name:find "[rh]_norm" or name:find "group_norm" or name:find "rms_norm" or name:find "instance_norm" then
    return name:find "backward" and "norm_backward" or "norm"
  end
  if name == "random_mask" or name:find "^bernoulli" or name:find "^normal_" or name:find "^uniform_" then return "random" end
  if name:find "gelu" or name:find "tanh" or name:find "silu" or name:find "sigmoid" then return "activation" end
  return "memory"
end

--- Of the spans between two moments: ops by class, name, dtype and size; collectives in their order.
local function sum_up(recorder, from, to)
  local ops, collectives, flops = {}, {}, 0
  for i = 1, (recorder:count()) do
    local name, kind, start, _, _, _, f, _, _, dtypes, site, bytes, sent, ranks, moved, remote = recorder:span(i)
    if start >= from and start < to then
      if kind == "op" then
        flops = flops + (f or 0)
        if moved > 0 then
          local half = dtypes and (dtypes:find("bf16", 1, true) or dtypes:find("f16", 1, true)) and "half" or "single"
          local key = ("%s|%s|%d"):format(class_of(name), half, math.floor(math.log(moved, 2)))
          local row = ops[key] or { class = class_of(name), half = half == "half", n = 0, flops = 0, moved = 0 }
          row.n, row.flops, row.moved = row.n + 1, row.flops + (f or 0), row.moved + moved
          ops[key] = row
        end
      elseif kind == "collective" then
        collectives[#collectives + 1] = { kind = name, payload = bytes, sent = sent, ranks = ranks,
          dtype = dtypes and dtypes:sub(2, -2), site = site, remote = remote or nil }
      end
    end
  end
  local list = {}
  for _, row in accel.pairs(ops) do list[#list + 1] = row end
  return { flops = flops, ops = list, collectives = collectives }
end

--- Of the pipelines that there are, what their schedule leaves idle; nil without one.
local function pipeline_of(made)
  local most
  for _, pipeline in ipairs(made) do
    local o, stages = pipeline.options, pipeline._axis.size
    if stages > 1 then
      local idle = require "accel.parallel.pipeline.schedule".bubble(o.schedule, stages, o.virtual_stages, o.num_micro_batches)
      if not most or idle > most.bubble then
        most = { schedule = o.schedule, stages = stages, micro_batches = o.num_micro_batches, virtual_stages = o.virtual_stages, bubble = idle }
      end
    end
  end
  return most
end

local function watch_pipelines()
  local made = {}
  local Pipeline = require "accel.parallel.pipeline.runner"
  local init = Pipeline.init
  function Pipeline:init(...)
    init(self, ...)
    made[#made + 1] = self
  end
  return made
end

local function peak_of(recorder)
  for i = 1, math.huge do
    local device, peak = recorder:memory(i, 0)
    if not device then return nil end
    if device == "meta" then return peak end
  end
end

--- Seconds that Lua and dispatch take in a step: the mean of the CPU time of all steps but those in which buffers are made. worked: the CPU
--- clock at the end of each; whole: the answer where there are no steps.
local function dispatch_of(worked, whole)
  local first = math.min(2, #worked - 1)
  return first >= 0 and (worked[#worked] - worked[first]) / (#worked - first) or whole
end

-- The run -----------------------------------------------------------------------------------------------

--- Runs a script as one rank and writes a JSON report to o.report. o: rank, size, machines, accelerator (stands for a GPU), shares (ranks
--- of a machine share memory), steps, script, args.
---@param o table
function M.run(o)
  local heap = collectgarbage "count"
  accel.device_flags("meta", { accelerator = o.accelerator })
  accel.set_default_device "meta"
  if o.size > 1 then
    require "accel.dist".init_process_group("sim", { rank = o.rank, world_size = o.size, machines = o.machines, shares_memory = o.shares })
  end
  require "accel.parallel.absent".simulate()
  local pipelines = o.size > 1 and watch_pipelines() or {}
  placeholders()
  write_nothing(o.report:match "^(.*)/")
  local recorder = core.new { memory = true, flops = true, shapes = true }
  local moments, worked = {}, { [0] = os.clock() }
  local seen = watch_steps(o.steps, function(k)
    moments[k], worked[k] = core.now(), os.clock()
    accel.gc_phase((k - 1) / o.steps)
  end)
  collectgarbage()
  accel.gc_foreign(math.floor(1024 * (collectgarbage "count" - heap)))
  local before = core.now()
  recorder:start()
  spans.set(true, false)
  rawset(_G, "arg", o.args)
  o.args[0] = o.script
  local chunk, why = loadfile(o.script)
  local ok = chunk ~= nil
  if ok then
    ok, why = xpcall(chunk, function(e)
      if e == STOP then return e end
      return (accel.host_chunk "traceback"(e, 1):gsub("\n  %[C%]: in global 'xpcall'.*$", "")) -- the script's own frames
    end, table.unpack(o.args))
    if why == STOP then ok = true end
  end
  recorder:stop()
  spans.set(false)
  local steps, after = seen(), core.now()
  local from, to = moments[steps - 1] or before, moments[steps] or after
  local report = sum_up(recorder, from, to)
  report.rank, report.steps, report.ok, report.why = o.rank, steps, ok, not ok and tostring(why) or nil
  report.pipeline = pipeline_of(pipelines)
  local experts = package.loaded["accel.parallel.experts"]
  report.experts = experts and experts.foretold
  report.peak, report.dispatch = peak_of(recorder), dispatch_of(worked, (to - from) / 1e9)
  report.asked, report.unwritten = accel.json.array(lines), accel.json.array { table.unpack(unwritten) }
  report.ops, report.collectives = accel.json.array(report.ops), accel.json.array(report.collectives)
  report.wrapped = package.loaded["accel.accelerator.accelerator"] ~= nil
  assert(accel.write_file(o.report, accel.json.encode(report)))
  os.exit(ok and 0 or 1)
end

return M
