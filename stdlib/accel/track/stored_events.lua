--- Which steps of which tags the event files of a lost process hold, for the rank that continues its run (tensorboard.lua).
local accel = require "accel"
local core = require "accel.file.core"

local M = {}

--- The event files in a folder and in the folders in it.
---@param folder string
---@return table<string, string> folder by path
function M.files(folder)
  local out = {}
  local function add(dir, deeper)
    for _, name in ipairs(accel.listdir(dir) or {}) do
      local path = dir .. "/" .. name
      if name:find "tfevents" then out[path] = dir elseif deeper then add(path, false) end
    end
  end
  add(folder, true)
  return out
end

--- The fields of a message of protocol buffers: calls fn(number, value), which is an integer or the bytes.
local function each_field(s, fn)
  local at = 1
  local function varint()
    local n, shift = 0, 0
    while true do
      local byte = s:byte(at)
      if not byte then return nil end
      n, at, shift = n | (byte & 127) << shift, at + 1, shift + 7
      if byte < 128 or shift > 63 then return n end
    end
  end
  while at <= #s do
    local key = varint()
    local kind, value = key and key & 7, nil
    if kind == 0 then value = varint()
    elseif kind == 1 or kind == 5 then
      local n = kind == 1 and 8 or 4
      value, at = s:sub(at, at + n - 1), at + n
    elseif kind == 2 then
      local n = varint()
      if not n or n < 0 then return end
      value, at = s:sub(at, at + n - 1), at + n
    else return end
    fn(key >> 3, value)
  end
end

--- The greatest step of each tag, by folder and tag.
---@param folder string of the run
---@param before table<string, string> files that are older than the run
---@return table<string, integer>
function M.steps(folder, before)
  local steps = {}
  for path, dir in accel.pairs(M.files(folder)) do
    local file = not before[path] and core.open_tfrecord(path)
    local record = file and file:next()
    while record do -- the last one may be cut off
      local step, summary = 0, nil
      each_field(record, function(number, value)
        if number == 2 then step = value elseif number == 5 then summary = value end
      end)
      each_field(summary or "", function(number, value)
        if number == 1 then
          each_field(value, function(n, tag)
            if n == 1 then steps[dir .. "\n" .. tag] = math.max(steps[dir .. "\n" .. tag] or math.mininteger, step) end
          end)
        end
      end)
      record = file:next()
    end
    if file then file:close() end
  end
  return steps
end

return M
