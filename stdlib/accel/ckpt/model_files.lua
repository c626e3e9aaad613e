--- Weights of a model as files that others read: model.safetensors, or several shards with an index, by the names and
--- the split of Hugging Face's libraries. With safe_serialization = false they are files of torch.save: pytorch_model.bin.
--- Used by accelerator:save_model, save_pretrained and accel-run merge-weights.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local read_json = require "accel.util.read_json"
local sizes = require "accel.util.sizes"
local unwritten = require "accel.util.unwritten"
local writer = require "accel.util.writer"

local M = {}

M.SINGLE, M.INDEX = "model.safetensors", "model.safetensors.index.json"

--- Names by format: of one file, of the index, of a shard, and the pattern of shards.
local SAFE <const> = { M.SINGLE, M.INDEX, "model-%s%05d-of-%05d.safetensors", "^model%-%l?%-?%d%d%d%d%d%-of%-%d%d%d%d%d%.safetensors$" }
local TORCH <const> = { "pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-%s%05d-of-%05d.bin",
  "^pytorch_model%-%l?%-?%d%d%d%d%d%-of%-%d%d%d%d%d%.bin$" }

--- Bytes of max_shard_size.
---@param size integer|string
---@return integer
function M.parse_size(size)
  local bytes = sizes.parse(size)
  if not bytes then raise("max_shard_size must be %s, got %s", sizes.EXPECTED, tostring(size)) end
  return bytes
end

local function bytes_of(t) return t:numel() * t:element_size() end

--- The identity of a tensor's bytes, the same for several names of one tensor. All empty tensors count as one, as they
--- do in the reference.
local function identity(t)
  if t:numel() == 0 then return "empty" end
  return ("%s %s %s %s %s"):format(t.device, t:data_ptr(), t.dtype, table.concat(t.shape, ","),
    table.concat(t:stride(), ","))
end

--- Names of a state that are the same tensor: alias -> first name. Tensors on the meta device have no bytes to share.
---@param state table<string, accel.Tensor> ordered
---@return table<string, string>
function M.aliases(state)
  local first, alias = {}, {}
  for name, t in ordered.iterate(state) do
    if t.device ~= "meta" then
      local id = identity(t)
      if first[id] then alias[name] = first[id] else first[id] = name end
    end
  end
  return alias
end

--- Splits a state into files, in order. A file is closed when the next tensor would not fit. A tensor above the limit has
--- a separate file, and the current file continues after it. Tensors that are the same bytes count once and stay
--- together.
--- example: local t = accel.zeros(6) return #require "accel.ckpt.model_files".split({ a = t, b = t:clone() }, 30) --> 2
---@param state table<string, accel.Tensor> ordered
---@param max_bytes integer
---@return string[][] names of each file
function M.split(state, max_bytes)
  local alias, parts, current, filled, part_of = M.aliases(state), {}, {}, 0, {}
  local order, late = {}, {}
  for name, t in ordered.iterate(state) do
    order[#order + 1] = name
    local size = bytes_of(t)
    if alias[name] then
      late[#late + 1] = name
    elseif size > max_bytes then
      parts[#parts + 1] = { name }
      part_of[name] = parts[#parts]
    else
      if filled + size > max_bytes then
        parts[#parts + 1] = current
        current, filled = {}, 0
      end
      current[#current + 1] = name
      part_of[name], filled = current, filled + size
    end
  end
  if #current > 0 then parts[#parts + 1] = current end
  -- aliases follow at the end, grouped by their tensor, in the order of the tensors
  local of = {}
  for _, name in ipairs(late) do
    local list = of[alias[name]] or {}
    of[alias[name]] = list
    list[#list + 1] = name
  end
  for _, name in ipairs(order) do
    for _, other in ipairs(of[name] or {}) do table.insert(part_of[name], other) end
  end
  return parts
end

--- The file's name of part i of n. infix distinguishes the shards of a save from those that it replaces, "b-" for
--- example.
---@param i integer
---@param n integer
---@param infix? string
---@param names? string[] of the format [safetensors]
---@return string
function M.file_name(i, n, infix, names)
  names = names or SAFE
  return n == 1 and names[1] or names[3]:format(infix or "", i, n)
end

--- The infix of n new shards: the first with which none has the name of a shard that the folder's index uses, so that the files of
--- before stay whole until the new index is in place.
local function infix_of(dir, n, names)
  local used, index = {}, read_json(dir .. "/" .. names[2])
  for _, file in next, index and type(index.weight_map) == "table" and index.weight_map or {} do used[file] = true end
  if not index then
    for _, name in ipairs(accel.listdir(dir) or {}) do used[name] = true end
  end
  for letter = ("a"):byte(), ("z"):byte() do
    local infix, free = letter == ("a"):byte() and "" or string.char(letter) .. "-", true
    for i = 1, n do free = free and not used[M.file_name(i, n, infix, names)] end
    if free then return infix end
  end
  return ""
end

--- Raises for safe_serialization = false of a function whose files have only accel's format.
---@param who string
---@param safe_serialization boolean?
function M.only_safetensors(who, safe_serialization)
  if safe_serialization ~= false then return end
  raise("%s: safe_serialization = false asks for PyTorch's files, but accel's own checkpoints are safetensors; add format = \"accelerate\"",
    who)
end

--- The names of weight files that an earlier save left in a folder, and which are not among those written now.
--- Next to PyTorch's files safetensors are left over as well: readers prefer them.
local function stale(dir, written, names)
  local found = {}
  for _, name in ipairs(accel.listdir(dir) or {}) do
    for _, of in ipairs { SAFE, TORCH } do
      local ours = (of == SAFE or of == names) and (name == of[1] or name == of[2] or name:find(of[4]))
      if ours and not written[name] then found[#found + 1] = name end
    end
  end
  return found
end

--- Writes a state into a folder, which is created if missing: model.safetensors, or shards and their index if max_shard_size requires
--- several. Of tensors that are the same bytes the first is written, and all of them, as views of one storage, in PyTorch's files.
--- Weights of an earlier save in the folder are replaced, and so are the
--- files of `beside`, a configuration for example: all switch together once they are on disk (accel.util.writer). Shards get other names
--- than those that they replace, and the index comes last, so that readers of other libraries find the old weights or the new ones at any
--- moment. Returns the names of the weight files. On failure returns nil, message, code. With read, the tensors of state have no values
--- (meta). read(name) returns them, or nil, message, code, when their file is written, so that memory holds one file.
---@param dir string
---@param state table<string, accel.Tensor> ordered
---@param opts {max_shard_size: integer|string?, metadata: table<string, string>?, index_metadata: table?, read: function?,
---  beside: table<string, string>?, safe_serialization: boolean?} safe_serialization: false for PyTorch's files
---@return string[]?, string?, string?
function M.save(dir, state, opts)
  local parts = M.split(state, opts.max_shard_size and M.parse_size(opts.max_shard_size) or math.maxinteger)
  if #parts == 0 then parts = { {} } end
  local torch = opts.safe_serialization == false
  local format = torch and TORCH or SAFE
  if unwritten.skips(dir) then return { #parts == 1 and format[1] or format[2] } end
  local done
  local set <close>, message, code = writer.set(dir)
  if not set then return nil, message, code end
  local alias, map, total, files, written = M.aliases(state), {}, 0, {}, {}
  local infix = #parts > 1 and infix_of(dir, #parts, format)
  for name, bytes in accel.pairs(opts.beside or {}) do
    done, message, code = set:write(name, bytes)
    if not done then return nil, message, code end
  end
  for i, names in ipairs(parts) do
    local file, tensors = M.file_name(i, #parts, infix, format), ordered()
    files[#files + 1], written[file] = file, true
    for _, name in ipairs(names) do
      if not alias[name] then
        local t = state[name]
        if opts.read then t, message, code = opts.read(name) end
        if not t then return nil, message, code end
        tensors[name], map[name], total = t:detach(), file, total + bytes_of(t)
      elseif torch then
        tensors[name], map[name] = tensors[alias[name]], file
      end
    end
    done, message, code = accel.save(file, tensors, torch and { format = "torch" } or opts.metadata or { format = "pt" }, set)
    if not done then return nil, message, code end
  end
  if #parts > 1 then
    local metadata = { total_size = total }
    for key, value in next, opts.index_metadata or {} do metadata[key] = value end
    local text = accel.json.encode({ metadata = metadata, weight_map = map }, { pretty = true })
    done, message, code = set:write(format[2], text .. "\n")
    if not done then return nil, message, code end
    written[format[2]] = true
    files[#files + 1] = format[2]
  end
  for _, file in ipairs(stale(dir, written, format)) do set:remove(file) end
  done, message, code = set:commit()
  if not done then return nil, message, code end
  return files
end

return M
