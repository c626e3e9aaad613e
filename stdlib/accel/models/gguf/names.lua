--- Parts that GGUF's families share: names of tensors, and how their elements are ordered there.
---
--- llama.cpp turns neighbouring elements of a head by their position in some architectures, Hugging Face elements half a head apart: rows
--- of q and k are interleaved in such files. GPT-2's Conv1D weights are [in, out] here, [out, in] there.
local M = {}

function M.transposed(t) return t:t():contiguous() end

--- Rows (or entries of a bias) of each head: halves side by side -> pairs.
---@param heads integer
---@return fun(t: accel.Tensor): accel.Tensor
function M.interleaved(heads)
  return function(t)
    local n, shape = t.shape[1], t.shape
    return t:reshape(heads, 2, n // heads // 2, -1):transpose(2, 3):reshape(shape):contiguous()
  end
end

--- The way back.
---@param heads integer
---@return fun(t: accel.Tensor): accel.Tensor
function M.parted(heads)
  return function(t)
    local n, shape = t.shape[1], t.shape
    return t:reshape(heads, n // heads // 2, 2, -1):transpose(2, 3):reshape(shape):contiguous()
  end
end

--- Names here -> {name in files, write = , read = , keep = stays f32, part = index in a tensor that holds several, flat = of one dim}.
---@param fixed table<string, string|table>
---@param layers integer
---@param prefix string with %d for the layer
---@param each table<string, string|table>
---@return table<string, table>
function M.of(fixed, layers, prefix, each)
  local out = {}
  for name, row in next, fixed do out[name] = type(row) == "string" and { name = row } or row end
  for i = 0, layers - 1 do
    for name, row in next, each do
      local copy = type(row) == "string" and { name = row } or row
      out[prefix:format(i) .. name] = { name = ("blk.%d.%s"):format(i, copy.name), write = copy.write, read = copy.read, keep = copy.keep,
        part = copy.part, flat = copy.flat }
    end
  end
  return out
end

return M
