-- The idle time of each schedule of pipelines as it runs, on a counted clock: every rank counts a unit of time for each forward, gradient of
-- inputs and gradient of weights of its blocks, when it happens, and notes what it sends and waits for; from these notes follows when
-- everything was. (Clocks on walls say how busy a machine with fewer cores than ranks is.) Idle time over busy time is that of the formula, no
-- rank holds activations of more micro-batches than the schedule says, and messages of megabytes make no rank wait for ever.
--   accel-run tests/stdlib/parallel/bubble_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local schedule = require "accel.parallel.pipeline.schedule"
local dist, nn = accel.dist, accel.nn

if ranks.start { 2, 4 } then return end
local STAGES <const>, WIDTH <const> = ranks.size, 256

local notes = {} -- of this rank, in order: { "tick" }, { "send" or "receive", with whom, tag }

local function tick() notes[#notes + 1] = { "tick" } end

for name, what in pairs { isend = "send", irecv = "receive" } do
  local start = dist[name]
  dist[name] = function(t, other, o)
    local work = start(t, other, o)
    if what == "send" then notes[#notes + 1] = { what, other, o.tag } end
    local function wait()
      work:wait()
      if what == "receive" then notes[#notes + 1] = { what, other, o.tag } end
    end
    return { wait = wait, is_completed = function() return work:is_completed() end }
  end
end

--- x; a unit passes, and another one in its backward. p only makes it have one.
local timed = accel.Function {
  name = "timed",
  forward = function(_, x) tick() return x:clone() end,
  backward = function(_, dy) tick() return dy, accel.zeros(1) end,
}

local Block = nn.Module:extend "Block"
function Block:init()
  self.p, self.layer = nn.Parameter(accel.zeros(1)), nn.Linear(WIDTH, WIDTH, { bias = false })
  self.layer.weight:register_hook(tick) -- when its gradient is there
end
function Block:forward(x)
  if x.device == "meta" then return self.layer(x) end
  return self.layer(timed(x, self.p))
end

--- The time at which the last rank is through, by the notes of all.
local function replay(all)
  local time, at, sent, left = {}, {}, {}, 0
  for r = 1, #all do time[r], at[r], left = 0, 1, left + #all[r] end
  while left > 0 do
    local before = left
    for r, list in ipairs(all) do
      local note = list[at[r]]
      while note do
        local what, other, tag = note[1], note[2], note[3]
        local key = what == "send" and ("%d %d %d"):format(r - 1, other, tag) or what == "receive" and ("%d %d %d"):format(other, r - 1, tag)
        if what == "tick" then
          time[r] = time[r] + 1
        elseif what == "send" then
          sent[key] = sent[key] or {}
          table.insert(sent[key], time[r])
        else
          if not sent[key] or #sent[key] == 0 then break end
          time[r] = math.max(time[r], table.remove(sent[key], 1))
        end
        at[r], left = at[r] + 1, left - 1
        note = list[at[r]]
      end
    end
    assert(left < before, "a rank waits for what nobody sent")
  end
  return math.max(table.unpack(time))
end

--- The idle time of a step over the busy time.
local function measure(name, chunks, micros)
  accel.manual_seed(1)
  local blocks = {}
  for i = 1, STAGES * chunks do blocks[i] = Block() end
  local mesh = accel.parallel.init_device_mesh("cpu", { STAGES }, { mesh_dim_names = { "pp" } })
  local model = nn.parallel.PipelineParallel(nn.Sequential(table.unpack(blocks)), mesh, {
    num_micro_batches = micros, schedule = name, virtual_stages = chunks, loss_fn = function(y) return y:square():mean() end })
  local alive, most = 0, 0
  for op, method in pairs { F = "_forward", B = "_backward", W = "_weights" } do
    local run = model[method]
    rawset(model, method, function(self, batch, e)
      local before = #notes
      run(self, batch, e)
      assert(#notes - before == (op == "B" and name ~= "zero_bubble" and 2 or 1), op)
      alive = alive + (op == "F" and 1 or op == (name == "zero_bubble" and "W" or "B") and -1 or 0)
      most = math.max(most, alive)
    end)
  end
  local x = accel.randn(micros * 512, WIDTH) -- half a megabyte a message
  model(x) -- the first time ranks agree on what passes
  notes = {}
  model(x)
  assert(alive == 0 and most == schedule.in_flight(name, ranks.rank, STAGES, chunks, micros), ("%s: %d alive"):format(name, most))
  local busy = 3 * micros * chunks
  return (replay(dist.all_gather_object(notes, { max_bytes = 1 << 24 })) - busy) / busy
end

for _, micros in ipairs { STAGES, 2 * STAGES, 3 * STAGES } do
  for name, want in pairs {
    gpipe = (STAGES - 1) / micros, ["1f1b"] = (STAGES - 1) / micros, interleaved = (STAGES - 1) / (2 * micros),
    zero_bubble = (STAGES - 1) / (3 * micros),
  } do
    local got = measure(name, name == "interleaved" and 2 or 1, micros)
    assert(math.abs(got - want) <= 0.05 * want, ("%s, %d micro-batches: idle %.4f of the busy time, by the formula %.4f"):format(name,
      micros, got, want))
    if ranks.rank == 0 then print(("%d stages %2d micro-batches %-11s %.4f %.4f"):format(STAGES, micros, name, got, want)) end
  end
end
