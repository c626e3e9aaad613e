-- Folders of classes for data_files.lua.
local accel = require "accel"
local values = require "data_values"

local M = {}

function M.left_out(row)
  if row.reader ~= "image_folder" and row.format ~= "image_folder" then return "no reader of Hugging Face's folders yet" end
end

function M.read(path, row) return accel.vision.ImageFolder(path, row.args) end

function M.compare(got, _, report, want)
  local index, samples = {}, {}
  for i, class in ipairs(got.classes) do index[i] = { class, got.class_to_idx[class] } end
  for i, sample in ipairs(got.samples) do samples[i] = { sample[1]:sub(#got.root + 2), sample[2] } end
  values.tree(report, "folder", { classes = got.classes, class_to_idx = index, samples = samples }, want)
end

return M
