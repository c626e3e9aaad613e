--- The files of a checkpoint in each format of save_state: accel's own, which all ranks write together, and Accelerate's, which rank 0
--- writes whole. Used by checkpoint.lua.
local accel = require "accel"
local accelerate_write = require "accel.ckpt.accelerate_write"
local content = require "accel.accelerator.checkpoint_content"
local raise = require "accel.util.raise"
local share = require "accel.ckpt.share"

local M = {}

--- Plain data as files. Every rank encodes, so that a value without an encoding is an error wherever it is. `adds`: this rank writes them.
local function add_plain(save, data, adds, without)
  for name, value in accel.pairs(data) do
    local bytes = content.encode(value)
    if adds and not (without and without[name]) then save:add_bytes(content.plain_file(name), bytes) end
  end
end

--- An object in the files of all parts.
local function add_object(save, object, part, parts)
  local lists, writers = share.files(share.boxes(object.entries, part, parts)), object.whole and 1 or parts
  for k, boxes in ipairs(lists) do save:add_tensors(content.file(object.name, part, writers, k, #lists), boxes, object.metadata) end
end

---@param save accel.ckpt.Save
---@param found table of checkpoint_content.collect
---@param o {part: integer, parts: integer}
function M.accel(_, save, found, o)
  add_plain(save, found.data, o.part == 0)
  add_plain(save, found.own, true)
  for _, object in ipairs(found.objects) do add_object(save, object, o.part, o.parts) end
end

--- Raises if ranks hold ranges of an object's tensors.
local function check_whole(object)
  for _, entry in ipairs(object.entries) do
    if entry.offsets then
      raise('save_state: format = "accelerate": %s is sharded over ranks; save in accel\'s format, and write the folder with '
        .. "accel-run ckpt convert", object.name)
    end
  end
end

---@param accelerator accel.Accelerator
---@param save accel.ckpt.Save
---@param found table of checkpoint_content.collect
---@param o {part: integer, parts: integer, safe_serialization: boolean}
function M.accelerate(accelerator, save, found, o)
  for _, object in ipairs(found.objects) do
    local plain = found.data[object.name]
    if object.name == "gradients" then
      add_object(save, object, o.part, o.parts)
    else
      check_whole(object)
      local tensors, list = {}, {}
      for i, entry in ipairs(object.entries) do
        tensors[entry.name], list[i] = entry.tensor, { name = entry.name, tensor = entry.tensor }
      end
      if o.part == 0 and plain then
        local number = math.tointeger(tonumber(object.name:match "_(%d+)$" or 0))
        accelerate_write.optimizer(save, object.name, plain, function(name) return tensors[name]:to "cpu" end,
          content.classes(accelerator).optimizers[number + 1])
      elseif o.part == 0 then
        accelerate_write.model(save, object.name, list, object.metadata, o.safe_serialization)
      end
    end
  end
  add_plain(save, found.data, o.part == 0, o.part == 0 and accelerate_write.data(save, found.data))
  add_plain(save, found.own, true)
  accelerate_write.random(save, accelerator.process_index, accelerator.gradient_state.step)
end

return M
