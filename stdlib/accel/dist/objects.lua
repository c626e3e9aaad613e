--- Collectives of plain Lua data and tensors, with torch.distributed's names: all_gather_object, gather_object,
--- broadcast_object_list, scatter_object_list, send_object_list, recv_object_list. Part of accel.dist.
---
--- Objects travel as bytes of accel.encode: sizes first, then the bytes. An object that cannot be encoded is an error
--- on every rank of the group, which names the rank and the way to the value, so that nobody is left waiting.
local accel = require "accel.core"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

local none = options.none
local BYTES, SIZES = { dtype = "u8", device = "cpu" }, { dtype = "i64", device = "cpu" }

local function dist() return require "accel.dist" end

-- ---- bytes ----

--- The object as a u8 tensor and its size. If it cannot be encoded, the reason instead, and minus its size.
local function pack(object, max_bytes)
  local ok, bytes = pcall(accel.encode, object, { tensor = true, max_bytes = max_bytes })
  if ok then return bytes, bytes.shape[1] end
  bytes = accel.encode(tostring(bytes), { tensor = true })
  return bytes, -bytes.shape[1]
end

local function unpack_bytes(who, rank, bytes, max_bytes)
  local object, message, code = accel.decode(bytes, { max_bytes = max_bytes })
  if code then raise("%s: from rank %d: %s", who, rank, message) end
  return object
end

--- Raises the reason that came in place of an object.
local function refuse(who, rank, bytes)
  raise("%s: rank %d: %s", who, rank, tostring((accel.decode(bytes))))
end

local function room(size) return accel.empty({ math.abs(size) }, BYTES) end

--- Under the backend "sim" other ranks send nothing: this rank's object replaces theirs.
local function simulated(group) return dist().get_backend(group) == "sim" end

--- The global rank of a group's r-th member, from 0.
local function global(group, r)
  if group == nil then return r end
  return dist().get_process_group_ranks(group)[r + 1]
end

--- The group rank that the option `name` (global) or "group_" .. name gives.
local function root(who, o, name)
  local d, inside = dist(), o["group_" .. name]
  local size = d.get_world_size(o.group)
  if inside == nil then
    local rank = o[name] or 0
    for r = 0, size - 1 do
      if global(o.group, r) == rank then return r end
    end
    raise("%s: %s = %s is not a rank of the group", who, name, tostring(rank))
  end
  if o[name] ~= nil then raise("%s: give %s or group_%s, not both", who, name, name) end
  if math.type(inside) ~= "integer" or inside < 0 or inside >= size then
    raise("%s: group_%s = %s is not one of the %d ranks of the group", who, name, tostring(inside), size)
  end
  return inside
end

--- One integer of every rank, as a list.
local function sizes_of_all(size, group)
  local d = dist()
  local all = accel.empty({ d.get_world_size(group) }, SIZES)
  d.all_gather_into_tensor(all, accel.tensor({ size }, SIZES), { group = group })
  local sizes = all:tolist()
  if simulated(group) then
    for r = 1, #sizes do sizes[r] = math.abs(size) end
    sizes[d.get_rank(group) + 1] = size
  end
  return sizes
end

--- The parts of all ranks, as tensors.
local function bytes_of_all(bytes, sizes, group)
  local parts = {}
  for r, size in ipairs(sizes) do parts[r] = room(size) end
  dist().all_gather(parts, bytes, { group = group })
  if simulated(group) then
    for r in ipairs(parts) do parts[r] = bytes end
  end
  return parts
end

--- With a reason among the sizes, all ranks learn it and raise.
local function raise_refused(who, bytes, sizes, group)
  for r, size in ipairs(sizes) do
    if size < 0 then refuse(who, global(group, r - 1), bytes_of_all(bytes, sizes, group)[r]) end
  end
end

--- All members send a part to each member: to[r], from[r] bytes.
local function exchange(inp, to, from, group)
  local total = 0
  for _, n in ipairs(from) do total = total + n end
  local out = room(total)
  dist().all_to_all_single(out, inp, { input_split_sizes = to, output_split_sizes = from, group = group })
  if not simulated(group) then return out end
  local rank, at, place = dist().get_rank(group), 1, 1
  for r = 1, rank do at = at + to[r] end
  local own = inp:narrow(1, at, to[rank + 1])
  for _, n in ipairs(from) do
    if n == own.shape[1] then out:narrow(1, place, n):copy_(own) end
    place = place + n
  end
  return out
end

local function zeros(n)
  local list = {}
  for r = 1, n do list[r] = 0 end
  return list
end

-- ---- all to all, all to one ----

--- The objects of all ranks, in rank order.
--- example: accel.dist.all_gather_object { loss = 0.5 } --> { { loss = 0.5 } }
---@param object any plain data and tensors
---@param opts? {group: accel.dist.Group?, max_bytes: integer?}
---@return any[]
function M.all_gather_object(object, opts, ...)
  local who = "all_gather_object"
  local o = options(who, opts, { group = none, max_bytes = none }, ...)
  local bytes, size = pack(object, o.max_bytes)
  local sizes = sizes_of_all(size, o.group)
  raise_refused(who, bytes, sizes, o.group)
  local objects = {}
  for r, part in ipairs(bytes_of_all(bytes, sizes, o.group)) do
    objects[r] = unpack_bytes(who, global(o.group, r - 1), part, o.max_bytes)
  end
  return objects
end

--- The objects of all ranks, in rank order, on rank dst. nil on the others.
--- example: accel.dist.gather_object("a", { dst = 0 }) --> { "a" }
---@param object any plain data and tensors
---@param opts? {dst: integer?, group_dst: integer?, group: accel.dist.Group?, max_bytes: integer?}
---@return any[]?
function M.gather_object(object, opts, ...)
  local who = "gather_object"
  local o = options(who, opts, { dst = none, group_dst = none, group = none, max_bytes = none }, ...)
  local n, dst = dist().get_world_size(o.group), root(who, o, "dst")
  local bytes, size = pack(object, o.max_bytes)
  local sizes = sizes_of_all(size, o.group)
  raise_refused(who, bytes, sizes, o.group)
  local to, mine = zeros(n), dist().get_rank(o.group) == dst
  to[dst + 1] = size
  local all = exchange(bytes, to, mine and sizes or zeros(n), o.group)
  if not mine then return nil end
  local objects, at = {}, 1
  for r = 1, n do
    objects[r] = unpack_bytes(who, global(o.group, r - 1), all:narrow(1, at, sizes[r]), o.max_bytes)
    at = at + sizes[r]
  end
  return objects
end

-- ---- one to all ----

--- The entries 1 .. n of a list that may have holes, as one object. n is its field n if present.
local function entries(who, list)
  if type(list) ~= "table" then raise("%s: expected list of objects, got %s", who, type(list)) end
  local n, items = math.tointeger(rawget(list, "n")) or #list, {}
  for i = 1, n do items[i] = list[i] end
  return items, n
end

local function put_entries(list, items, n)
  for i = 1, math.max(n, #list) do list[i] = items[i] end
  if rawget(list, "n") ~= nil then list.n = n end
end

--- Puts the objects of rank src into the lists of all ranks. The others' lists may be empty before.
--- example: local list = { 1, { 2 } } accel.dist.broadcast_object_list(list, 0) return list --> { 1, { 2 } }
---@param list any[] with holes, a field n gives their number
---@param src? integer
---@param opts? {src: integer?, group_src: integer?, group: accel.dist.Group?, max_bytes: integer?}
function M.broadcast_object_list(list, src, opts, ...)
  local who = "broadcast_object_list"
  if type(src) == "table" and opts == nil then src, opts = nil, src end
  local o = options(who, opts, { src = none, group_src = none, group = none, max_bytes = none }, ...)
  if src ~= nil then o.src = src end
  local d, from = dist(), root(who, o, "src")
  local mine = d.get_rank(o.group) == from
  local head, bytes, size = accel.zeros({ 2 }, SIZES), nil, nil
  local items, n = entries(who, list)
  if mine or simulated(o.group) then
    bytes, size = pack(items, o.max_bytes)
    head = accel.tensor({ size, n }, SIZES)
  end
  local where = { group_src = from, group = o.group }
  d.broadcast(head, where)
  size, n = table.unpack(head:tolist())
  bytes = bytes or room(size)
  d.broadcast(bytes, where)
  if size < 0 then refuse(who, global(o.group, from), bytes) end
  if not mine then put_entries(list, unpack_bytes(who, global(o.group, from), bytes, o.max_bytes), n) end
end

--- The bytes of all objects of a list, concatenated, and their sizes. With one that cannot be encoded: the reason, and
--- minus its size as the first.
local function pack_list(list, n, max_bytes)
  local parts, sizes = {}, {}
  for r = 1, n do
    parts[r], sizes[r] = pack(list[r], max_bytes)
    if sizes[r] < 0 then
      local bytes, size = pack(("object %d of %d: %s"):format(r, n, accel.decode(parts[r])))
      sizes = zeros(n)
      sizes[1] = -size
      return bytes, sizes
    end
  end
  return accel.cat(parts, 1), sizes
end

--- Gives every rank its object of the list that rank src has, one for each rank of the group in rank order.
--- example: accel.dist.scatter_object_list({ "mine" }, { src = 0 }) --> "mine"
---@param list any[]? of src. Others pass nil
---@param opts? {src: integer?, group_src: integer?, group: accel.dist.Group?, max_bytes: integer?}
---@return any object
function M.scatter_object_list(list, opts, ...)
  local who = "scatter_object_list"
  local o = options(who, opts, { src = none, group_src = none, group = none, max_bytes = none }, ...)
  local d, from = dist(), root(who, o, "src")
  local n, rank = d.get_world_size(o.group), d.get_rank(o.group)
  local mine, bytes, sizes = rank == from, nil, nil
  if simulated(o.group) and not mine then return nil end
  if mine then
    local given = type(list) == "table" and (math.tointeger(rawget(list, "n")) or #list)
    if given == n then
      bytes, sizes = pack_list(list, n, o.max_bytes)
    else
      local size
      bytes, size = pack(given and ("%d objects for %d ranks"):format(given, n)
        or ("expected list of objects, got %s"):format(type(list)))
      sizes = zeros(n)
      sizes[1] = -size
    end
  end
  local head = accel.tensor(sizes or zeros(n), SIZES)
  local where = { group_src = from, group = o.group }
  d.broadcast(head, where)
  sizes = head:tolist()
  if sizes[1] < 0 then
    bytes = bytes or room(sizes[1])
    d.broadcast(bytes, where)
    refuse(who, global(o.group, from), bytes)
  end
  local expect = zeros(n)
  expect[from + 1] = sizes[rank + 1]
  local out = exchange(mine and bytes or room(0), mine and sizes or zeros(n), expect, o.group)
  return unpack_bytes(who, global(o.group, from), out, o.max_bytes)
end

-- ---- one to one ----

--- Sends the objects of a list to rank dst, which has to call recv_object_list.
---@param list any[] with holes, a field n gives their number
---@param dst integer
---@param opts? {group: accel.dist.Group?, tag: integer?, max_bytes: integer?}
function M.send_object_list(list, dst, opts, ...)
  local who = "send_object_list"
  local o = options(who, opts, { group = none, tag = 0, max_bytes = none }, ...)
  local items, n = entries(who, list)
  local bytes, size = pack(items, o.max_bytes)
  local where = { group = o.group, tag = o.tag }
  dist().send(accel.tensor({ size, n }, SIZES), dst, where)
  dist().send(bytes, dst, where)
  if size < 0 then refuse(who, dist().get_rank(), bytes) end
end

--- Receives the objects that rank src sends by send_object_list into the list. Returns src.
---@param list any[]
---@param src integer
---@param opts? {group: accel.dist.Group?, tag: integer?, max_bytes: integer?}
---@return integer src
function M.recv_object_list(list, src, opts, ...)
  local who = "recv_object_list"
  local o = options(who, opts, { group = none, tag = 0, max_bytes = none }, ...)
  if type(list) ~= "table" then raise("%s: expected list to receive into, got %s", who, type(list)) end
  if simulated(o.group) then return src end
  local head, where = accel.zeros({ 2 }, SIZES), { group = o.group, tag = o.tag }
  dist().recv(head, src, where)
  local size, n = table.unpack(head:tolist())
  local bytes = room(size)
  dist().recv(bytes, src, where)
  if size < 0 then refuse(who, src, bytes) end
  put_entries(list, unpack_bytes(who, src, bytes, o.max_bytes), n)
  return src
end

return M
