-- Prepared loaders taken up again: after every possible batch of every shape of loader, with another number of ranks or
-- another batch size, and what is said where that cannot be. The state is the place in the data, the same on all ranks.
-- On 1 to 4 ranks.
--   accel-run tests/stdlib/accelerator/loader_resume_test.lua
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 2, 3, 4 } then return end

local support = dofile(ranks.tests .. "support/loaders.lua")
local data, dist = accel.data, accel.dist
local P, same, fails = ranks.size, ranks.same, ranks.fails
local numbers, pass = support.numbers, support.pass
local make = support.accelerator

local Dynamic = data.Sampler:extend "Dynamic"
function Dynamic:init(n) self.n = n end
function Dynamic:len() return (self.n + 2) // 3 * 2 end
function Dynamic:order(epoch, seed)
  local order, batches = data.RandomSampler(self.n):order(epoch, seed), {}
  for i = 1, self.n, 3 do
    batches[#batches + 1] = { order[i] }
    batches[#batches + 1] = { order[i + 1] or order[i], order[i + 2] }
  end
  return batches
end

--- Kinds of loaders: each makes a new one, as a new process would.
local kinds = {
  sequential = function(a, n, b) return a:prepare(data.DataLoader(numbers(n), { batch_size = b })) end,
  shuffled = function(a, n, b) return a:prepare(data.DataLoader(numbers(n), { batch_size = b, shuffle = true })) end,
  dropping = function(a, n, b)
    return a:prepare(data.DataLoader(numbers(n), { batch_size = b, shuffle = true, drop_last = true }))
  end,
  dynamic = function(a, n) return a:prepare(data.DataLoader(numbers(n), { batch_sampler = Dynamic(n) })) end,
  stream = function(a, n, b) return a:prepare(data.DataLoader(support.Count(n), { batch_size = b })) end,
  singles = function(a, n) return a:prepare(data.DataLoader(numbers(n), { batch_size = false })) end,
}

local values = function(batch)
  local x = type(batch) == "table" and batch[1] or batch
  return x:tolist()
end

--- Every batch of two epochs, with the state as it was when the batch was handed out.
local function record(loader)
  local batches, states = {}, {}
  for epoch = 1, 2 do
    batches[epoch] = {}
    for batch in loader() do
      table.insert(batches[epoch], values(batch))
      states[#states + 1] = { epoch = epoch, k = #batches[epoch], state = loader:state_dict() }
    end
  end
  return batches, states
end

local function read(loader)
  local all = {}
  for batch in loader() do all[#all + 1] = values(batch) end
  return all
end

for name, kind in accel.pairs(kinds) do
  for _, n in ipairs { 0, 1, 7, 16, 25 } do
    for k = 0, 3 do
      local split, even = k & 1 ~= 0, k & 2 ~= 0
      local b = split and 2 * P or 2
      if not (split and (name == "dynamic" or name == "singles")) then
        local a = make { split_batches = split, even_batches = even, data_seed = 11 }
        local what = ("%s, n=%d split=%s even=%s"):format(name, n, tostring(split), tostring(even))
        local batches, own = record(kind(a, n, b))
        if even then support.alike(own, what .. ": states") end
        local states = dist.all_gather_object(own)[1] -- rank 0 has the most batches
        for _, mine in ipairs(own) do
          for _, at in ipairs(states) do
            if at.epoch == mine.epoch and at.k == mine.k then same(mine.state, at.state, what .. ": as on rank 0") end
          end
        end
        for _, at in ipairs(states) do
          local label = ("%s, after batch %d of epoch %d"):format(what, at.k, at.epoch)
          -- a state goes through a file
          local state = accel.json.decode(accel.json.encode(at.state))
          local loader = kind(make { split_batches = split, even_batches = even, data_seed = 99 }, n, b)
          loader:load_state_dict(state)
          local left = table.move(batches[at.epoch], at.k + 1, #batches[at.epoch], 1, {})
          assert(state.epoch == at.epoch - 1 or #left == 0, label)
          if state.epoch == at.epoch - 1 then -- otherwise the next epoch begins
            if name ~= "stream" then assert(#loader == #left, label .. ": length") end
            same(read(loader), left, label)
          end
          assert(loader.iteration == at.epoch, label .. ": the next epoch")
          if name ~= "stream" then assert(#loader == #batches[1], label .. ": the next epoch is a whole one") end
          if at.epoch == 1 then same(read(loader), batches[2], label .. ": the next epoch") end
        end
        if #states > 0 then assert(states[#states].state.epoch == 2, "after the last batch: the next epoch") end
      end
    end
  end
end

do -- 16 samples by 4, left after two batches; the look-ahead does not count; between passes
  local a = make()
  local loader = a:prepare(data.DataLoader(numbers(16 * P), { batch_size = 4 }))
  local state
  for _ in loader() do
    state = loader:state_dict()
    if state.samples == 8 * P then break end
  end
  assert(state.epoch == 0 and state.length == 16 * P)
  assert(loader:state_dict().samples == 0 and loader:state_dict().epoch == 1)
  local again = a:prepare(data.DataLoader(numbers(16 * P), { batch_size = 4 }))
  again:load_state_dict(state)
  again:set_epoch(0) -- as a script does at the top of its epoch
  assert(#again == 2 and #pass(again) == 2 and #pass(again) == 4)
  again:load_state_dict(state)
  again:set_epoch(1)
  assert(#pass(again) == 4 and again.iteration == 2)
  -- a pass under way ends
  fails("this pass is over", function()
    for _ in again() do again:load_state_dict(state) end
  end)
  assert(#pass(again) == 2 and not a.gradient_state.in_dataloader)
  for _ in again() do break end
  again:load_state_dict(state)
  same(accel.accelerator.skip_first_batches(again, 1):len(), 1, "skip from a resumed place")
  -- a loader that stands inside a pass when it is prepared
  local plain = data.DataLoader(numbers(16 * P), { batch_size = 4 })
  plain:load_state_dict { epoch = 3, position = P, seed = 5, batch_size = 4 }
  local prepared = a:prepare(plain)
  assert(prepared.iteration == 3 and #prepared == 3)
  local singles = data.DataLoader(numbers(3 * P), { batch_size = false })
  singles:load_state_dict { epoch = 0, position = P, seed = 5, batch_size = false }
  assert(#a:prepare(singles) == 2)
  local by_sampler = data.DataLoader(numbers(6 * P), {
    batch_sampler = data.BatchSampler(data.SequentialSampler(6 * P), 2),
  })
  by_sampler:load_state_dict { epoch = 0, position = 2 * P, seed = 5 }
  assert(#a:prepare(by_sampler) == 1)
end

do -- another number of ranks, another batch size: the place is a number of samples
  local n = 120
  local order = data.RandomSampler(n):order(2, 21)
  local expected = {}
  for i, p in ipairs(order) do expected[i] = p - 1 end
  for _, b in ipairs { 1, 2, 3, 5 } do
    for samples = 0, n - 1 do
      local loader = make():prepare(data.DataLoader(numbers(n), { batch_size = b, shuffle = true }))
      local state = { epoch = 2, samples = samples, seed = 21, length = n }
      loader:load_state_dict(state)
      same(loader:state_dict().samples, samples, "the state of a resumed loader")
      if samples % 20 == 0 or samples % 13 == 0 then
        local rest = {}
        for batch in loader() do
          same(loader.row0, samples + #rest + dist.get_rank() * b, "the place of the batch in the pass")
          for _, list in ipairs(dist.all_gather_object(values(batch))) do
            for _, x in ipairs(list) do rest[#rest + 1] = x end
          end
        end
        assert(P == 1 or #rest == -(-(n - samples) // (b * P)) * b * P, "batches are even")
        rest = table.move(rest, 1, n - samples, 1, {})
        same(rest, table.move(expected, samples + 1, n, 1, {}), ("batch size %d after %d samples"):format(b, samples))
        assert(loader:state_dict().epoch == 3)
        assert(#loader == -(-n // (b * P)), "the next pass is a whole one")
      end
    end
  end
end

do -- states that belong to something else
  local a = make()
  local sampler = data.RandomSampler(12 * P, { seed = 3 })
  local loader = a:prepare(data.DataLoader(numbers(12 * P), { batch_size = 2, sampler = sampler }))
  local function load(state) loader:load_state_dict(state) end
  fails("not the state of a loader", load, {})
  fails("not the state of a loader", load, nil)
  fails("samples is -1", load, { epoch = 0, samples = -1 })
  fails("the state is of seed 4, this loader's sampler has 3", load, { epoch = 0, samples = 0, seed = 4 })
  fails(("from a pass over 7 samples, but the data has %d"):format(12 * P), load,
    { epoch = 0, samples = 2 * P, length = 7, seed = 3 })
  fails("the state counts batches, this loader samples", load, { epoch = 0, batches = P, seed = 3 })
  local dynamic = kinds.dynamic(a, 12)
  fails("the state counts samples, this loader batches", dynamic.load_state_dict, dynamic,
    { epoch = 0, samples = 2 * P })
  if P > 1 then
    fails(("%d batches into a pass"):format(P + 1), dynamic.load_state_dict, dynamic, { epoch = 0, batches = P + 1 })
  end
end
case "a run taken up within an epoch"
