--- The common part of this folder's trackers: they write through queues of the host (accel.track.core), warn once when these
--- cannot be written, and take the same values.
local accel = require "accel"
local check = require "accel.util.check"
local general = require "accel.track.general_tracker"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- The number in x: a number, or a tensor of one element, otherwise nil.
---@param x any
---@return number?
function M.number(x)
  if type(x) == "number" then return x end
  if tensors.is_tensor(x) and x:numel() == 1 then return x:item() + 0 end
end

--- The elements of a tensor, or a list of numbers as it is.
---@param values accel.Tensor|number[]
---@return number[]
function M.numbers(values)
  if not tensors.is_tensor(values) then return values end
  return accel.no_grad(function() return values:detach():to("cpu"):to("f64"):reshape(-1):tolist() end)
end

--- A value as plain data: tensors of one element as numbers, tables by their elements, anything else that JSON has not as text.
---@param x any
---@return any
function M.plain(x)
  if type(x) == "number" or type(x) == "string" or type(x) == "boolean" then return x end
  if type(x) == "table" and (getmetatable(x) == nil or getmetatable(x) == getmetatable(accel.json.array {})) then
    local out = #x > 0 and accel.json.array {} or {}
    for key, y in next, x do out[key] = M.plain(y) end
    return out
  end
  return M.number(x) or tostring(x)
end

--- Nested tables with string keys as one level, keys joined by a slash. Lists as JSON, everything else as text.
---@param values table
---@return table<string, number|string|boolean> flat
---@return string[] names in order
function M.flatten(values)
  local flat, names = {}, {}
  local function add(prefix, t)
    for key, x in accel.pairs(t) do
      local name = prefix .. tostring(key)
      if type(x) == "table" and getmetatable(x) == nil and #x == 0 and next(x) ~= nil then
        add(name .. "/", x)
      else
        if type(x) == "table" and getmetatable(x) == nil then
          local ok, text = pcall(accel.json.encode, x)
          x = ok and text or accel.inspect(x)
        elseif type(x) ~= "number" and type(x) ~= "boolean" then
          x = M.number(x) or tostring(x)
        end
        flat[name], names[#names + 1] = x, name
      end
    end
  end
  add("", values)
  return flat, names
end

--- The arguments after the values of a method that takes a step: the step and the options. The step may stand among the
--- options, as in log(values, { step = 3 }).
---@param who string
---@param step any
---@param opts any
---@param declared table
---@param ... any arguments after the options: an error
---@return integer?, table
function M.placed(who, step, opts, declared, ...)
  if type(step) == "table" and opts == nil then step, opts = nil, step end
  local all = { step = options.none }
  for key, default in next, declared do all[key] = default end
  local o = options(who, opts, all, ...)
  if step == nil then step = o.step
  elseif o.step ~= nil then raise("%s: step is given by position and as an option", who) end
  return step ~= nil and check.integer(who, "step", step) or nil, o
end

--- A tracker whose subclass makes self.writer in start. `after` and `finish` manage it.
---@class accel.track.Written: accel.accelerator.GeneralTracker
---@field writer userdata? of accel.track.core, while the run lasts
local Written = general.GeneralTracker:extend "accel.track.Written"
M.Written = Written

Written.requires_logging_directory = true

---@param run_name string name of the run
---@param logging_dir string|table|nil folder of the files, or the options
---@param opts? table options by name
function Written:init(run_name, logging_dir, opts, ...)
  options(("tracker '%s'"):format(self.name), opts, {}, ...)
  if type(run_name) ~= "string" or run_name == "" then raise("tracker '%s': run_name must be a string", self.name) end
  if type(logging_dir) ~= "string" then raise("tracker '%s': logging_dir must be a string", self.name) end
  self.run_name, self.logging_dir, self.folder = run_name, logging_dir, logging_dir .. "/" .. run_name
end

--- The folder of the run, made if needed.
function Written:make_folder()
  local ok, message = accel.makedirs(self.folder)
  if not ok then raise("tracker '%s': %s", self.name, message) end
end

function Written:needs_run(method)
  if not self.writer then raise("tracker '%s': %s before start or after finish", self.name, method) end
end

--- A queue's warning, once: training continues.
---@param writer userdata
function Written:look_at(writer)
  local why, dropped = writer:fault()
  if why and not self.warned then
    self.warned = true
    io.stderr:write(("accel: tracker '%s': %s; training continues, and writing is retried every second\n"):format(self.name, why))
  end
  if dropped > 0 and not self.warned_of_loss then
    self.warned_of_loss = true
    io.stderr:write(("accel: tracker '%s': values are logged faster than they can be written; some are left out\n"):format(
      self.name))
  end
end

--- Writes the rest, and reports data that could not be written.
---@param writer userdata
function Written:close_writer(writer)
  local ok, message = writer:close()
  if not ok then io.stderr:write(("accel: tracker '%s': the end of the run is lost: %s\n"):format(self.name, message)) end
end

function Written:finish()
  if not self.writer then return end
  local writer = self.writer
  self.writer = nil
  self:close_writer(writer)
end

return M
