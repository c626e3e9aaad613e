-- pairs in sorted order: numbers, then strings, then booleans, then everything else in next's order, so that all ranks
-- see one program whatever the addresses and seeds of their processes. The host installs it as the global. Under other
-- interpreters it is accel.pairs. __pairs is honoured. Keys are taken when the loop begins: fields may be changed and
-- removed inside it, new ones are not visited.
local next, type, sort, getmetatable = next, type, table.sort, debug.getmetatable

local RANK = { number = 1, string = 2, boolean = 3 }

-- Keys of t by kind: lists[1] numbers, [2] strings, [3] booleans, [4] others. Each is nil while empty.
local function collect(t)
  local lists, sorted, last = {}, true, nil
  for key in next, t do
    local rank = RANK[type(key)] or 4
    local list = lists[rank]
    if list then
      if rank <= 2 and last and sorted and key < list[#list] then sorted = false end
      list[#list + 1] = key
    else
      lists[rank] = { key }
    end
    last = key
  end
  return lists, sorted
end

local function ordered_keys(t)
  local lists, sorted = collect(t)
  if not sorted then
    for rank = 1, 2 do
      if lists[rank] then sort(lists[rank]) end
    end
  end
  if lists[3] then sort(lists[3], function(a, b) return not a and b end) end
  local keys
  for rank = 1, 4 do
    local list = lists[rank]
    if list then
      if keys then
        table.move(list, 1, #list, #keys + 1, keys)
      else
        keys = list
      end
    end
  end
  return keys or {}
end

return function(t)
  local meta = getmetatable(t)
  local custom = meta and meta.__pairs
  if custom then
    local f, s, k = custom(t)
    return f, s, k
  end
  if type(t) ~= "table" then
    error(("bad argument #1 to 'pairs' (table expected, got %s)"):format(meta and meta.__name or type(t)), 2)
  end
  local keys, i = ordered_keys(t), 0
  return function(_, _)
    local key, value
    repeat
      i = i + 1
      key = keys[i]
      if key == nil then return nil end
      value = t[key]
    until value ~= nil
    return key, value
  end, t, nil
end
