--- Assigns the tensors of a checkpoint to its parts. An *entry* describes a tensor of the whole:
---   name      of the logical tensor
---   tensor    this rank's piece of it
---   shape, offsets   of the logical tensor, and of the piece in it (0-based). Without them the piece is the whole
---   owner     the part that writes it. Without one, every part holds the same bytes, which are divided among them
--- An entry with offsets is a rank's own range and is written by this rank. Used by
--- stdlib/accel/accelerator/checkpoint_content.lua.
local tensors = require "accel.util.tensors"

local M = {}

local CUT <const> = 1 << 16 -- bytes below which a tensor is not cut

--- The boxes that part `part` of `parts` writes, for save:add_tensors. Tensors that all parts hold are laid end to end and
--- cut into `parts` stretches of equally many bytes. A small one goes whole to the stretch of its middle, a larger one is
--- cut along dim 0. All parts compute the same from the same list.
---@param entries table[]
---@param part integer 0-based
---@param parts integer
---@return table[] boxes {name =, tensor =, shape =, offsets =}
function M.boxes(entries, part, parts)
  local list, total = {}, 0
  for _, e in ipairs(entries) do
    if not e.offsets and not e.owner then total = total + tensors.bytes(e.tensor) end
  end
  local at = 0
  local function part_of(byte) return total == 0 and 0 or math.min(parts - 1, byte * parts // total) end
  for _, e in ipairs(entries) do
    if e.offsets then
      list[#list + 1] = { name = e.name, tensor = e.tensor, shape = e.shape, offsets = e.offsets }
    elseif e.owner or parts == 1 then
      if parts == 1 or e.owner == part then list[#list + 1] = { name = e.name, tensor = e.tensor } end
    else
      local t, bytes = e.tensor, tensors.bytes(e.tensor)
      local first, last = part_of(at), part_of(at + math.max(bytes - 1, 0))
      if first == last or bytes < CUT or t.ndim == 0 or t.shape[1] < 2 then
        if part_of(at + bytes // 2) == part then list[#list + 1] = { name = e.name, tensor = t } end
      elseif first <= part and part <= last then
        local rows = t.shape[1]
        local row_bytes = bytes // rows
        --- The first row of a part: the one nearest to its first byte.
        local function row_of(p)
          if p <= first then return 0 end
          if p > last then return rows end
          return math.max(0, math.min(rows, (p * total // parts - at + row_bytes // 2) // row_bytes))
        end
        local from, to = row_of(part), row_of(part + 1)
        if to > from then
          local offsets = {}
          for d = 1, t.ndim do offsets[d] = 0 end
          offsets[1] = from
          list[#list + 1] = { name = e.name, tensor = t:narrow(1, from + 1, to - from), shape = t.shape,
            offsets = offsets }
        end
      end
      at = at + bytes
    end
  end
  return list
end

--- Ranges by their file. A file names each tensor once, so that the k-th range of a rank's tensor goes to the k-th file.
---@param boxes table[]
---@return table[][] files
function M.files(boxes)
  local files, met = {}, {}
  for _, box in ipairs(boxes) do
    local k = (met[box.name] or 0) + 1
    met[box.name], files[k] = k, files[k] or {}
    table.insert(files[k], box)
  end
  return files
end

return M
