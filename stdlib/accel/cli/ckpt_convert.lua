--- accel-run ckpt convert: writes a checkpoint as a folder of another tool: Accelerate's load_state, torch.distributed.checkpoint,
--- DeepSpeed. Whole tensors are read whichever ranks wrote them, so checkpoints of sharded models convert on one process.
local accel = require "accel"
local accelerate_write = require "accel.ckpt.accelerate_write"
local ckpt = require "accel.ckpt"
local command = require "accel.cli.command"
local content = require "accel.accelerator.checkpoint_content"
local raise = require "accel.util.raise"
local torch_folders = require "accel.ckpt.torch_folders"

local PROGRAM <const> = "accel-run ckpt convert"

--- The tensors of an object, read when they are needed.
local function reader_of(c, object)
  local list, why = c:tensors(object)
  if not list then raise("%s", why) end
  local shapes = {}
  for _, s in ipairs(list) do shapes[s.name] = s end
  return list, function(name)
    local s = shapes[name] or raise("%s: '%s' is missing", object, name)
    local t = accel.empty(s.shape, { dtype = s.dtype, device = "cpu" })
    local ok, message = c:read(object, name, t)
    if not ok then raise("%s: '%s': %s", object, name, message) end
    return t
  end
end

--- The plain data of a checkpoint, by name.
local function data_of(c)
  local data = {}
  for _, file in ipairs(c.manifest.files) do
    local name = file.name:match "^([%w_]+)%.accel$" or file.name:match "^([%w_]+)%.bin$"
    if name then
      local bytes, why = c:bytes(file.name)
      if not bytes then raise("%s", why) end
      local value, message, code = accel.decode(bytes, { max_bytes = math.maxinteger })
      if code then raise("%s: %s", file.name, message) end
      data[name] = value
    end
  end
  return data
end

--- Raises for states of an earlier version of accel, which the other tool would give to other parameters: it counts them in the order of
--- the stored groups, which was not the order of Transformers for these models (accel.models.order).
local function check_order(c)
  local data, models = data_of(c), (c.manifest.state.objects or {}).models or {}
  for i in ipairs((c.manifest.state.objects or {}).optimizers or {}) do
    local plain = data[content.name("optimizer", i)]
    if plain and plain.rest and next(plain.state or {}) ~= nil and not plain.rest.numbering then
      for _, name in ipairs(models) do
        local found, class = pcall(function() return accel.models[name] end)
        if found and type(class) == "table" and class.order then
          raise("an earlier version of accel wrote it, which listed the parameters of %s in another order than Transformers; load_state it and"
            .. " save_state it again", name)
        end
      end
    end
  end
end

--- Adds the files of Accelerate's folder to a save. Returns the numbers of models and optimizers.
local function add_accelerate(c, save, o)
  local record, data, optimizers = c.manifest.state, data_of(c), 0
  if not record.objects then raise "it was not written by accelerator:save_state, which names its models and optimizers" end
  if record.format then raise("it has Accelerate's files already (format = '%s')", record.format) end
  if #(record.hooked or {}) > 0 then raise "hooks of the script saved its models, and only their load hooks can read them" end
  if next(record.adapters or {}) then raise "it holds only adapters (adapter_only); load it into its model and save the whole" end
  for i in ipairs(record.objects.models) do
    local name = content.name("model", i)
    local list, read = reader_of(c, name)
    local aliases = torch_folders.aliases_of(c, name, list)
    for k, s in ipairs(list) do list[k] = { name = s.name, tensor = read(s.name) } end
    accelerate_write.model(save, name, list, aliases, not o.pickle)
  end
  for i, class in ipairs(record.objects.optimizers) do
    local name = content.name("optimizer", i)
    local _, read = reader_of(c, name)
    accelerate_write.optimizer(save, name, data[name] or raise("%s is missing", name), read, class)
    optimizers = i
  end
  local done = accelerate_write.data(save, data)
  for name, value in accel.pairs(data) do
    if not done[name] then save:add_bytes(content.plain_file(name), content.encode(value)) end
  end
  for rank = 0, record.world.num_processes - 1 do accelerate_write.random(save, rank, record.accumulation.step) end
  if record.accumulation.pending then
    command.say("%s: the update under way is not complete; its gradients are not written", c.path)
    record.accumulation.pending = false
  end
  record.format, record.cuts = "accelerate", nil
  save:start { state = record }
  return #record.objects.models, optimizers
end

--- Writes a folder for Accelerate. Returns a text about its content. nil, message on failure.
local function for_accelerate(c, folder, o)
  local save, why = ckpt.create(folder, { after = c.manifest.sequence, run = c.manifest.run, continues = c.manifest.continues })
  if not save then return nil, why end
  local ok, models, optimizers = pcall(add_accelerate, c, save, o)
  if not ok then
    save:abort()
    error(models, 0)
  end
  ok, why = save:wait()
  if not ok then return nil, why end
  local function counted(n, word) return ("%d %s%s"):format(n, word, n == 1 and "" or "s") end
  return ("%s and %s for Accelerate"):format(counted(models, "model"), counted(optimizers, "optimizer"))
end

local formats = {
  accelerate = for_accelerate,
  dcp = function(c, folder)
    local ok, why = torch_folders.dcp(c, folder)
    return ok and "for torch.distributed.checkpoint", why
  end,
  deepspeed = function(c, folder)
    local ok, why = torch_folders.deepspeed(c, folder)
    return ok and "for DeepSpeed, without schedules, random states, loaders and registered objects", why
  end,
}

return function(...)
  local o, words = command.parse({
    name = PROGRAM, usage = "CHECKPOINT FOLDER",
    summary = "Writes a checkpoint of accelerator:save_state as a folder of another tool. Those of Accelerate and DeepSpeed load here.",
    { "format", "string", "accelerate", "NAME", "accelerate, dcp (torch.distributed.checkpoint) or deepspeed (stage 2 on one rank)" },
    { "pickle", "flag", false, nil, "for Accelerate, write pytorch_model.bin instead of model.safetensors" },
  }, 2, 2, ...)
  local write = formats[o.format]
  if not write then return command.refuse(PROGRAM, "--format must be accelerate, dcp or deepspeed, got '%s'", o.format) end
  if o.pickle and o.format ~= "accelerate" then return command.refuse(PROGRAM, "--pickle belongs to --format accelerate; leave it out") end
  local c <close>, message = ckpt.open(words[1])
  if not c then return command.refuse(PROGRAM, "%s", message) end
  local ok, said, why = pcall(function()
    if o.format ~= "dcp" then check_order(c) end -- which goes by names
    return write(c, words[2], o)
  end)
  if not ok then return command.refuse(PROGRAM, "%s: %s", words[1], (tostring(said):gsub("^[^\n:]*%.lua:%d+: ", ""))) end
  if not said then return command.refuse(PROGRAM, "%s", why) end
  command.say("%s: %s", words[2], said)
  return true
end
