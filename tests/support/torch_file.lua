--- Files as torch.save writes them, for tests of what reads them: a state dict of contiguous tensors, or one below a key.
---   torch_file.write(path, { { "w", tensor }, ... } [, "state_dict"])
local M = {}

local function crc32(s)
  local crc = 0xffffffff
  for i = 1, #s do
    crc = crc ~ s:byte(i)
    for _ = 1, 8 do crc = crc >> 1 ~ (0xedb88320 & -(crc & 1)) end
  end
  return ~crc & 0xffffffff
end

local storages = { f64 = "Double", f32 = "Float", f16 = "Half", bf16 = "BFloat16", i64 = "Long", i32 = "Int", i16 = "Short",
  i8 = "Char", u8 = "Byte", bool = "Bool" }

local function text(s) return "X" .. string.pack("<s4", s) end
local function int(n) return "J" .. string.pack("<i4", n) end
local function ints(list)
  local parts = {}
  for i, n in ipairs(list) do parts[i] = int(n) end
  return "(" .. table.concat(parts) .. "t"
end

local function tensor(key, t)
  return "ctorch._utils\n_rebuild_tensor_v2\n((" .. text "storage" .. "ctorch\n" .. storages[t.dtype] .. "Storage\n"
    .. text(key) .. text "cpu" .. int(t:numel()) .. "tQ" .. int(0) .. ints(t.shape) .. ints(t:stride())
    .. "\x89ccollections\nOrderedDict\n)RtR"
end

local function archive(entries)
  local body, directory, at = {}, {}, 0
  for _, e in ipairs(entries) do
    local common = string.pack("<I2I2I2I2I4I4I4I2I2", 0, 0, 0, 0, crc32(e[2]), #e[2], #e[2], #e[1], 0)
    directory[#directory + 1] = "PK\1\2\0\0" .. string.pack("<I2", 0) .. common
      .. string.pack("<I2I2I2I4I4", 0, 0, 0, 0, at) .. e[1]
    local head = "PK\3\4\0\0" .. common .. e[1]
    body[#body + 1] = head .. e[2]
    at = at + #head + #e[2]
  end
  local list = table.concat(directory)
  return table.concat(body) .. list
    .. "PK\5\6" .. string.pack("<I2I2I2I2I4I4I2", 0, 0, #entries, #entries, #list, at, 0)
end

--- Writes the tensors in the order of the list.
function M.write(path, list, below)
  local parts, entries = { "\x80\2" }, { { "archive/data.pkl", "" }, { "archive/byteorder", "little" } }
  if below then parts[2] = "}" .. text "epoch" .. "K\3s" .. text(below) end
  parts[#parts + 1] = "ccollections\nOrderedDict\n)R("
  for i, pair in ipairs(list) do
    local key = tostring(i - 1)
    parts[#parts + 1] = text(pair[1]) .. tensor(key, pair[2])
    entries[#entries + 1] = { "archive/data/" .. key, pair[2]:to_bytes() }
  end
  parts[#parts + 1] = below and "us." or "u."
  entries[1][2] = table.concat(parts)
  entries[#entries + 1] = { "archive/version", "3\n" }
  local f = assert(io.open(path, "wb"))
  f:write(archive(entries))
  f:close()
end

return M
