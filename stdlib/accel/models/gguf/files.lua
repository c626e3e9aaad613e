--- Open GGUF files as one: a file, or the parts that llama.cpp's tool cut it into (name-00001-of-00003.gguf, split.count). Used by
--- models.gguf.
local class = require "accel.util.class"
local core = require "accel.file.core"

--- Metadata is the first part's.
---@class accel.models.gguf.File
local File = class("accel.models.gguf.File")

function File:init() self.readers, self.places, self.list = {}, {}, {} end

function File:close()
  for _, reader in ipairs(self.readers) do reader:close() end
end

File.__close = File.close

function File:metadata() return self.meta end

--- Tensors of all parts: {name =, type =, dtype =, shape =, bytes =}.
function File:tensors() return self.list end

--- Tensor i of that list, on the host. nil, message, code.
function File:get(i)
  local place = self.places[i]
  return place[1]:get(place[2])
end

local function add(file, path)
  local reader, message, code = core.open_gguf(path)
  if not reader then return nil, message, code end
  file.readers[#file.readers + 1] = reader
  for i, t in ipairs(reader:tensors()) do
    file.places[#file.places + 1], file.list[#file.list + 1] = { reader, i }, t
  end
  return reader:metadata()
end

local function count_of(meta, key)
  local n = meta[key]
  return math.type(n) == "integer" and n or nil
end

--- Opens a file, and with the first of several parts the others. nil, message, code.
---@param path string
---@return accel.models.gguf.File?, string?, string?
return function(path)
  local file = File()
  local function refuse(message, code)
    file:close()
    return nil, message, code
  end
  local meta, message, code = add(file, path)
  if not meta then return refuse(message, code) end
  file.meta = meta
  local parts = count_of(meta, "split.count") or 0
  if parts < 2 then return file end
  local stem, number, of = path:match "^(.*)%-(%d%d%d%d%d)%-of%-(%d%d%d%d%d)%.gguf$"
  if not stem or tonumber(of) ~= parts then
    return refuse(("%s: one of %d parts must be named NAME-00001-of-%05d.gguf"):format(path, parts, parts), "format")
  end
  if count_of(meta, "split.no") ~= 0 then
    return refuse(("%s: part %s of %d; open %s-00001-of-%s.gguf"):format(path, number, parts, stem, of), "format")
  end
  for i = 2, parts do
    local other = ("%s-%05d-of-%s.gguf"):format(stem, i, of)
    local its, why, kind = add(file, other)
    if not its then return refuse(why, kind) end
    if count_of(its, "split.no") ~= i - 1 or count_of(its, "split.count") ~= parts then
      return refuse(("%s: not part %d of the %d parts of %s"):format(other, i, parts, path), "format")
    end
  end
  local wanted = count_of(meta, "split.tensors.count")
  if wanted and wanted ~= #file.list then
    return refuse(("%s: its parts have %d tensors, not %d"):format(path, #file.list, wanted), "format")
  end
  local seen = {}
  for _, t in ipairs(file.list) do
    if seen[t.name] then return refuse(("%s: tensor '%s' is in two parts"):format(path, t.name), "format") end
    seen[t.name] = true
  end
  return file
end
