--- Checkpoints in torch.distributed.checkpoint's own format: .metadata, a pickle with the chunks of every tensor and their
--- locations, and __<rank>_<n>.distcp, whose parts are torch.save streams. Called by load_folder.
---
--- All of .metadata is checked before a tensor is made for it: names of files stay in the folder, chunks tile their tensor,
--- and its bytes are at most those of the parts.
local accel = require "accel.core"
local core = require "accel.file.core"
local ordered = require "accel.util.ordered"

local null = accel.json.null

local function is_list(t)
  if type(t) ~= "table" then return false end
  for _, n in ipairs(t) do
    if math.type(n) ~= "integer" or n < 0 then return false end
  end
  return true
end

local function product(list)
  local n = 1
  for _, extent in ipairs(list) do
    if extent == 0 then return 0 end
    if n > math.maxinteger // extent then return math.maxinteger end
    n = n * extent
  end
  return n
end

local function show(list) return "(" .. table.concat(list, ", ") .. ")" end

--- The metadata of one name is invalid: nil, message, code.
local function refuse(dir, name, fmt, ...)
  return nil, ("%s/.metadata: '%s': %s"):format(dir, name, fmt:format(...)), "parse"
end

--- fqn -> offset as text -> {relative_path, offset, length}
local function storage_of(dir, meta)
  local places = {}
  for key, at in pairs(type(meta.storage_data) == "table" and meta.storage_data or {}) do
    local name = type(key) == "table" and key.fqn
    if type(name) ~= "string" or type(at) ~= "table" then return refuse(dir, "storage_data", "no index with a name") end
    local file, offset, length = at.relative_path, at.offset, at.length
    if type(file) ~= "string" or file == "" or file:find "[/\\%z]" or file:find "^%.%.?$" then
      return refuse(dir, name, "'%s' is not the name of a file in the folder", tostring(file))
    end
    if not is_list { offset, length } or math.type(offset) ~= "integer" or math.type(length) ~= "integer" then
      return refuse(dir, name, "no bytes of %s", file)
    end
    if at.transform_descriptors ~= nil and next(at.transform_descriptors) ~= nil then
      return refuse(dir, name, "its bytes are compressed, which is not read here")
    end
    local where = is_list(key.offset) and show(key.offset) or ""
    places[name] = places[name] or {}
    places[name][where] = at
  end
  return places
end

local function overlap(a, b)
  for d = 1, #a.offsets do
    if a.offsets[d] + a.sizes[d] <= b.offsets[d] or b.offsets[d] + b.sizes[d] <= a.offsets[d] then return false end
  end
  return true
end

--- The nonempty chunks, if they tile the tensor. Otherwise nil, message, code.
local function chunks_of(dir, name, entry)
  local list, held, cut = {}, 0, 1
  for _, c in ipairs(entry.chunks) do
    if not is_list(c.offsets) or not is_list(c.sizes) or #c.offsets ~= #entry.size or #c.sizes ~= #entry.size then
      return refuse(dir, name, "a chunk of other dims than the tensor's")
    end
    for d, extent in ipairs(entry.size) do
      if c.sizes[d] > extent or c.offsets[d] > extent - c.sizes[d] then
        return refuse(dir, name, "a chunk of %s at %s leaves the tensor %s", show(c.sizes), show(c.offsets), show(entry.size))
      end
      if #list > 0 and c.offsets[d] ~= list[1].offsets[d] then cut = d end
    end
    if product(c.sizes) > 0 then
      list[#list + 1] = c
      held = held + product(c.sizes)
    end
  end
  table.sort(list, function(a, b) return (a.offsets[cut] or 0) < (b.offsets[cut] or 0) end)
  for i, a in ipairs(list) do
    for k = i + 1, #list do
      local b = list[k]
      if #entry.size > 0 and a.offsets[cut] + a.sizes[cut] <= b.offsets[cut] then break end
      if overlap(a, b) then return refuse(dir, name, "chunks at %s and %s overlap", show(a.offsets), show(b.offsets)) end
    end
  end
  if held ~= product(entry.size) then
    return refuse(dir, name, "its chunks have %d of the %d elements", held, product(entry.size))
  end
  return list
end

local function load_part(dir, at, device)
  return core.load_part(dir .. "/" .. at.relative_path, at.offset, at.length, { device = device })
end

--- A whole tensor from its chunks.
local function load_tensor(dir, name, entry, places, device)
  if not is_list(entry.size) then return refuse(dir, name, "a tensor without a size") end
  local list, message, code = chunks_of(dir, name, entry)
  if not list then return nil, message, code end
  if #list == 0 then list = { entry.chunks[1] } end -- without elements: any of them
  local full
  for i, c in ipairs(list) do
    local at = places and places[show(c.offsets)]
    if not at then return refuse(dir, name, "no file has its chunk at %s", show(c.offsets)) end
    local part
    part, message, code = load_part(dir, at, device)
    if not part then return nil, message, code end
    if not accel.is_tensor(part) or show(part.shape) ~= show(c.sizes) or (full and part.dtype ~= full.dtype) then
      return refuse(dir, name, "byte %d of %s holds something else than its chunk %s", at.offset, at.relative_path,
        show(c.sizes))
    end
    if #list == 1 and (product(c.sizes) > 0 or show(c.sizes) == show(entry.size)) then return part end
    if i == 1 then
      local bytes = product(entry.size) * part:element_size()
      for _, x in ipairs(list) do
        local place = places[show(x.offsets)]
        bytes = bytes - (place and place.length or 0)
      end
      if bytes > 0 then return refuse(dir, name, "%s has more bytes than its chunks", show(entry.size)) end
      full = accel.empty(entry.size, { dtype = part.dtype, device = device })
    end
    local box = full
    for d, n in ipairs(c.sizes) do box = box:narrow(d, c.offsets[d] + 1, n) end
    box:copy_(part)
  end
  return full
end

--- Puts a value at its path (names, and positions from 0 in lists), making tables on the way.
local function place(dir, root, name, path, value)
  local t = root
  for i, key in ipairs(path) do
    local is_index = math.type(key) == "integer"
    if not is_index and type(key) ~= "string" or ordered.is(t) == is_index then
      return refuse(dir, name, "planner_data places it in another kind of value than others")
    end
    if is_index then
      key = key + 1
      if key < 1 or key > #t + 1 then return refuse(dir, name, "planner_data leaves a hole in a list") end
    end
    if i == #path then
      if rawget(t, key) ~= nil then return refuse(dir, name, "planner_data has its place twice") end
      if value == null and not is_index then return true end
      t[key] = value
      return true
    end
    local below = rawget(t, key)
    if below == nil then
      below = math.type(path[i + 1]) == "integer" and {} or ordered()
      t[key] = below
    elseif type(below) ~= "table" then
      return refuse(dir, name, "planner_data places it inside a value")
    end
    t = below
  end
  return refuse(dir, name, "planner_data has an empty path")
end

---@param dir string
---@param device accel.Device
---@return table? state the saved tree: tables by name, lists, whole tensors
---@return string? message
---@return string? code
return function(dir, device)
  local meta, message, code = core.dcp_metadata(dir .. "/.metadata")
  if not meta then return nil, message, code end
  if type(meta) ~= "table" or type(meta.state_dict_metadata) ~= "table" then
    return refuse(dir, "state_dict_metadata", "is not there")
  end
  local places
  places, message, code = storage_of(dir, meta)
  if not places then return nil, message, code end
  local root, paths = ordered(), type(meta.planner_data) == "table" and meta.planner_data or {}
  local _ <close> = accel.no_grad()
  for name, entry in pairs(meta.state_dict_metadata) do
    if type(name) ~= "string" or type(entry) ~= "table" then
      return refuse(dir, tostring(name), "is described by no table")
    end
    local value
    if type(entry.chunks) == "table" then
      value, message, code = load_tensor(dir, name, entry, places[name], device)
    else
      local _, at = next(places[name] or {})
      if not at then return refuse(dir, name, "no file has it") end
      value, message, code = load_part(dir, at, device)
    end
    if value == nil then return nil, message, code end
    local path, ok = rawget(paths, name), nil
    ok, message, code = place(dir, root, name, type(path) == "table" and path or { name }, value)
    if not ok then return nil, message, code end
  end
  return root
end
