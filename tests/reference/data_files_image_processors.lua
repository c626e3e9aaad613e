-- Image processors of models for data_files.lua, by the preprocessor_config.json of a row's folder.
local accel = require "accel"
local values = require "data_values"

local M = {}

function M.read(path, row, dir)
  local processor, message = accel.vision.AutoImageProcessor.from_pretrained(dir .. "/" .. row.config, { backend = row.backend })
  if not processor then return nil, message end
  return processor(accel.vision.io.read_image(path)).pixel_values:select(1, 1)
end

local function every7(t)
  local function at(n) return accel.arange(3, n, 7, { dtype = "i64" }) end
  return t:index_select(2, at(t:size(2))):index_select(3, at(t:size(3)))
end

function M.compare(got, row, report, want)
  if want.pixel_values then return values.tensor(report, "pixel_values", got, want.pixel_values, row.tolerance) end
  values.tensor(report, "pixel_values_every7", every7(got), want.pixel_values_every7, row.tolerance)
  values.tensor(report, "shape", accel.tensor({ got:size(1), got:size(2), got:size(3) }, { dtype = "i64" }), want.shape, 0)
  values.tensor(report, "mean", got:to("f64"):mean({ 2, 3 }), want.mean, row.tolerance)
end

return M
