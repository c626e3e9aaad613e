--- A table with string keys that remembers the order in which they were set: state_dicts and named
--- parameters. Entries are raw fields, so that C code (accel.save) and `t[name]` see an ordinary table.
--- `pairs` visits them in order, and so does the call form: `for name, value in t do`.
local M = {}

local orders = setmetatable({}, { __mode = "k" })

---@param t table
local function iterate(t)
  local order, i = orders[t], 0
  return function()
    while true do
      i = i + 1
      local key = order[i]
      if key == nil then return nil end
      local value = rawget(t, key)
      if value ~= nil then return key, value end
    end
  end
end

local function make()
  local order, seen, step, at = {}, {}, nil, nil
  local meta = {}
  meta.__index = nil
  meta.__newindex = function(t, key, value)
    if value == nil then return end
    if not seen[key] then
      seen[key] = true
      order[#order + 1] = key
    end
    rawset(t, key, value)
  end
  meta.__pairs = function(t) return iterate(t), t, nil end
  -- A for loop passes the previous key, nil at its start: every loop begins at the first entry, even after one that was
  -- left by break, and loops over one table may be nested.
  meta.__call = function(t, ...)
    local _, last = ...
    if select("#", ...) == 2 and (last == nil or last ~= at) then
      step = iterate(t)
      while last ~= nil do
        local key = step()
        if key == last or key == nil then break end
      end
    end
    step = step or iterate(t)
    local key, value = step()
    at = key
    if key == nil then step = nil end
    return key, value
  end
  local t = setmetatable({}, meta)
  orders[t] = order
  return t
end

--- An empty ordered table.
M.new = make

--- Whether t is such a table.
---@param t any
function M.is(t) return orders[t] ~= nil end

--- Visits (key, value) in order. Plain tables are visited in sorted order of their string keys.
---@param t table
function M.iterate(t)
  if orders[t] then return iterate(t) end
  local keys, i = {}, 0
  for key in next, t do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return function()
    i = i + 1
    if keys[i] ~= nil then return keys[i], t[keys[i]] end
  end
end

return setmetatable(M, { __call = make })
