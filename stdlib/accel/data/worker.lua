--- The code of a loader's worker (accel.data.workers starts it): creates the data set and the functions again, then
--- processes its jobs.
---
--- Jobs: { pass =, begin = true, epoch =, seed =, sets_epoch = } before a pass; { pass =, positions =, sample_offset = }
--- for a batch of a data set with positions; { pass = } for the next batch of a stream; { pass =, over = true } after a
--- pass.
--- Results: { pass =, batch = } with own = and left = for global batches of a stream; { pass =, ended = true } once at
--- the end of a stream; { pass =, failed = text, message =, code =, position = }.
local accel = require "accel"
local fetch = require "accel.data.fetch"
local shards = require "accel.data.shards"
local stream = require "accel.data.stream"
local worker_spec = require "accel.data.worker_spec"
local worker_info = require "accel.data.worker_info"

--- A pass over a stream. Returns read() -> batch, own rows, rows left of the global batch, nil at its end, and the value
--- to close.
local function open_stream(dataset, o, collate, epoch, seed, id)
  local within, step, closing = fetch.begin_stream(dataset, epoch, seed, id)
  local gather, read = collate or require("accel.data.collate").default_collate, nil
  if o.global_batches then
    local next_rows, total = shards.global_batches(step, o.size, o.ranks, o.rank, o.even), o.size * o.ranks
    read = function()
      local own, left = next_rows()
      if left == 0 or o.drop_last and left < total then return nil end
      local batch = own[1]
      if not o.unbatched and #own > 0 then batch = fetch.collate(own, gather) end
      return batch, #own, left
    end
  else
    read = o.unbatched and step or stream.batches(step, o.size, o.drop_last, gather)
  end
  return function() return within(read) end, closing
end

local library = debug.getinfo(1, "S").source:match "^(.*)data/[^/]*$" or "@"

-- Whether code that is not accel's is on the stack.
local function in_script()
  local level = 3
  while true do
    local info = debug.getinfo(level, "S")
    if not info then return false end
    if info.what ~= "C" and info.source:sub(1, #library) ~= library and info.source:sub(1, 5) ~= "=lua/" then return true end
    level = level + 1
  end
end

-- The error, with a traceback if it was in the script's code. accel's own complaints about a sample are one line. A binding puts the
-- nearest place of the script before its text, and where no script called it a place in accel's files, which helps nobody. That place
-- is told by the stack and not by its text, because Lua cuts long paths.
local function failure(err)
  local text
  if in_script() then text = accel.traceback(err, 2)
  else text = tostring(err):gsub("^[^\n]-%.lua:%d+: ", "", 1) end
  local code = type(err) == "table" and rawget(err, "code")
  return { failed = text, code = type(code) == "string" and code or nil }
end

-- fn(job), with the `failure` of an error. Without memory or stack, Lua calls no handler, and its text is all there is.
local function try(fn, job)
  local ok, result = xpcall(fn, failure, job)
  if ok or type(result) == "table" then return ok, result end
  accel.collect() -- free the data that did not fit, so that this can be reported
  local text = tostring(result)
  return false, { failed = text, code = text == "not enough memory" and "out_of_memory" or nil }
end

---@param setup table
---@param endpoint table
return function(setup, endpoint)
  local info = { id = setup.id, num_workers = setup.num_workers, seed = setup.seed, epoch = 0 }
  worker_info.current = info
  local collate = worker_spec.unpack(setup.collate)
  local dataset = worker_spec.unpack(setup.dataset)
  info.dataset = dataset
  local init = worker_spec.unpack(setup.init)
  if init then init(info.id) end

  local reader, read, closing, draws = setup.reader, nil, nil, nil
  local function close()
    local open = closing
    read, closing = nil, nil
    stream.close(open)
  end

  local function begin(job)
    close()
    info.epoch, info.seed = job.epoch, job.seed
    if job.sets_epoch and dataset.set_epoch ~= nil then dataset:set_epoch(job.epoch) end
    if reader.stream then
      read, closing = open_stream(dataset, reader, collate, job.epoch, job.seed, info.id)
    else
      draws = accel.worker.draws(job.seed, job.epoch)
    end
  end

  local function run(job)
    if not reader.stream then
      return { batch = fetch.read(dataset, job.positions, collate, reader.unbatched, draws, job.sample_offset) }
    end
    if not read then return { ended = true } end
    local batch, own, left = read()
    if batch == nil and own == nil then
      close()
      return { ended = true }
    end
    return { batch = batch, own = own, left = left }
  end

  local function send(result, pass, position)
    result.pass, result.position = pass, position
    return pcall(endpoint.send, endpoint, result)
  end

  local ill -- why a pass could not begin: sent in place of its batches
  for job in function() return endpoint:receive() end do
    local result
    if job.begin then
      local ok, why = try(begin, job)
      ill = not ok and why or nil
    elseif job.over then
      close()
      accel.collect() -- keep nothing of the pass while waiting
    else
      local ok = ill == nil
      if ok then ok, result = try(run, job) else result = ill end
      local sent, why = send(result, job.pass, not ok and fetch.position or nil)
      if not sent then
        why = tostring(why):gsub("^.-encode: ", ""):gsub(" at %.batch", " at batch")
        send({ failed = "the batch cannot come back: " .. why }, job.pass)
      end
      job, result = nil, nil -- luacheck: ignore
      accel.gc_check()
    end
  end
  close()
end
