--- Checkpoints of accelerator:save_state as folders of PyTorch's tools: of torch.distributed.checkpoint (.distcp) and of DeepSpeed. Whole
--- tensors are read whichever ranks wrote them. Used by accel-run ckpt convert.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local pickle = require "accel.util.pickle"
local raise = require "accel.util.raise"
local tree = require "accel.ckpt.tree"

local M = {}

--- A tensor without values.
local function shape_of(t, dtype) return accel.empty(t.shape, { dtype = dtype or t.dtype, device = "meta" }) end

--- An object's tensors: a list and a reader. A count of steps is an f32 tensor in PyTorch, and an integer here.
local function object_of(c, object)
  local list, why = c:tensors(object)
  if not list then raise("%s", why) end
  local own = {}
  for _, t in ipairs(list) do own[t.name] = t end
  local function is_count(t) return #t.shape == 0 and t.name:find "%.step$" ~= nil end
  return list, function(name)
    local t = own[name] or raise("%s: '%s' is missing", object, name)
    local value = accel.empty(t.shape, { dtype = t.dtype, device = "cpu" })
    local ok, message = c:read(object, name, value)
    if not ok then raise("%s: '%s': %s", object, name, message) end
    return is_count(t) and value:to "f32" or value
  end, function(name)
    local t = own[name] or raise("%s: '%s' is missing", object, name)
    return shape_of(t, is_count(t) and "f32" or nil)
  end
end

--- Names of tied tensors that the files of a model leave out: alias -> the name that they have. accel-run ckpt convert calls it as well.
---@param c table of accel.ckpt.open
---@param object string
---@param list {name: string}[] the object's tensors
---@return table<string, string>
function M.aliases_of(c, object, list)
  local known, found = {}, ordered()
  for _, t in ipairs(list) do known[t.name] = true end
  for _, file in ipairs(c.manifest.files) do
    if file.name == object .. ".safetensors" or file.name:find(object .. "/", 1, true) == 1 and file.name:find "%.safetensors$" then
      local reader <close> = accel.open_safetensors(c.path .. "/" .. file.name)
      for alias, name in accel.pairs(reader and reader:metadata() or {}) do
        if known[name] and not known[alias] then found[alias] = name end
      end
    end
  end
  return found
end

--- The plain data of an object, NAME.accel or NAME.bin. nil if it has none.
local function plain_of(c, object)
  for _, file in ipairs(c.manifest.files) do
    if file.name == object .. ".accel" or file.name == object .. ".bin" then
      local bytes, why = c:bytes(file.name)
      if not bytes then raise("%s", why) end
      local value, message = accel.decode(bytes, { max_bytes = math.maxinteger })
      return value or raise("%s: %s", file.name, message)
    end
  end
end

--- Options of a parameter group as PyTorch has them.
local function options_of(group)
  local out = ordered()
  for key, value in accel.pairs(group) do
    if key ~= "params" then out[key] = type(value) == "table" and pickle.tuple(value) or value end
  end
  return out
end

--- Names of a checkpoint's objects that begin with a word: "model", "model_1".
local function objects_of(c, word)
  local found = {}
  for _, object in ipairs(c:objects()) do
    if object == word or object:find("^" .. word .. "_%d+$") then found[#found + 1] = object end
  end
  return found
end

local function check(c)
  if next((c.manifest.state or {}).adapters or {}) then raise "it holds only adapters; load it into its model and save the whole" end
  if #objects_of(c, "model") == 0 then raise "it holds no model" end
end

--- Writes a checkpoint as a folder of torch.distributed.checkpoint, with the names that torch's get_state_dict gives: model.<name>,
--- optimizer.state.<parameter>.<key>, optimizer.param_groups.
---@param c table of accel.ckpt.open
---@param folder string
---@return boolean?, string?, string?
function M.dcp(c, folder)
  check(c)
  local whole, readers = ordered(), {}
  for _, object in ipairs(objects_of(c, "model")) do
    local list, read = object_of(c, object)
    whole[object] = ordered()
    for _, t in ipairs(list) do whole[object][t.name] = shape_of(t) end
    local aliases = M.aliases_of(c, object, list) -- torch's names all tied tensors
    for alias, name in ordered.iterate(aliases) do whole[object][alias] = whole[object][name] end
    readers[object] = function(name) return read(aliases[name] or name) end
  end
  for _, object in ipairs(objects_of(c, "optimizer")) do
    local plain, state, groups = plain_of(c, object), ordered(), {}
    if not plain or plain.other ~= nil then raise("%s: its state does not name parameters, so it has no form in PyTorch", object) end
    local _, read, describe = object_of(c, object)
    readers[object] = read
    for g, group in ipairs(plain.groups) do
      groups[g] = options_of(group)
      groups[g].params = pickle.list(group.params)
      for _, name in ipairs(group.params) do
        if plain.state[name] ~= nil then state[name] = tree.join(plain.state[name], describe) end
      end
    end
    whole[object] = { state = state, param_groups = pickle.list(groups) }
  end
  return require "accel.util.distcp_write" (folder, whole, { who = c.path, read = function(name)
    local object, inner = name:match "^([^.]+)%.(.*)$"
    return readers[object](inner)
  end })
end

--- Writes a checkpoint as a folder of DeepSpeed's stage 2 on one rank.
---@param c table of accel.ckpt.open
---@param folder string
---@return boolean?, string?, string?
function M.deepspeed(c, folder)
  check(c)
  if #objects_of(c, "model") > 1 or #objects_of(c, "optimizer") > 1 then raise "a folder of DeepSpeed holds one model and one optimizer" end
  local list, read = object_of(c, "model")
  local contents = { model = ordered(), groups = {}, step = (c.manifest.state or {}).step or 0 }
  for _, t in ipairs(list) do contents.model[t.name] = read(t.name) end
  contents.shared = M.aliases_of(c, "model", list)
  local plain = objects_of(c, "optimizer")[1] and plain_of(c, "optimizer")
  if plain and plain.other ~= nil then raise "its optimizer's state does not name parameters, so it has no form in PyTorch" end
  local _, read_state
  if plain then _, read_state = object_of(c, "optimizer") end
  for g, group in ipairs(plain and plain.groups or {}) do
    local states = {}
    for _, name in ipairs(group.params) do
      if plain.state[name] ~= nil then states[name] = tree.join(plain.state[name], read_state) end
    end
    contents.groups[g] = { names = group.params, options = options_of(group), states = states }
  end
  return require "accel.ckpt.deepspeed_write" (folder, contents)
end

return M
