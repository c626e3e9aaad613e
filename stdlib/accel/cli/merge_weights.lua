--- accel-run merge-weights DIR OUT: the weights of a sharded checkpoint as files that everybody reads: OUT/model.safetensors, or shards
--- with an index, or with --unsafe_serialization PyTorch's files. DIR is a checkpoint of accelerator:save_state, a folder that
--- torch.distributed.checkpoint wrote, one of Accelerate with such a folder in it, or a checkpoint of DeepSpeed.
local accel = require "accel"
local command = require "accel.cli.command"
local folders = require "accel.util.folders"
local model_files = require "accel.ckpt.model_files"
local ordered = require "accel.util.ordered"

local NAME <const>, FSDP <const> = "accel-run merge-weights", "pytorch_model_fsdp_0"

--- A tensor without values.
local function shape_of(t) return accel.empty(t.shape, { dtype = t.dtype, device = "meta" }) end

--- One of accel's own checkpoints: meta tensors by name, a reader, a function that closes it. On failure returns nil,
--- message.
local function open_checkpoint(dir, object)
  local c, message = require "accel.ckpt".open(dir)
  if not c then return nil, message end
  local known, good = {}, nil
  for _, name in ipairs(c:objects()) do known[#known + 1] = name == object and "" or name end
  local list, problem, kind = c:tensors(object)
  if not list then
    c:close()
    if kind ~= "not_found" then return nil, problem, kind end
    return nil, ("%s has no object '%s'; choose from %s"):format(dir, object, table.concat(known, ", "))
  end
  good, message = c:verify()
  if not good then
    c:close()
    return nil, message
  end
  local state = ordered()
  for _, t in ipairs(list) do state[t.name] = shape_of(t) end
  local function read(name)
    local t = accel.empty(state[name].shape, { dtype = state[name].dtype, device = "cpu" })
    local ok, why, code = c:read(object, name, t)
    if not ok then return nil, why, code end
    return t
  end
  return state, read, function() c:close() end
end

--- Names without their common prefix, "model.", as in states that torch saved as { model = state }.
local function without_prefix(names)
  for _, name in ipairs(names) do
    if name:sub(1, 6) ~= "model." then return function(n) return n end end
  end
  return function(n) return n:sub(7) end
end

--- A folder of torch.distributed.checkpoint.
local function open_torch(dir)
  local names, pick = {}, nil
  local files = accel.open_sharded(dir)
  if files then
    names = files:keys()
    pick = function(name) return accel.device("cpu", files.get, files, name) end
  else
    local state, message = accel.load(dir)
    if not state then return nil, message end
    if type(state.model) == "table" then state = state.model end -- next to it are optimizers and counters
    for name, t in ordered.iterate(state) do
      if accel.is_tensor(t) then names[#names + 1] = name end
    end
    pick = function(name) return state[name] end
  end
  local short, state, long = without_prefix(names), ordered(), {}
  for _, name in ipairs(names) do
    state[short(name)], long[short(name)] = shape_of(files and files:info(name) or pick(name)), name
  end
  return state, function(name) return pick(long[name]) end, function()
    if files then files:close() end
  end
end

local function has(dir, name)
  for _, entry in ipairs(accel.listdir(dir) or {}) do
    if entry == name then return true end
  end
  return false
end

local function open(dir, object, given)
  local deepspeed = require "accel.ckpt.deepspeed"
  if has(dir, "MANIFEST.json") and not deepspeed.is(dir) then return open_checkpoint(dir, object) end
  if given then command.no_effect(NAME, "--object", "on %s, which holds one model; leave it out", dir) end
  if deepspeed.is(dir) then return deepspeed.open(dir) end
  if has(dir, FSDP) then dir = dir .. "/" .. FSDP end
  return open_torch(dir)
end

return function(...)
  local o, words, given = command.parse({
    name = NAME, usage = "DIR OUT",
    summary = "Writes the weights of a sharded checkpoint into the folder OUT as model.safetensors, or as PyTorch's files.",
    { "max_shard_size", "string", nil, "SIZE", 'several files of at most "5GB" and their index' },
    { "object", "string", "model", "NAME", "which model of a checkpoint with several: model, model_1 ..." },
    { "unsafe_serialization", "flag", false, nil, "PyTorch's files, pytorch_model.bin, instead of safetensors" },
    { "remove_checkpoint_dir", "flag", false, nil, "remove DIR when OUT is written" },
  }, 2, 2, ...)
  local dir, out = words[1]:gsub("(.)/+$", "%1"), words[2]:gsub("(.)/+$", "%1")
  if o.remove_checkpoint_dir and (out .. "/"):sub(1, #dir + 1) == dir .. "/" then
    return command.refuse(NAME, "OUT lies in DIR, which is to be removed")
  end
  local limit, fault = nil, nil
  if o.max_shard_size then
    local parsed, value = pcall(model_files.parse_size, o.max_shard_size)
    if parsed then limit = value else fault = tostring(value):match "max_shard_size .*" end
  end
  if fault then
    command.tell("%s: %s", NAME, fault)
    os.exit(2, true)
  end
  local writable, reason = require "accel.util.writable".folder(out)
  if not writable then return command.refuse(NAME, "cannot write %s", reason) end
  local state, read, close = open(dir, o.object, given.object)
  if not state then return command.refuse(NAME, "%s", read) end
  local _ <close> = setmetatable({}, { __close = close })
  if next(state) == nil then return command.refuse(NAME, "%s holds no tensors", dir) end
  local files, message = model_files.save(out, state, { max_shard_size = limit, read = read,
    safe_serialization = not o.unsafe_serialization })
  if not files then return command.refuse(NAME, "%s", message) end
  for _, file in ipairs(files) do command.say("%s/%s", out, file) end
  if o.remove_checkpoint_dir then
    local ok, why = folders.remove(dir)
    if not ok then return command.refuse(NAME, "OUT is written, but DIR cannot be removed: %s", why) end
  end
  return true
end
