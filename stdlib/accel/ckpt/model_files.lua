--- Weights of a model as files that others read: model.safetensors, or several shards with an index, by the names and
--- the split of Hugging Face's libraries. Used by accelerator:save_model, save_pretrained and accel-run merge-weights.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"

local M = {}

M.SINGLE, M.INDEX = "model.safetensors", "model.safetensors.index.json"
local SHARD <const> = "model-%05d-of-%05d.safetensors"

local UNITS <const> = { KB = 10 ^ 3, MB = 10 ^ 6, GB = 10 ^ 9, TB = 10 ^ 12 }

--- "5GB" or a number of bytes, as bytes. Units are those of huggingface_hub, which the reference's max_shard_size goes
--- through: KB, MB, GB and TB, powers of 1000 in either case.
---@param size integer|string
---@return integer
function M.parse_size(size)
  local bytes = math.type(size) and size or nil
  if type(size) == "string" then
    local text = size:upper():match "^%s*(.-)%s*$"
    local digits, unit = text:sub(1, -3):gsub("_", ""):match "^%s*(.-)%s*$", UNITS[text:sub(-2)]
    local number = unit and digits:find "^[%d.][%d.E+-]*$" and tonumber(digits)
    bytes = number and number * unit
  end
  if not bytes or bytes ~= bytes or bytes < 0 or bytes > 2 ^ 62 then
    raise('max_shard_size must be a number of bytes, or a size in KB, MB, GB or TB such as "5GB", got %s', tostring(size))
  end
  return math.floor(bytes)
end

local function bytes_of(t) return t:numel() * t:element_size() end

--- What tells tensors apart that are the same bytes under several names. All empty tensors count as one, as they do in
--- the reference.
local function identity(t)
  if t:numel() == 0 then return "empty" end
  return ("%s %s %s %s %s"):format(t.device, t:data_ptr(), t.dtype, table.concat(t.shape, ","),
    table.concat(t:stride(), ","))
end

--- Names of a state that are the same tensor: alias -> first name; tensors on the meta device have no bytes to share.
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

--- Shares a state out over files: in order, a file is closed when the next tensor would not fit; a tensor above the limit
--- has a file of its own, and the file under way goes on behind it. Tensors that are the same bytes count once and stay
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
  -- aliases follow behind, grouped by the tensor that they name, in the order in which those come
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

--- The file's name of part i of n.
---@param i integer
---@param n integer
---@return string
function M.file_name(i, n) return n == 1 and M.SINGLE or SHARD:format(i, n) end

--- The names of weight files that an earlier save left in a folder, and which are not among those written now.
local function stale(dir, written)
  local found = {}
  for _, name in ipairs(accel.listdir(dir) or {}) do
    local ours = name == M.SINGLE or name == M.INDEX or name:find "^model%-%d%d%d%d%d%-of%-%d%d%d%d%d%.safetensors$"
    if ours and not written[name] then found[#found + 1] = name end
  end
  return found
end

--- Writes a state into a folder, which is made: model.safetensors, or shards and their index where max_shard_size asks for
--- several. Of tensors that are the same bytes the first is written. Weights of an earlier save in the folder are replaced:
--- all files are written beside them first, so that a full disk leaves them as they are. Returns the names of the files;
--- or nil, message, code. With read, the tensors of state have no values (meta); read(name) gives them, or nil, message, code, when
--- their file is written, so that memory holds one file.
---@param dir string
---@param state table<string, accel.Tensor> ordered
---@param opts {max_shard_size: integer|string?, metadata: table<string, string>?, index_metadata: table?, read: function?}
---@return string[]?, string?, string?
function M.save(dir, state, opts)
  local parts = M.split(state, opts.max_shard_size and M.parse_size(opts.max_shard_size) or math.maxinteger)
  if #parts == 0 then parts = { {} } end
  local done, message, code = accel.makedirs(dir)
  if not done then return nil, message, code end
  local alias, map, total, files, written = M.aliases(state), {}, 0, {}, {}
  local temporary
  temporary, message, code = accel.mkdtemp(dir .. "/.save-")
  if not temporary then return nil, message, code end
  local _ <close> = setmetatable({}, { __close = function()
    for _, file in ipairs(files) do os.remove(temporary .. "/" .. file) end
    os.remove(temporary)
  end })
  for i, names in ipairs(parts) do
    local file, tensors = M.file_name(i, #parts), ordered()
    files[#files + 1], written[file] = file, true
    for _, name in ipairs(names) do
      if not alias[name] then
        local t = state[name]
        if opts.read then t, message, code = opts.read(name) end
        if not t then return nil, message, code end
        tensors[name], map[name], total = t, file, total + bytes_of(t)
      end
    end
    done, message, code = accel.save(temporary .. "/" .. file, tensors, opts.metadata or { format = "pt" })
    if not done then return nil, message, code end
  end
  -- from here on the folder holds either weights, whole, or none that anybody would take for whole
  os.remove(dir .. "/" .. M.INDEX)
  for _, file in ipairs(files) do
    done, message = os.rename(temporary .. "/" .. file, dir .. "/" .. file)
    if not done then return nil, message, "io" end
  end
  if #parts > 1 then
    local metadata = { total_size = total }
    for key, value in next, opts.index_metadata or {} do metadata[key] = value end
    local text = accel.json.encode({ metadata = metadata, weight_map = map }, { pretty = true })
    done, message, code = accel.write_file(dir .. "/" .. M.INDEX, text .. "\n")
    if not done then return nil, message, code end
    written[M.INDEX] = true
    files[#files + 1] = M.INDEX
  end
  for _, file in ipairs(stale(dir, written)) do os.remove(dir .. "/" .. file) end
  return table.move(files, 1, #files, 1, {})
end

return M
