--- The placement algorithm of infer_auto_device_map: it puts parts of a model on devices one after the other, as accelerate
--- does.
---
--- A queue holds the remaining parts, in the order of the model. The part at its head goes to the current device if it fits there
--- together with the parts that hold parameters tied to its own. Otherwise one of those is split into its children, then the part
--- itself. If nothing can be split, the next device follows. A device that was left is not used again.
local module_sizes = require "accel.nn.module_sizes"
local ordered = require "accel.util.ordered"

local WHO <const> = "infer_auto_device_map"

local function is_module(x) return require("accel.nn.module").is_module(x) end

---@param name string
---@param prefix string
local function is_below(name, prefix) return (name .. "."):sub(1, #prefix + 1) == prefix .. "." end

--- The reference asks whether "<name>." is anywhere in the parameter's name, not only at its start.
local function holds(parameter, name) return (parameter .. "."):find(name .. ".", 1, true) ~= nil end

--- The parameters outside of `name` that are tied to one inside of it.
local function tied_outside(tied, name)
  local out = {}
  for _, group in ipairs(tied) do
    local inside, outside = false, {}
    for _, p in ipairs(group) do
      if holds(p, name) then inside = true else outside[#outside + 1] = p end
    end
    if inside then table.move(outside, 1, #outside, #out + 1, out) end
  end
  return out
end

local function position(queue, name)
  for i, entry in ipairs(queue) do
    if entry[1] == name then return i end
  end
end

return function(model, devices, max_memory, o)
  local classes = module_sizes.class_set(WHO, o.no_split_module_classes)
  local sizes = module_sizes.compute_module_sizes(model, { dtype = o.dtype, special_dtypes = o.special_dtypes })
  local tied = module_sizes.find_tied_parameters(model)
  local queue = module_sizes.direct(model, "", true)
  local map, used, buffers, current = ordered(), {}, {}, 1
  local no_split = {}
  for name in next, classes do no_split[#no_split + 1] = name end
  if devices[#devices] ~= "disk" then devices[#devices + 1] = "disk" end
  -- devices that keep room for a layer which is brought in
  local reserves = { cpu = true }
  if devices[1] ~= "disk" then reserves[devices[1]] = true end
  if devices[1] == "mps" then reserves = { mps = true } end

  local function size_of(name) return rawget(sizes, name) or 0 end
  local function say(fmt, ...)
    if o.verbose then print(fmt:format(...)) end
  end

  --- Parameters and children of a module that can be split, under its name. nil if it cannot.
  local function cut(name, object)
    if not is_module(object) or next(object:named_children()) == nil or classes[module_sizes.class_name(object)] then return nil end
    return module_sizes.direct(object, name .. ".", false)
  end

  local most, most_names
  local function find_largest(list, modules_only)
    local kept = {}
    for _, entry in ipairs(list) do
      if not modules_only or is_module(entry[2]) then kept[#kept + 1] = entry end
    end
    most, most_names = module_sizes.get_max_layer_size(kept, sizes, no_split)
  end
  find_largest(queue, false)

  --- Bytes of a part with all parts tied to it, and those parts. A parameter whose part was placed before needs no more room.
  local function with_ties(outside, name, list)
    local bytes, parts = size_of(name), {}
    for _, p in ipairs(outside) do
      for _, entry in ipairs(list) do
        if p:sub(1, #entry[1] + 1) == entry[1] .. "." then
          bytes = bytes + size_of(entry[1]) - size_of(p)
          parts[#parts + 1] = entry
          break
        end
      end
    end
    return bytes, parts
  end

  --- The first part of the queue, cut as far as needed, that has at most `limit` bytes: taken out of the queue, or nil.
  local function fallback(limit)
    if limit < 0 then return nil end
    local search, found = table.move(queue, 1, #queue, 1, {}), nil
    while search[1] and not found do
      local entry = table.remove(search, 1)
      if with_ties(tied_outside(tied, entry[1]), entry[1], search) <= limit then
        found = entry
      else
        for i, part in ipairs(cut(entry[1], entry[2]) or {}) do table.insert(search, i, part) end
      end
    end
    if not found then return nil end
    local at = 0
    repeat -- the modules around it are cut
      at = found[1]:find(".", at + 1, true)
      local around = at and position(queue, found[1]:sub(1, at - 1))
      if around then
        local parent = table.remove(queue, around)
        for i, part in ipairs(module_sizes.direct(parent[2], parent[1] .. ".", false)) do table.insert(queue, around + i - 1, part) end
      end
    until not at
    return table.remove(queue, position(queue, found[1]))
  end

  local held = {} -- bytes on a device. used also includes the memory that a finished device keeps free
  local function place(name, object, device, bytes, parts)
    held[device] = (held[device] or 0) + bytes
    used[device] = (used[device] or 0) + bytes
    map[name] = device
    for _, part in ipairs(parts) do
      local i = position(queue, part[1])
      if i then table.remove(queue, i) end
      map[part[1]] = device
    end
    if not o.offload_buffers and is_module(object) then
      buffers[device] = (buffers[device] or 0) + module_sizes.compute_module_total_buffer_size(object, {
        dtype = o.dtype, special_dtypes = o.special_dtypes })
    end
  end

  --- Splits the first of the tied parts that can be split. Returns whether there was one.
  local function cut_tied(parts, name, object)
    for _, part in ipairs(parts) do
      local children = cut(part[1], part[2])
      if children then
        local i = position(queue, part[1])
        table.remove(queue, i)
        for k, child in ipairs(children) do table.insert(queue, i + k - 1, child) end
        table.insert(queue, 1, { name, object })
        find_largest(queue, true)
        return true
      end
    end
    return false
  end

  --- Tries to place the part. false: the next device follows, with the part at the head of the queue again.
  local function treat(name, object)
    local device = devices[current]
    local kept = {}
    for _, other in ipairs(most_names) do
      if not is_below(other, name) then kept[#kept + 1] = other end
    end
    most_names = kept
    if #most_names == 0 then find_largest(queue, true) end
    local reserved = device ~= "disk" and reserves[device] and most or 0
    local limit, taken, size = device ~= "disk" and max_memory[device] - reserved or math.huge, used[device] or 0, size_of(name)
    local outside = tied_outside(tied, name)
    local bytes, parts = with_ties(outside, name, queue)
    if taken + bytes <= limit then
      say("%s: %s bytes on %s", name, bytes, device)
      place(name, object, device, bytes, parts)
      return true
    end
    if #outside > 0 and taken + size <= limit and cut_tied(parts, name, object) then return true end
    if taken + size >= limit then
      local children = cut(name, object)
      if children then
        say("%s: cut, %s bytes do not fit on %s", name, size, device)
        for i, child in ipairs(children) do table.insert(queue, i, child) end
        find_largest(queue, true)
        return true
      end
    end
    if taken == 0 and o.fallback_allocation and device ~= "disk" then
      local found = fallback(max_memory[device] - math.max(most, bytes))
      if found then
        table.insert(queue, 1, { name, object })
        table.insert(queue, 1, found)
        return true
      end
    end
    say("%s: does not fit on %s", name, device)
    used[device] = taken + reserved
    return false
  end

  --- Buffers of the blocks that were split, which are not in the queue. Each goes to the device of the part that was placed last in its
  --- block, or to the next one with room for it. The reference gives them no device, so that its maps do not cover the model.
  local function place_buffers()
    local at, place_of = {}, {}
    for i, device in ipairs(devices) do place_of[device] = i end
    for name, device in ordered.iterate(map) do
      repeat
        at[name], name = math.max(at[name] or 1, place_of[device]), name:match "^(.*)%.[^.]*$" or ""
      until name == ""
    end
    for name in pairs(model:named_buffers()) do
      local block, covered = name:match "^(.*)%.[^.]*$", map[name] ~= nil
      local above = block
      while above and not covered do covered, above = map[above] ~= nil, above:match "^(.*)%.[^.]*$" end
      if not covered then
        local i, size = at[block] or 1, size_of(name)
        while devices[i] ~= "disk" and (held[devices[i]] or 0) + size > max_memory[devices[i]] do i = i + 1 end
        local device = devices[i]
        say("%s: %s bytes on %s", name, size, device)
        map[name], held[device] = device, (held[device] or 0) + size
        if not o.offload_buffers then buffers[device] = (buffers[device] or 0) + size end
      end
    end
  end

  while #queue > 0 do
    local entry = table.remove(queue, 1)
    if not treat(entry[1], entry[2]) then
      current = current + 1
      table.insert(queue, 1, entry)
    end
  end
  place_buffers()
  return map, used, buffers
end
