--- The inside of accel-run --dry-run: plays one rank of a world that is not there. The script runs on the meta device, on which tensors
--- are only shapes, among ranks simulated by the sim backend, until every optimizer has made its steps. Its allocations, messages and
--- calculations are recorded. accel.cli.dry_run starts one such process per simulated rank.
local accel = require "accel"
local tracing = require "accel.profiler.tracing"
local caller = require "accel.util.caller"
local core = require "accel.profiler.core"
local spans = require "accel.util.spans"
local unwritten = require "accel.util.unwritten"
local open_read = require("accel.file.core").open_read

local M = {}

-- Values that are not there --------------------------------------------------------------------------

-- Reading a value of a tensor on meta returns 0 (or false), and the line is recorded: the script's reaction may differ from a real run.
-- Data that a real run reads on the CPU stays on the CPU.
local asked, lines, left = {}, {}, {}

local function note(what)
  local info = caller()
  local line = info and ("%s:%d"):format(info.short_src, info.currentline) or "?"
  local key = what .. " at " .. line
  if not asked[key] then lines[#lines + 1] = key end
  asked[key] = (asked[key] or 0) + 1
end

-- Suppressed writes ----------------------------------------------------------------------------------

local function leave(path)
  if not left[path] then left[#left + 1], left[path] = path, true end
end

local lfs = require "lfs"

--- Whether nothing is in a folder, or it is not there.
local function is_empty(dir)
  local kind = lfs.attributes(dir, "mode")
  if kind ~= "directory" then return kind == nil end
  for name in lfs.dir(dir) do
    if name ~= "." and name ~= ".." then return false end
  end
  return true
end

local folders = {} -- of this run: dir -> it was there, empty

--- Whether a folder of weights must stay unchanged: its files belong to real runs. Into one that is empty or new the script writes, files
--- without values, which the run removes.
local function stays(dir)
  leave(dir)
  if folders[dir] == nil and is_empty(dir) then folders[dir] = lfs.attributes(dir, "mode") ~= nil end
  return folders[dir] == nil
end

local DTYPES <const> = { f64 = "F64", f32 = "F32", f16 = "F16", bf16 = "BF16", i64 = "I64", i32 = "I32", i16 = "I16", i8 = "I8", u8 = "U8",
  bool = "BOOL" }

local MARK <const> = '{"__metadata__":{"format":"accel dry run"}'

local files = {} -- of this run, which it removes

--- Replaces accel.save: writes a file of the right size without values, which takes no space and is removed with the run, so that the
--- script finds its saved files. A file that is there stays as it is.
local function save(path, tensors)
  local there = not files[path] and open_read(path)
  if there then there:close() end
  local own = false -- of a folder that the report names
  for dir in next, folders do own = own or path:sub(1, #dir + 1) == dir .. "/" end
  if not own then leave(path) end
  if there then return true end
  local head, at = {}, 0
  for name, t in pairs(tensors) do
    local bytes = t:numel() * t:element_size()
    head[name] = { dtype = DTYPES[t.dtype] or "U8", shape = accel.json.array { table.unpack(t.shape) }, data_offsets = { at, at + bytes } }
    at = at + bytes
  end
  local text = MARK .. "," .. accel.json.encode(head):sub(2)
  if next(head) == nil then text = MARK .. "}" end
  text = text .. (" "):rep(-#text % 8)
  local file, message = io.open(path, "wb")
  if not file then return nil, message, "io" end
  files[path] = true
  file:write(("<I8"):pack(#text), text)
  if at > 0 then
    file:seek("cur", at - 1)
    file:write "\0"
  end
  file:close()
  return true
end

--- Whether a file of weights is one of a dry run: a real run may have written into the folder meanwhile.
local function is_made(path)
  local f <close> = open_read(path)
  return f ~= nil and (f:read(64) or ""):find(MARK, 1, true) ~= nil
end

--- Removes the files of weight writers from a folder, and leaves all others.
local function remove_in(dir)
  local mine, texts = true, {}
  for name in lfs.dir(dir) do
    local path = dir .. "/" .. name
    if name:find "%.safetensors$" then
      if is_made(path) then os.remove(path) else mine = false end
    elseif name:find "^config%.json$" or name:find "^generation_config%.json$" or name:find "^adapter_config%.json$"
      or name:find "%.safetensors%.index%.json$" then
      texts[#texts + 1] = path
    end
  end
  for _, path in ipairs(mine and texts or {}) do os.remove(path) end
end

local function remove_made()
  for path in next, files do
    if is_made(path) then os.remove(path) end
  end
  for dir, was in next, folders do
    if lfs.attributes(dir, "mode") == "directory" then
      remove_in(dir)
      if not was then os.remove(dir) end -- which an empty one follows
    end
  end
end

--- Nothing of the script is written permanently: there are no values, and existing files belong to real runs. Runs of a store go into
--- `folder`, which the dry run removes. Modules are changed when the script loads them: unused ones would make Lua's heap larger than
--- in a real run, which decides when memory is collected.
local function write_nothing(folder)
  local change = {
    ["accel.ckpt"] = function(M_) M_.other_run = function(_, _) return nil end end,
    ["accel.accelerator.trackers"] = function(M_) M_._silent = "store" end, -- all but that one, which is elsewhere
    ["accel.track.run"] = function(Run)
      Run.path_of = function() return folder .. "/runs.db" end
    end,
  }
  unwritten.note, unwritten.leave = stays, leave
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
  function Optimizer:step(...)
    local results = table.pack(step(self, ...))
    counts[self] = (counts[self] or 0) + 1
    local least = math.huge
    for _, n in next, counts do least = math.min(least, n) end
    if least > done then
      done = least
      on_step(done)
      if done >= most then error(STOP, 0) end
    end
    return table.unpack(results, 1, results.n)
  end
  return function() return done end
end

-- Observations ------------------------------------------------------------------------------------------

local PRODUCTS <const> = { linear = true, matmul = true, addmm = true, baddbmm = true, mixed_product = true, conv = true,
  bmm = true }

--- The rate that applies to an op's time.
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

--- From the spans between two moments: ops by class, name, dtype and size, and collectives in their order.
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

--- The idle time of the pipelines' schedule. nil without a pipeline.
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

--- Seconds of Lua and dispatch in a step: the mean CPU time of all steps except those that create buffers. worked: the CPU clock at the end
--- of each. whole: the result if there are no steps.
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
  accel.device_flags("meta", { accelerator = o.accelerator, zeros = true })
  accel.set_default_device "meta"
  if o.size > 1 then
    require "accel.dist".init_process_group("sim", { rank = o.rank, world_size = o.size, machines = o.machines, shares_memory = o.shares })
  end
  require "accel.parallel.absent".simulate()
  local pipelines = o.size > 1 and watch_pipelines() or {}
  core.placeholders(note, save)
  -- Contents of files are on the CPU, including data that a real run on an accelerator moves there. The dry run leaves the rest on meta.
  require "accel.parallel.core".meta_absorbs(true)
  write_nothing(o.report:match "^(.*)/")
  local recorder = core.new { memory = true, flops = true, shapes = true }
  spans.whole = recorder
  local moments, worked = {}, { [0] = os.clock() }
  local seen = watch_steps(o.steps, function(k)
    moments[k], worked[k] = core.now(), os.clock()
    accel.gc_phase((k - 1) / o.steps)
  end)
  collectgarbage()
  accel.gc_foreign(math.floor(1024 * (collectgarbage "count" - heap)))
  local before = core.now()
  recorder:start()
  tracing(true, false)
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
  remove_made()
  recorder:stop()
  tracing(false)
  local steps, after = seen(), core.now()
  local from, to = moments[steps - 1] or before, moments[steps] or after
  local report = sum_up(recorder, from, to)
  report.rank, report.steps, report.ok, report.why = o.rank, steps, ok, not ok and tostring(why) or nil
  report.pipeline = pipeline_of(pipelines)
  local experts = package.loaded["accel.parallel.experts"]
  report.experts = experts and experts.foretold
  report.peak, report.dispatch = peak_of(recorder), dispatch_of(worked, (to - from) / 1e9)
  report.asked, report.unwritten = accel.json.array(lines), accel.json.array { table.unpack(left) }
  report.ops, report.collectives = accel.json.array(report.ops), accel.json.array(report.collectives)
  report.wrapped = package.loaded["accel.accelerator.accelerator"] ~= nil
  assert(accel.write_file(o.report, accel.json.encode(report)))
  os.exit(ok and 0 or 1)
end

return M
