--- Schedules of a pipeline: each rank's order of forward and backward passes of micro-batches through its chunks of the model, and the
--- times of messages between ranks. Pure functions: every rank computes the same.
---
---   gpipe        all forwards, then all backwards (Huang et al. 2019): activations of every micro-batch are alive
---   1f1b         after a warm-up one forward, one backward by turns (Narayanan et al. 2019): those of as many micro-batches as there are
---                stages after it, and the own one
---   interleaved  1f1b over several chunks a rank, which makes the idle time smaller by their number (Narayanan et al. 2021); the number
---                of micro-batches is a multiple of the number of stages
---   zero_bubble  1f1b whose backwards are in two parts (ZB-H1 of Qi et al. 2023): "B" gives gradients of inputs, which the stage before
---                waits for, "W" those of weights, later: rank r is r of them late, so that the wait at the end is filled. Activations
---                of as many micro-batches are alive as there are stages
---   forward      forwards only, of inference
---
--- Idle time of a rank over its busy time: (stages - 1) / micro-batches, with interleaving (stages - 1) / (micro-batches * chunks), with
--- zero_bubble (stages - 1) (F + B - W) / (micro-batches (F + B + W)), a third if F, B and W take equally long, for at least as many
--- micro-batches as stages.
local raise = require "accel.util.raise"

local M = {}

---@class accel.parallel.Action
---@field op "F"|"B"|"W"
---@field chunk integer of the rank, from 0
---@field micro integer from 1

local function gpipe(_, _, chunks, micros)
  local list = {}
  for c = 0, chunks - 1 do
    for m = 1, micros do list[#list + 1] = { op = "F", chunk = c, micro = m } end
  end
  for c = chunks - 1, 0, -1 do
    for m = 1, micros do list[#list + 1] = { op = "B", chunk = c, micro = m } end
  end
  return list
end

local function forward(_, _, chunks, micros)
  local list = {}
  for c = 0, chunks - 1 do
    for m = 1, micros do list[#list + 1] = { op = "F", chunk = c, micro = m } end
  end
  return list
end

--- One forward and one backward in turn, after `warmup` forwards. forwards[i], backwards[i] are the i-th ones.
local function by_turns(warmup, n, forwards, backwards)
  local list = {}
  for i = 1, warmup do list[i] = forwards(i) end
  for i = 1, n do
    if warmup + i <= n then list[#list + 1] = forwards(warmup + i) end
    list[#list + 1] = backwards(i)
  end
  return list
end

local function one_by_one(rank, stages, _, micros)
  return by_turns(math.min(stages - rank - 1, micros), micros,
    function(i) return { op = "F", chunk = 0, micro = i } end, function(i) return { op = "B", chunk = 0, micro = i } end)
end

--- Groups of as many micro-batches as there are stages go through all chunks, one chunk after the other.
local function interleaved(rank, stages, chunks, micros)
  if micros % stages ~= 0 then
    raise("pipeline: the interleaved schedule needs a number of micro-batches that is a multiple of the %d stages, got %d", stages,
      micros)
  end
  local n = micros * chunks
  local function at(i, backward)
    local group, rest = (i - 1) // (stages * chunks), (i - 1) % (stages * chunks)
    local chunk = rest // stages
    return { op = backward and "B" or "F", chunk = backward and chunks - 1 - chunk or chunk,
      micro = group * stages + rest % stages + 1 }
  end
  local warmup = micros == stages and n or math.min((stages - rank - 1) * 2 + (chunks - 1) * stages, n)
  return by_turns(warmup, n, function(i) return at(i) end, function(i) return at(i, true) end)
end

local function zero_bubble(rank, stages, _, micros)
  local list, weights = {}, 0
  for _, a in ipairs(one_by_one(rank, stages, nil, micros)) do
    list[#list + 1] = a
    if a.op == "B" and a.micro > rank then
      weights = weights + 1
      list[#list + 1] = { op = "W", chunk = 0, micro = weights }
    end
  end
  for m = weights + 1, micros do list[#list + 1] = { op = "W", chunk = 0, micro = m } end
  return list
end

M.known = { zero_bubble = zero_bubble, gpipe = gpipe, ["1f1b"] = one_by_one, interleaved = interleaved, forward = forward }

--- The actions of one rank, in order.
---@param name string
---@param rank integer from 0
---@param stages integer
---@param chunks integer of each rank
---@param micros integer
---@return accel.parallel.Action[]
function M.actions(name, rank, stages, chunks, micros) return M.known[name](rank, stages, chunks, micros) end

--- Units of time that the actions of a schedule take: a backward as long as two forwards, or each of its parts as long as one.
local function lengths(lists)
  for _, a in ipairs(lists[1]) do
    if a.op == "W" then return { F = 1, B = 1, W = 1 } end
  end
  return { F = 1, B = 2 }
end

--- When everything would happen if messages took no time: start and end of each action, by rank. Raises if an order waits for itself.
local function simulate(lists, stages, chunks)
  local length = lengths(lists)
  local last, done, free, next_of, left = stages * chunks - 1, {}, {}, {}, 0
  for r = 1, stages do free[r], next_of[r], left = 0, 1, left + #lists[r] end
  local function key(op, v, m) return op .. v .. ":" .. m end
  local function ready(r, a)
    local v = a.chunk * stages + r - 1
    local needs = a.op == "W" and { key("B", v, a.micro) } or a.op == "F" and (v > 0 and { key("F", v - 1, a.micro) } or {})
      or { key("F", v, a.micro), v < last and key("B", v + 1, a.micro) or nil }
    local at = free[r]
    for _, k in ipairs(needs) do
      if not done[k] then return nil end
      at = math.max(at, done[k])
    end
    return at, v
  end
  local events = {}
  while left > 0 do
    local best, rank, place
    for r = 1, stages do
      local a = lists[r][next_of[r]]
      local at, v = nil, nil
      if a then at, v = ready(r, a) end
      if at and (not best or at < best) then best, rank, place = at, r, v end
    end
    if not best then raise "pipeline: the schedule waits for itself" end
    local a = lists[rank][next_of[rank]]
    local stop = best + length[a.op]
    done[key(a.op, place, a.micro)], free[rank], next_of[rank], left = stop, stop, next_of[rank] + 1, left - 1
    events[#events + 1] = { time = best, order = 2, rank = rank - 1, action = a, stage = place, stop = stop }
  end
  return events, free
end

--- All actions and messages of one rank, in an order of all ranks without deadlocks: a message passes when its sender has it, before
--- either side's later actions.
---@param name string
---@param rank integer from 0
---@param stages integer
---@param chunks integer
---@param micros integer
---@return table[] {action=, stage=} or {from=, to=, what = "F"|"B", stage = of the receiver, micro=}
function M.plan(name, rank, stages, chunks, micros)
  local lists = {}
  for r = 0, stages - 1 do lists[r + 1] = M.actions(name, r, stages, chunks, micros) end
  local events, last = simulate(lists, stages, chunks), stages * chunks - 1
  for i = 1, #events do
    local e = events[i]
    local to = e.action.op == "F" and e.stage + 1 or e.stage - 1
    if e.action.op ~= "W" and to >= 0 and to <= last and stages > 1 then
      events[#events + 1] = { time = e.stop, order = 1, from = e.rank, to = to % stages, what = e.action.op, stage = to,
        micro = e.action.micro }
    end
  end
  for i, e in ipairs(events) do e.number = i end
  table.sort(events, function(a, b)
    if a.time ~= b.time then return a.time < b.time end
    if a.order ~= b.order then return a.order < b.order end
    return a.number < b.number
  end)
  local own = {}
  for _, e in ipairs(events) do
    if e.rank == rank or e.from == rank or e.to == rank then own[#own + 1] = e end
  end
  return own
end

--- Idle time over busy time, if a forward takes one unit and a backward two, or each of its parts one.
---@param name string
---@param stages integer
---@param chunks integer
---@param micros integer
---@return number
function M.bubble(name, stages, chunks, micros)
  local lists, longest = {}, 0
  for r = 0, stages - 1 do lists[r + 1] = M.actions(name, r, stages, chunks, micros) end
  local _, free = simulate(lists, stages, chunks)
  for _, t in ipairs(free) do longest = math.max(longest, t) end
  local busy, length = 0, lengths(lists)
  for _, a in ipairs(lists[1]) do busy = busy + length[a.op] end
  return (longest - busy) / busy
end

--- Micro-batches whose activations a rank holds at most.
---@param name string
---@param rank integer
---@param stages integer
---@param chunks integer
---@param micros integer
---@return integer
function M.in_flight(name, rank, stages, chunks, micros)
  local now, most, last = 0, 0, name == "zero_bubble" and "W" or "B"
  for _, a in ipairs(M.actions(name, rank, stages, chunks, micros)) do
    now = now + (a.op == "F" and 1 or a.op == last and -1 or 0)
    most = math.max(most, now)
  end
  return most
end

return M
