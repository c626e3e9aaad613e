--- Traces in Chrome's format ("Trace Event Format"): complete events, one process per rank, and counters of memory.
local accel = require "accel"
local core = require "accel.profiler.core"
local ranks = require "accel.profiler.ranks"

local M = {}

local json = accel.json
local CATEGORY <const> = { op = "cpu_op", backward = "cpu_op", module = "python_function", optimizer = "cpu_op", loader = "cpu_op",
  step = "user_annotation", collective = "collective" }
M.categories = { "parameters", "gradients", "states", "activations", "temporaries", "others" }

local function us(ns) return ("%d.%03d"):format(ns // 1000, ns % 1000) end

--- Arguments of one event, in torch's spelling if it has one.
local function arguments(e)
  local args, shapes = {}, ""
  if e.shapes then -- a list as it stands
    shapes = ('"Input Dims":%s,"Input type":%s'):format(e.shapes, e.dtypes:gsub("[^%[%], ]+", '"%0"'):gsub("%[, ", '["", ')
      :gsub(", %]", ', ""]'):gsub(", ,", ', "",'):gsub(", ,", ', "",'))
  end
  if e.site then args["Call stack"] = e.site end
  if e.flops then args.flops = e.flops end
  if e.self_memory ~= 0 then args["Bytes"] = e.self_memory end
  if e.kind == "collective" then
    args["Payload bytes"], args["Sent bytes"], args["Group size"] = e.bytes, e.sent, e.ranks
  elseif e.kind == "offload" then
    args["Moved bytes"] = e.bytes
  end
  local rest = next(args) and json.encode(args):sub(2, -2) or ""
  if shapes == "" and rest == "" then return "" end
  return (',"args":{%s%s%s}'):format(shapes, shapes ~= "" and rest ~= "" and "," or "", rest)
end

local function quoted(cache, name)
  local text = cache[name]
  if not text then
    text = json.encode(name)
    cache[name] = text
  end
  return text
end

local function metadata(out, pid, rank, size)
  local function named(kind, tid, key, value)
    out[#out + 1] = ('{"ph":"M","name":"%s","pid":%d,"tid":%d,"ts":0,"args":{"%s":%s}}'):format(kind, pid, tid, key, json.encode(value))
  end
  named("process_name", 0, "name", size > 1 and ("rank %d of %d"):format(rank, size) or "accel")
  named("process_sort_index", 0, "sort_index", rank)
  named("thread_name", 1, "name", "script")
  named("thread_name", 2, "name", "collectives")
  named("thread_name", 3, "name", "offload")
end

local function memory(out, prof, pid, offset)
  for _, d in ipairs(prof:memory_timeline(20000)) do
    if d.peak.total > 0 then
      for _, point in ipairs(d.points) do
        local values = {}
        for i, name in ipairs(M.categories) do values[i] = ('"%s":%d'):format(name, point[name]) end
        out[#out + 1] = ('{"ph":"C","name":"memory of %s","pid":%d,"ts":%s,"args":{%s}}'):format(d.device, pid, us(point.ns + offset),
          table.concat(values, ","))
      end
    end
  end
end

--- The events of a profile as text, commas between.
local function text_of(prof, rank, size, offset)
  local out, names = {}, {}
  metadata(out, rank, rank, size)
  for _, e in ipairs(prof:events()) do
    out[#out + 1] = ('{"ph":"X","cat":"%s","name":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s%s}'):format(CATEGORY[e.kind] or e.kind,
      quoted(names, e.name), rank, e.thread + 1, us(e.start + offset), us(e.stop - e.start), arguments(e))
  end
  if prof.o.profile_memory then memory(out, prof, rank, offset) end
  return table.concat(out, ",\n")
end

--- The name of this job: its launcher's, or the moment at which this process loaded the file.
local alone = ("%d"):format(core.now())
function M.run()
  for _, name in ipairs { "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID" } do
    local value = os.getenv(name)
    if value and value ~= "" then return value .. "." .. (os.getenv "TORCHELASTIC_RESTART_COUNT" or "0") end
  end
  return alone
end

--- The members of the file's object before the events. Members that several ranks add to must be the same for all of
--- them.
local function head_of(prof, rank, size, add)
  local head = { '"schemaVersion": 1', '"displayTimeUnit": "ms"' }
  if add then
    head[#head + 1] = ('"accel.run": %s'):format(json.encode(M.run()))
  else
    head[#head + 1] = ('"distributedInfo": {"rank": %d, "world_size": %d}'):format(rank, size)
  end
  local own = {}
  for key in next, prof.metadata do own[#own + 1] = key end
  table.sort(own)
  for _, key in ipairs(own) do head[#head + 1] = ("%s: %s"):format(json.encode(key), json.encode(prof.metadata[key])) end
  return table.concat(head, ", ")
end

--- Replaces a trace, or adds to it. Returns true. On failure returns nil, message, code.
---@param prof accel.profiler.Profile
---@param path string
---@param o {add: boolean, clock_offset: integer}
function M.write(prof, path, o)
  local rank, size = ranks.place()
  return core.trace_add(path, head_of(prof, rank, size, o.add), text_of(prof, rank, size, o.clock_offset), not o.add)
end

--- [[ns, ...], [[bytes by category], ...]] of a memory timeline.
function M.write_memory(timeline, path)
  local times, rows = {}, {}
  for i, point in ipairs(timeline.points) do
    times[i] = ("%d"):format(point.ns)
    local row = {}
    for k, name in ipairs(M.categories) do row[k] = ("%d"):format(point[name]) end
    rows[i] = "[" .. table.concat(row, ",") .. "]"
  end
  return accel.write_file(path, ("[[%s],[%s]]\n"):format(table.concat(times, ","), table.concat(rows, ",")))
end

return M
