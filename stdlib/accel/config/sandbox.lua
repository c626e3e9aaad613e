--- Lua from anybody, run in a process that can do nothing but compute (bindings/lac_sandbox.c): configurations (accel.lua) and launch
--- policies. What comes back is plain data.
local accel = require "accel"

local M = {}

--- What a configuration or a policy may use.
M.SECONDS, M.MEMORY, M.OUTPUT, M.SOURCE = 2, 64 * 1024 * 1024, 256 * 1024, 1024 * 1024

local function source(path)
  local file, why = io.open(path, "rb")
  if not file then return nil, why end
  local text, message = file:read(M.SOURCE + 1)
  file:close()
  if not text then return nil, ("%s: %s"):format(path, message or "is empty") end
  if #text > M.SOURCE then return nil, path .. ": more than 1 MiB" end
  return text
end

--- Runs a text of Lua; input goes to the function that it returns, if it returns one.
---@param text string
---@param path string for messages
---@param input any plain data
---@param limits? {seconds: number?, memory: integer?, output: integer?}
---@return any value
---@return string? message
function M.run(text, path, input, limits)
  local l = limits or {}
  local value, message = accel.process.sandbox(text, "@" .. path, input, { seconds = l.seconds or M.SECONDS, memory = l.memory or M.MEMORY,
    output = l.output or M.OUTPUT })
  if message then
    message = message:sub(2) -- "@path what happened"
    local place = message:sub(#path + 2)
    if place:sub(1, #path) == path then message = place end
    return nil, message
  end
  return value
end

--- The table that a Lua configuration returns.
---@param path string
---@return table? value
---@return string? message
function M.config(path)
  local text, why = source(path)
  if not text then return nil, why end
  local value, message = M.run(text, path)
  if message then return nil, message end
  if type(value) ~= "table" then return nil, ("%s returns %s, not a table"):format(path, type(value)) end
  return value
end

--- What a launch policy plans for this machine (plain data); nil where it wants no further attempt.
---@param path string
---@param machine table
---@return table? plan
---@return string? message
function M.policy(path, machine)
  local text, why = source(path)
  if not text then return nil, why end
  local plan, message = M.run(text, path, machine)
  if message then return nil, message end
  if plan ~= nil and plan ~= false and type(plan) ~= "table" then
    return nil, ("%s: a policy gives a table or nil, not %s"):format(path, type(plan))
  end
  return plan or nil
end

return M
