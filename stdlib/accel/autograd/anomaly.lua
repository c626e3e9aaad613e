--- Anomaly mode: a NaN that a backward makes, and any other error of it, names the operation and the line of the
--- forward.
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local core = require "accel.autograd.core"
local guard = require "accel.util.guard"
local raise = require "accel.util.raise"

local M = {}
local on, nan = false, true -- as core has them

local function flag(name, value)
  if type(value) ~= "boolean" then
    raise("set_detect_anomaly: %s must be true or false, got %s", name, check.shown(value))
  end
  return value
end

local function set(mode, check_nan)
  local was_on, was_nan = core.set_anomaly(mode, check_nan)
  local old_nan = nan
  on, nan = mode, check_nan
  return function()
    core.set_anomaly(was_on, was_nan)
    on, nan = was_on, old_nan
  end
end

local parse = arguments("detect_anomaly", { "check_nan", true })

--- Until the block ends, `local _ <close> = accel.autograd.detect_anomaly()`, or while fn(...) runs: operations
--- remember the script's line, and a backward that makes a NaN raises, with the operation, its line in the forward
--- and the line of the backward. Forward and backward both belong inside. Slow: for looking for a mistake. check_nan
--- = false, or { check_nan = false }, only adds the line to errors.
--- example: local x = accel.zeros(1, { requires_grad = true }) local ok, why = pcall(accel.autograd.detect_anomaly,
---   function() (x:sqrt() * 0):sum():backward() end) return ok, why:match "backward of sqrt gave NaN"
---   --> false, "backward of sqrt gave NaN"
---@param ... any check_nan, or options, then fn and its arguments
function M.detect_anomaly(...)
  local first, skip = ..., 0
  if select("#", ...) > 0 and (type(first) == "boolean" or (type(first) == "table" and getmetatable(first) == nil)) then
    skip = 1
  end
  local check_nan = skip == 0 and true or parse(first).check_nan
  return guard(set(true, check_nan), select(skip + 1, ...))
end

--- Turns anomaly mode on or off permanently, until a block closes the result, or while fn(...) runs.
--- example: accel.autograd.set_detect_anomaly(true, true, accel.autograd.is_anomaly_enabled) --> true
---@param mode boolean
---@param check_nan? boolean true
---@param fn? function
---@param ... any its arguments
function M.set_detect_anomaly(mode, check_nan, fn, ...)
  if check_nan == nil then check_nan = true end
  return guard(set(flag("mode", mode), flag("check_nan", check_nan)), fn, ...)
end

--- Whether anomaly mode is on.
--- example: accel.autograd.is_anomaly_enabled() --> false
---@return boolean
function M.is_anomaly_enabled() return on end

--- Whether anomaly mode, when it is on, looks for NaN.
--- example: accel.autograd.is_anomaly_check_nan_enabled() --> true
---@return boolean
function M.is_anomaly_check_nan_enabled() return nan end

return M
