--- A double of accel.elastic.core for tests: ranks are lost at chosen collectives, without a process that dies. A "lost" rank leaves its
--- loop by an error, and the world of the others becomes their group. All ranks make it from the same plan, before the Accelerator:
---
---   local double = lost_ranks { { at = 7, victim = 1, when = "after" }, ... }
---
--- and set double.armed once everything is prepared. at: the number of a collective in its generation, from 1. when:
--- "before": nobody gets through it. "after": all ranks do, but only some of the others learn of that, as if the abort came late for them.
--- seed chooses who.
local accel = require "accel"
local dist = accel.dist

local ORDER <const> = { begin = 0, prepared = 1, applying = 2, applied = 3 }
local PATCHED <const> = { "all_reduce", "barrier", "broadcast", "all_gather_into_tensor", "all_to_all_single", "all_gather", "all_gather_object",
  "broadcast_object_list" }

return function(plan, seed)
  local raw, self = {}, { generation = 1, count = 0, total = 0, word = { 0, 0 }, armed = false }
  for _, name in ipairs(PATCHED) do raw[name] = dist[name] end
  for _, name in ipairs { "get_rank", "get_world_size", "get_local_rank" } do raw[name] = dist[name] end
  local world, me = raw.get_world_size(), raw.get_rank()

  -- groups of all generations
  local members, groups = {}, {}
  members[1] = {}
  for r = 0, world - 1 do members[1][r + 1] = r end
  groups[1] = dist.new_group(members[1])
  for k, loss in ipairs(plan) do
    members[k + 1] = {}
    for i, r in ipairs(members[k]) do
      if i - 1 ~= loss.victim % #members[k] then table.insert(members[k + 1], r) end
    end
    groups[k + 1] = dist.new_group(members[k + 1])
  end
  local function group() return groups[self.generation] end
  local function is_world(g) return g == nil or g == dist.group.WORLD end
  local function place(k)
    for i, r in ipairs(members[k]) do
      if r == me then return i - 1 end
    end
  end

  local function membership() error({ code = "membership", message = "the double lost a rank" }, 0) end
  local gone = false -- the generation is to be left

  --- Whether the collective that comes is one that a rank is lost in. "raise", "late", "lost", or nil.
  local function fate()
    if gone then return "raise" end
    if not self.armed then return nil end
    local loss = plan[self.generation]
    self.count, self.total = self.count + 1, self.total + 1
    if not loss or self.count ~= loss.at then return nil end
    gone = true
    local victim = loss.victim % #members[self.generation] == place(self.generation)
    if victim then return loss.when == "before" and "lost" or "lost after" end
    if loss.when == "before" then return "raise" end
    return accel.util.Random(seed * 31 + self.generation * 7 + me):below(2) == 0 and "late" or "through"
  end

  local function patched(name, position)
    return function(...)
      local args = table.pack(...)
      local o = args[position]
      if type(o) == "string" then o = { op = o } end
      if type(o) == "table" and getmetatable(o) == nil or o == nil then
        local copy = {}
        for k, v in next, o or {} do copy[k] = v end
        if not is_world(copy.group) then return raw[name](...) end
        copy.group = group()
        if copy.src then copy.src = members[self.generation][copy.src + 1] end
        args[position] = copy
        args.n = math.max(args.n, position)
      end
      local how = fate()
      if how == "raise" then membership() end
      if how == "lost" then error({ code = "lost" }, 0) end
      local result = raw[name](table.unpack(args, 1, args.n))
      if how == "late" or how == "lost after" then
        local function fails() if how == "late" then membership() else error({ code = "lost" }, 0) end end
        if type(result) == "userdata" and result.wait then
          return { wait = function() result:wait() fails() end }
        end
        fails()
      end
      return result
    end
  end
  local POSITION <const> = { all_reduce = 2, barrier = 1, broadcast = 2, all_gather_into_tensor = 3, all_to_all_single = 3, all_gather = 3,
    all_gather_object = 2, broadcast_object_list = 2 }
  for _, name in ipairs(PATCHED) do dist[name] = patched(name, POSITION[name]) end
  function dist.get_rank(g) return is_world(g) and place(self.generation) or raw.get_rank(g) end
  function dist.get_local_rank() return place(self.generation) end
  function dist.get_world_size(g) return is_world(g) and #members[self.generation] or raw.get_world_size(g) end

  --- The phase words of all members of the generation, in order.
  local function report() return raw.all_gather_object(self.word, { group = group() }) end

  --- The verdict of section 2.2 from these.
  local function verdict(words)
    local top, all = 0, true
    for _, w in ipairs(words) do
      if w[2] >= ORDER.applying then top = math.max(top, w[1]) end
    end
    local newest = 0
    for _, w in ipairs(words) do newest = math.max(newest, w[1]) end
    for _, w in ipairs(words) do all = all and w[1] == newest and w[2] >= ORDER.prepared end
    return all and newest or math.max(top, newest - 1)
  end

  local core = { version = require "accel.elastic.core".version }
  function core.active() return true end
  function core.observes() return false end
  function core.asked() return false end
  function core.generation() return self.generation end
  function core.phase(kind, u) self.word = { u, ORDER[kind] } end
  function core.recover()
    assert(gone, "recover without a loss")
    local committed, before = verdict(report()), place(self.generation)
    local loss = plan[self.generation]
    local lost = loss.victim % #members[self.generation]
    self.generation, self.count, gone = self.generation + 1, 0, false
    self.word = committed == self.word[1] and { committed, math.max(self.word[2], ORDER.applying) } or { committed + 1, ORDER.begin }
    return {
      generation = self.generation, rank = place(self.generation), size = #members[self.generation], rank_before = before,
      lost = { lost }, joined = {}, healing = {}, kind = "lost", leaves = false, committed = committed, seconds = 0, reason = "the double",
    }
  end

  --- What a lost rank does in the place of dying. Returns the last update that counts.
  function self.die() return verdict(report()) end

  --- At the end of a case, on all ranks: the collectives are the real ones again.
  function self.close()
    for name, f in next, raw do dist[name] = f end
    raw.barrier()
  end

  package.loaded["accel.elastic.core"] = core
  return self
end
