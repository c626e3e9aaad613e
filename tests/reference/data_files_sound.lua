-- Sound files for data_files.lua: samples as f32, channels first, and the rate.
local accel = require "accel"
local values = require "data_values"

local M = {}

function M.read(path)
  local samples, rate = accel.audio.load(path)
  if not samples then return nil, rate end
  return { samples = samples, rate = rate }
end

function M.compare(got, row, report, want)
  values.tensor(report, "samples", got.samples, want.samples, row.tolerance)
  local rate = want.rate:tolist()[1]
  if got.rate ~= rate then report("rate", got.rate, rate) end
end

return M
