--- The common part of server trackers: they append entries to an outbox, which sends them. Subclasses: mlflow.lua, trackio.lua,
--- clearml.lua, comet_ml.lua.
local accel = require "accel"
local general = require "accel.track.general_tracker"
local Outbox = require "accel.track.outbox"
local address = require "accel.util.address"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local terminal = require "accel.util.terminal"
local written = require "accel.track.written"

local M = {}

--- A tracker whose subclass defines `declared` (its options) and `describe` (data for its driver, without secrets).
---@class accel.track.ServerTracker: accel.accelerator.GeneralTracker
local ServerTracker = general.GeneralTracker:extend "accel.track.ServerTracker"
M.ServerTracker = ServerTracker

ServerTracker.requires_logging_directory = false

local common <const> = { outbox = ".accel-outbox", outbox_bytes = 256 << 20, finish_seconds = 30 }

---@param run_name string? the project
---@param opts? table
function ServerTracker:init(run_name, opts, ...)
  if run_name ~= nil and type(run_name) ~= "string" then raise("tracker '%s': run_name must be a string", self.name) end
  local declared = {}
  for _, t in ipairs { common, self.declared } do
    for key, value in next, t do declared[key] = value end
  end
  self.run_name, self.opts = run_name, options(("tracker '%s'"):format(self.name), opts, declared, ...)
end

--- A setting: an option, a variable of the environment, else nil.
function ServerTracker:setting(key, variable)
  local value = self.opts[key]
  if value ~= nil then return value end
  value = os.getenv(variable)
  return value ~= "" and value or nil
end

--- The address of the server, without its last slash. A user and a password in it go to the sender only, never into the journal.
function ServerTracker:address(key, variable, fallback)
  local url = self:setting(key, variable) or fallback
  if not url then raise("tracker '%s' needs the address of its server: set %s, or %s in init_kwargs", self.name, variable, key) end
  if not url:find "^https?://" then
    raise("tracker '%s': '%s' is not a server address (http://HOST:PORT); without a server use log_with = \"store\" or "
      .. "\"tensorboard\"", self.name, address.shown(url))
  end
  local bare, user = address.split(url)
  self.credentials, self.address_variable = user, user and variable
  return (bare:gsub("/+$", ""))
end

--- Begins: the outbox and the thread that sends it. Nobody waits for the server.
function ServerTracker:start()
  local setup = self:describe()
  setup.credentials_from = self.address_variable -- for `runs sync`, which starts from the journal
  self.outbox = Outbox(self.name, setup, self.opts, self.credentials)
end

--- The tracker's outbox.
function ServerTracker:tracker() return self.outbox end

--- Says once per name that a value is left out.
function ServerTracker:leave_out(name, why)
  self.left_out = self.left_out or {}
  if self.left_out[name] then return end
  self.left_out[name] = true
  io.stderr:write(terminal.format("accel: tracker '%s': '%s' is left out: %s\n", self.name, name, why))
end

local function outbox_of(self, method)
  return self.outbox or raise("tracker '%s': %s before start or after finish", self.name, method)
end
M.outbox_of = outbox_of

--- A number as JSON takes it.
---@param x number
function M.plain(x)
  if x - x == 0 then return x end
  return x ~= x and "NaN" or x > 0 and "Infinity" or "-Infinity"
end

--- The run's configuration: nested names with a slash.
---@param values table
function ServerTracker:store_init_configuration(values)
  local flat = written.flatten(values)
  for name, x in next, flat do
    if type(x) == "number" then flat[name] = M.plain(x) end
  end
  outbox_of(self, "store_init_configuration"):add { k = "params", v = flat }
end

--- Numbers of a step. Nested tables of numbers by names with a slash. Other values: `other(name, value)` of the subclass, else left out.
---@param values table<string, any>
---@param step? integer
function ServerTracker:log(values, step, opts, ...)
  step = written.placed(("tracker '%s': log"):format(self.name), step, opts, {}, ...)
  local outbox, numbers, any = outbox_of(self, "log"), {}, false
  local function add(prefix, t)
    for key, value in accel.pairs(t) do
      local name = prefix .. tostring(key)
      local x = written.number(value)
      if x then
        numbers[name], any = M.plain(x), true
      elseif type(value) == "string" and self.takes_strings then numbers[name], any = value, true
      elseif type(value) == "table" and getmetatable(value) == nil and self.takes_tables then add(name .. "/", value)
      elseif self.other then self:other(name, value, step)
      else self:leave_out(name, ("only numbers are taken, got %s"):format(require("accel.util.check").shown(value))) end
    end
  end
  add("", values)
  if any then outbox:add { k = "metrics", s = step, v = numbers } end
end

--- Ends the run: waits for unsent entries (finish_seconds, 30), and reports those that could not be sent.
function ServerTracker:finish()
  local outbox = self.outbox
  self.outbox = nil
  if not outbox then return end
  outbox:add { k = "end", status = "finished" }
  outbox:finish(self.opts.finish_seconds)
end

return M
