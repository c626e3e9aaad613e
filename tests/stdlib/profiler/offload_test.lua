-- Spans of offload: what is read and written between tiers with its bytes, as accel.offload.stats and the training tier count them, and waits
-- inside of what waited; rows of key_averages and a thread of its own in the trace.
-- tier: every change, memory
local accel = require "accel"
local nn, profiler = accel.nn, accel.profiler
local folder = os.getenv "ACCEL_TEST_TMP" or "/tmp"
accel.manual_seed(1)

local function moved(averages, what)
  local row = averages:find("offload::" .. what)
  return row and row.bytes or 0, row
end

do -- training with everything in files; made while nothing records
  local model = nn.parallel.FullyShardedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Linear(512, 4)), {
    auto_wrap_policy = { kind = "transformer", classes = { nn.Linear } },
    offload = { parameters = "file", optimizer = "file", parameters_folder = folder, slice = 1 << 16 },
  })
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  local function step()
    model(accel.randn(8, 64)):pow(2):mean():backward()
    optimizer:step()
    optimizer:zero_grad()
  end
  step()
  local function counts()
    local s = model.reducer.tier:stats()
    return s.parameters.read_bytes + s.optimizer.read_bytes, s.parameters.written_bytes + s.optimizer.written_bytes
  end
  local read, written = counts()
  local prof = profiler.profile {}
  step()
  step()
  prof:stop()
  local now_read, now_written = counts()
  local averages = prof:key_averages()
  assert(moved(averages, "read_file") == now_read - read and now_read > read)
  assert(moved(averages, "write_file") == now_written - written and now_written > written)
  local _, wait = moved(averages, "wait")
  assert(wait and wait.kind == "offload" and wait.count > 0)
  local events, threads, inside = prof:events(), {}, 0
  for _, e in ipairs(events) do
    if e.kind == "offload" then
      threads[e.thread] = true
      assert(e.stop >= e.start)
      local around = events[e.parent]
      if e.name == "offload::wait" and around then
        inside = inside + 1
        assert(e.start >= around.start and e.stop <= around.stop, around.name)
      end
    end
  end
  assert(threads[0] and threads[2] and inside > 0)
  local path = folder .. "/offload-trace.json"
  prof:export_chrome_trace(path)
  local f <close> = assert(io.open(path))
  local seen, named = 0, false
  for _, e in ipairs(accel.json.decode(f:read "a").traceEvents) do
    if e.cat == "offload" and e.args and e.args["Moved bytes"] then seen = seen + e.args["Moved bytes"] end
    named = named or e.ph == "M" and e.tid == 3 and e.args.name == "offload"
  end
  assert(named and seen > now_read - read)
end

do -- inference; tiers are made while it records
  local prof = profiler.profile {}
  local model = nn.Sequential(nn.Linear(100, 100), nn.Linear(100, 100), nn.Linear(100, 100)) -- too small to be mapped
  accel.accelerator.disk_offload(model, folder .. "/offload-profile", { window = 100000 })
  for _ = 1, 3 do model(accel.ones(1, 100)) end
  accel.offload._get(model):empty() -- what was asked for ahead is still under way
  prof:stop()
  local stats = accel.offload.stats(model)
  assert(moved(prof:key_averages(), "read_file") == stats.files.read_bytes and stats.files.read_bytes > 0 and stats.files.mapped_bytes == 0)
end
