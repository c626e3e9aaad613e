--- How the actions of accel-run runs open a store and find a run. Failures are printed on stderr.
local accel = require "accel"
local Store = require "accel.track.store"
local open_read = require("accel.file.core").open_read
local terminal = require "accel.util.terminal"

local M = { option = { "store", "string", ".", "PATH", "folder of runs.db, or a store's file" } }

local who = "accel-run runs"

--- A hint if a folder has no store: its direct subfolders with one, or "".
---@param where string
---@return string
function M.below(where)
  local found = {}
  for _, name in ipairs(accel.listdir(where) or {}) do
    local folder = where == "." and name or where .. "/" .. name
    local file = #found < 3 and open_read(folder .. "/runs.db")
    if file then
      file:close()
      found[#found + 1] = folder
    end
  end
  return #found > 0 and "; there is one in " .. table.concat(found, ", ") or ""
end

--- The store of the options. nil if it cannot be opened. Closed by <close>.
---@param name string for messages
---@param o {store: string, write: boolean?}
---@return {store: accel.track.Store}?
function M.open(name, o)
  who = name
  local store, message, code = Store.open(o.store, { write = o.write })
  if not store then
    if code == "not_found" then
      message = message .. M.below(o.store) .. "; give it with --store PATH"
    end
    io.stderr:write(name, ": ", terminal.message(message), "\n")
    return nil
  end
  return setmetatable({ store = store }, { __close = function() store:close() end })
end

--- Passes a result on. Prints the reason if there is none.
function M.need(value, message)
  if value == nil and message then io.stderr:write(who, ": ", terminal.message(message), "\n") end
  return value
end

--- The store of the options and the run of a word in it.
---@return {store: accel.track.Store}?, table?
function M.run(name, o, word)
  local store = M.open(name, o)
  if not store then return nil, nil end
  return store, M.need(store.store:find(word))
end

return M
