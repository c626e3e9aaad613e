--- Lua from anybody, run in a process that can do nothing but compute (bindings/launch/lac_sandbox.c): configurations (accel.lua) and launch
--- policies. The result is plain data.
local accel = require "accel"
local read_file = require "accel.util.read_file"

local M = {}

--- The names available to a configuration or a policy.
M.SECONDS, M.MEMORY, M.OUTPUT, M.SOURCE = 2, 64 * 1024 * 1024, 256 * 1024, 1024 * 1024

--- Runs a text of Lua. If it returns a function, that function is called with input.
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
    message = message:sub(2) -- "@path error"
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
  local text, why = read_file(path, M.SOURCE)
  if not text then return nil, why end
  local value, message = M.run(text, path)
  if message then return nil, message end
  if type(value) ~= "table" then return nil, ("%s returns %s, not a table"):format(path, type(value)) end
  return value
end

--- A launch policy's plan for this machine (plain data). nil if it wants no further attempt.
---@param path string
---@param machine table
---@return table? plan
---@return string? message
function M.policy(path, machine)
  local text, why = read_file(path, M.SOURCE)
  if not text then return nil, why end
  local plan, message = M.run(text, path, machine)
  if message then return nil, message end
  if plan ~= nil and plan ~= false and type(plan) ~= "table" then
    return nil, ("%s: a policy gives a table or nil, not %s"):format(path, type(plan))
  end
  return plan or nil
end

return M
