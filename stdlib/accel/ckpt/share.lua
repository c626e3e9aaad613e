--- Which part of a checkpoint writes what. An *entry* says what a tensor is in the whole:
---   name      of the logical tensor
---   tensor    what this rank holds of it
---   shape, offsets   of the logical tensor, and where what is held lies in it (0-based); without them it is the whole
---   owner     the part that writes it; without one, every part holds the same bytes and they are shared out
--- An entry with offsets is a rank's own box and is written where it is. Used by stdlib/accel/accelerator/checkpoint_content.lua.
local tensors = require "accel.util.tensors"

local M = {}

local CUT <const> = 1 << 16 -- bytes below which a tensor is not cut

--- The boxes that part `part` of `parts` writes, for save:add_tensors. Tensors that all parts hold are laid end to end and
--- cut into `parts` stretches of equally many bytes; a small one goes whole to where its middle lies, a larger one is cut
--- along dim 0. All parts compute the same from the same list.
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
        --- The first row of a part: the one nearest to where its bytes begin.
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

--- Boxes by the file that they go to: a file names each tensor once, so that of a rank's boxes of one tensor the k-th lies in
--- the k-th file.
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
