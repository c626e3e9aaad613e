--- ClearMLTracker: log_with = "clearml". Found by track/general_tracker.lua.
local accel = require "accel"
local base = require "accel.track.server_tracker"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local written = require "accel.track.written"

--- Logs to a ClearML server by its REST interface (CLEARML_API_HOST, CLEARML_API_ACCESS_KEY and CLEARML_API_SECRET_KEY of the environment,
--- api_host in init_kwargs). A value of a step becomes a scalar: eval_loss, test_loss and train_loss are series eval, test and train of
--- loss, others series train. Without a step it is a single value. Options: project_name (CLEARML_PROJECT, init_trackers' name), task_name
--- (CLEARML_TASK), api_host, outbox, outbox_bytes, finish_seconds. Images need ClearML's file server and are left out.
--- example: require "accel.track.clearml" ("run").name --> "clearml"
---@class accel.track.ClearMLTracker: accel.track.ServerTracker
local ClearMLTracker = base.ServerTracker:extend "accel.track.ClearMLTracker"

ClearMLTracker.name = "clearml"
local none <const> = options.none
ClearMLTracker.declared = { project_name = none, task_name = none, api_host = none }

--- For the outbox.
function ClearMLTracker:describe()
  if not os.getenv "CLEARML_API_ACCESS_KEY" or not os.getenv "CLEARML_API_SECRET_KEY" then
    raise "tracker 'clearml' needs CLEARML_API_ACCESS_KEY and CLEARML_API_SECRET_KEY in the environment"
  end
  local name = self.run_name or "accel"
  return { url = self:address("api_host", "CLEARML_API_HOST", "https://api.clear.ml"),
    project = self:setting("project_name", "CLEARML_PROJECT") or name, task = self:setting("task_name", "CLEARML_TASK") or name }
end

--- Title and series of a name.
---@param name string
---@return string title, string series
function ClearMLTracker.title_and_series(name)
  for _, prefix in ipairs { "eval", "test", "train" } do
    if name:sub(1, #prefix + 1) == prefix .. "_" then return name:sub(#prefix + 2), prefix end
  end
  return name, "train"
end

--- Numbers of a step, or single values.
---@param values table<string, any>
---@param step? integer
---@param opts? table options of the tracker's own client
function ClearMLTracker:log(values, step, opts, ...)
  step = written.placed("tracker 'clearml': log", step, opts, {}, ...)
  local list = {}
  for key, value in accel.pairs(values) do
    local x = written.number(value)
    if not x then self:leave_out(tostring(key), "only numbers are taken")
    elseif step == nil then list[#list + 1] = { "Summary", tostring(key), base.plain(x) }
    else
      local title, series = ClearMLTracker.title_and_series(tostring(key))
      list[#list + 1] = { title, series, base.plain(x) }
    end
  end
  if #list > 0 then base.outbox_of(self, "log"):add { k = "scalars", s = step, v = list } end
end

--- Says once that images are left out: they need ClearML's file server.
---@param values table<string, any>
function ClearMLTracker:log_images(values)
  for name in accel.pairs(values) do self:leave_out(tostring(name), "images need ClearML's file server") end
end

--- A table, as a plot.
---@param table_name string
---@param opts {columns: string[]?, data: any[][], step: integer?} columns: default is the first row
function ClearMLTracker:log_table(table_name, opts, ...)
  local o = options("log_table", opts, { columns = none, data = none, step = none }, ...)
  if type(o.data) ~= "table" then raise "log_table: data must be a list of rows" end
  local columns, from = o.columns or o.data[1], o.columns and 1 or 2
  local by_column = {}
  for k = 1, #columns do
    by_column[k] = {}
    for i = from, #o.data do by_column[k][#by_column[k] + 1] = written.number(o.data[i][k]) or tostring(o.data[i][k]) end
  end
  local title, series = ClearMLTracker.title_and_series(table_name)
  base.outbox_of(self, "log_table"):add { k = "table", s = o.step, title = title, series = series, columns = columns, cells = by_column }
end

return ClearMLTracker
