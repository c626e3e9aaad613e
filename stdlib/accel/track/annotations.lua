--- What people and sweeps note about a run: its group, tags, notes, and its place in a sweep. They are records of kind "annotation" in the
--- run store, one for each key, of which the last one counts. Used by run.lua, store.lua, ui/server.lua and accel.cli.sweep.
local accel = require "accel"

local M = {}

--- The keys, and what their values are: a "text", a "list" of texts, or a "table" of plain data.
M.KEYS = { group = "text", tags = "list", notes = "text", sweep = "table" }

local MOST_BYTES <const> = 65536

--- The value of a key as its record has it. nil and a message if the key or the value is wrong.
---@param key string
---@param value any
---@return string? data, string? message
function M.encode(key, value)
  local kind = M.KEYS[key]
  if not kind then return nil, ("no annotation '%s'; there are group, notes, sweep, tags"):format(tostring(key)) end
  local data = value
  if kind == "text" then
    if type(value) ~= "string" then return nil, ("%s must be a text, got %s"):format(key, type(value)) end
  else
    if type(value) ~= "table" then return nil, ("%s must be a %s, got %s"):format(key, kind == "list" and "list of texts" or "table", type(value)) end
    if kind == "list" then
      for i, word in ipairs(value) do
        if type(word) ~= "string" or word == "" then return nil, ("%s: entry %d must be a text that is not empty"):format(key, i) end
      end
      value = accel.json.array(table.move(value, 1, #value, 1, {}))
    end
    data = accel.json.encode(value)
  end
  if #data > MOST_BYTES then return nil, ("%s has %d bytes, more than %d"):format(key, #data, MOST_BYTES) end
  return data
end

--- The value that a record has. nil if it cannot be read.
---@param key string
---@param data string
---@return any
function M.decode(key, data)
  local kind = M.KEYS[key]
  if not kind or kind == "text" then return data end
  local ok, value = pcall(accel.json.decode, data)
  return ok and type(value) == "table" and value or nil
end

local place
--- The place of this process in a sweep, which accel-run sweep hands to its runs in ACCEL_SWEEP. Only the first run of a process gets it.
---@return {id: string, store: string, sweep: string, parameters: table, trial: integer, command: string}?
function M.place()
  local text = place == nil and os.getenv "ACCEL_SWEEP"
  place = place or false
  if not text or text == "" then return nil end
  local ok, value = pcall(accel.json.decode, text)
  return ok and type(value) == "table" and value or nil
end

return M
