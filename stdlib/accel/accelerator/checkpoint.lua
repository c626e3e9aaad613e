--- Methods of Accelerator: save_state, load_state and their helpers. A checkpoint is a complete folder or does not exist
--- (accel.ckpt). checkpoint_content.lua defines its content, checkpoint_load.lua loads it, and resume.lua resumes a run.
---
--- The fields of an Accelerator's _checkpointing:
---   custom       objects of register_for_checkpointing
---   save_hooks, load_hooks   pre-hooks, in order
---   pending      an asynchronous save that is under way: { save =, path =, step = }
---   verified     the folder that was verified when it was looked for, until it is loaded
---   next         the number of the next automatic name, as this Accelerator has counted it. nil before the first
---   entering     until the first step or save: { text =, parent = }, the folder of automatic names and the reason not to write there
---                there, or false
local check = require "accel.util.check"
local check_self = require "accel.accelerator.check_self"
local ckpt_content = require "accel.accelerator.checkpoint_content"
local ckpt_form = require "accel.accelerator.checkpoint_form"
local dist = require "accel.dist"
local folder = require "accel.accelerator.checkpoint_folder"
local foreign = require "accel.accelerator.checkpoint_foreign"
local loading = require "accel.accelerator.checkpoint_load"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local run = require "accel.ckpt.run"
local verdict = require "accel.dist.verdict"
local writing = require "accel.ckpt.write"
local unwritten = require "accel.util.unwritten"

local M = {}

-- ---- saved objects other than prepared ones ----

--- Objects whose state belongs to the run's state. Each has the methods state_dict, which returns plain data and tensors,
--- and load_state_dict. They are saved and loaded in the order of registering.
--- example: local a, counter = accel.Accelerator(), { n = 1 }
---   function counter:state_dict() return { n = self.n } end
---   function counter:load_state_dict(state) self.n = state.n end
---   a:register_for_checkpointing(counter) return select("#", a:register_for_checkpointing()) --> 0
---@param ... table
function M.register_for_checkpointing(self, ...)
  check_self(self, "register_for_checkpointing")
  local wrong, list = {}, table.pack(...)
  for i = 1, list.n do
    local x = list[i]
    local fits = type(x) == "table" or type(x) == "userdata"
    if fits then
      local ok, has = pcall(function() return x.state_dict ~= nil and x.load_state_dict ~= nil end)
      fits = ok and has
    end
    if not fits then wrong[#wrong + 1] = ("%d (%s)"):format(i - 1, check.shown(x)) end
  end
  if #wrong > 0 then
    raise("register_for_checkpointing: the objects at these positions, counted from 0, have not both state_dict and "
      .. "load_state_dict: %s", table.concat(wrong, ", "))
  end
  for i = 1, list.n do table.insert(self._checkpointing.custom, list[i]) end
  self._resume:objects_came()
end

local function add_hook(who, list, fn)
  local entry = { fn = check.callable(who, "hook", fn) }
  list[#list + 1] = entry
  return { remove = function()
    for i, e in ipairs(list) do
      if e == entry then return table.remove(list, i) and nil end
    end
  end }
end

--- Has fn(models, weights, folder) called before a state is saved, on all processes: the models, a list of their states, and
--- the folder that is being written. A state that is taken out of the list is not written: the hook has taken it over. Files
--- that hooks write into the folder become part of the checkpoint.
---@param fn fun(models: accel.nn.Module[], weights: table[], folder: string)
---@return {remove: fun()} handle
function M.register_save_state_pre_hook(self, fn)
  return add_hook("register_save_state_pre_hook", self._checkpointing.save_hooks, fn)
end

--- Has fn(models, folder) called before a state is loaded, on all processes. A model that is taken out of the list is not
--- loaded: the hook has done that.
---@param fn fun(models: accel.nn.Module[], folder: string)
---@return {remove: fun()} handle
function M.register_load_state_pre_hook(self, fn)
  return add_hook("register_load_state_pre_hook", self._checkpointing.load_hooks, fn)
end

-- ---- saving ----

--- The entries of `list` that hooks removed from `left`, by position from 1.
local function taken_out(list, left)
  local there, out = {}, {}
  for _, x in next, left do there[x] = true end
  for i, x in ipairs(list) do
    if not there[x] then out[i] = true end
  end
  return out
end

--- Runs the save hooks. Returns the states to write, by model, and the files that hooks wrote, of this part.
local function run_save_hooks(self, to, adapters)
  local state, models = self._checkpointing, {}
  local weights = ckpt_content.weights(self, #state.save_hooks > 0, adapters)
  if #state.save_hooks == 0 then return weights, {} end
  for i, model in ipairs(self._prepared.models) do models[i] = model end
  local before, left = {}, table.move(weights, 1, #weights, 1, {})
  for _, name in ipairs(folder.files(to)) do before[name] = true end
  if self.num_processes > 1 then dist.barrier() end
  for _, hook in ipairs { table.unpack(state.save_hooks) } do hook.fn(models, left, to) end
  if self.num_processes > 1 then dist.barrier() end
  for i in next, taken_out(weights, left) do weights[i] = false end
  local files = {}
  for _, name in ipairs(folder.files(to)) do
    if not before[name] then files[#files + 1] = name end
  end
  return weights, files
end

--- Begins to write. All ranks call it, and each adds its own part. Returns the save, its path, and the number in that.
--- o: options of save_state.
local function begin(self, path, opts, o)
  local adapters = o.adapter_only and require "accel.accelerator.adapter_only".all(self, "save_state") or nil
  local part, parts, own = writing.parts(self)
  local save, number
  save, path, number = writing.create(self, path, part, parts, own, opts)
  if number then self.project_configuration.iteration, self._checkpointing.next = number, number end
  -- all ranks' hooks end before a rank writes, so new files in the folder come from hooks
  local weights, files
  local ok, why = pcall(verdict, self, "save_state", function() weights, files = run_save_hooks(self, save.folder, adapters) end)
  if ok then
    ok, why = pcall(verdict, self, "save_state", function()
      local content = ckpt_content.collect(self, weights, adapters)
      for _, name in ipairs(part == 0 and files or {}) do writing.adopt(save, name) end
      ckpt_form[o.format](self, save, content, { part = part, parts = parts, safe_serialization = o.safe_serialization })
      local hooked = {}
      for i, state in ipairs(weights) do
        if not state then hooked[#hooked + 1] = i - 1 end
      end
      local record = part == 0 and ckpt_content.record(self, hooked, adapters) or nil
      if record and o.format ~= "accel" then record.format = o.format end
      save:start { state = record, asynchronous = o.asynchronous }
    end)
  end
  if not ok then
    save:abort()
    error(why, 0)
  end
  return save, path, number
end

--- Behind the commit, and not before, those that are too many go.
local function committed(self, pending)
  local project = self.project_configuration
  if pending.number and project.total_limit and writing.decides(self) then
    local ok, why = require "accel.ckpt".prune(folder.parent(pending.path), project.total_limit,
      { runs = run.mine(), spare = pending.path:match "[^/]*$" })
    if not ok then self:_warn(("save_state: total_limit: %s"):format(why)) end
  end
end

--- Saves the state of the run: models, optimizers, schedules, loss scale, the place of loaders in their data, random states
--- and registered objects. All processes must call it. It returns when the whole checkpoint is on disk. On failure it raises
--- on all processes and leaves the previous checkpoint untouched. Returns the folder.
---
--- With ProjectConfiguration { automatic_checkpoint_naming = true } the folder is project_dir/checkpoints/checkpoint_<iteration>. A folder
--- that you give is ignored, with a warning. The newest total_limit checkpoints of this run, and of the run it continues, are kept.
--- Checkpoints of another run in that folder are an error, raised by the first optimizer step or save_state, unless the run has called
--- load_state, was started with --resume auto, or sets on_existing = "beside".
---
--- asynchronous = true (or asynchronous_save in ProjectConfiguration): tensors are copied, then written while training
--- continues. The error of one that fails is raised by the next step, save, wait_for_save or end_training.
---
--- adapter_only = true: of models with adapters (accel.peft), save only the active adapter, by the names of PEFT's files. load_state
--- recognizes such a checkpoint and leaves the rest of the model unchanged. Other models are saved whole.
---@param output_dir? string ~ is the home
---
--- format = "accelerate": the folder loads in Accelerate, and here, with accel's additional data. The whole state lies in memory while it is
--- written, so parameters must not be sharded. safe_serialization = false then writes pytorch_model.bin.
---@param opts? {asynchronous: boolean?, safe_serialization: boolean?, adapter_only: boolean?, format: "accel"|"accelerate"?} files of accel's own
---  format are always safetensors: safe_serialization = false raises
---@return string folder
function M.save_state(self, output_dir, opts, ...)
  check.surplus("save_state", ...)
  check_self(self, "save_state")
  if type(output_dir) == "table" and opts == nil then output_dir, opts = nil, output_dir end
  local o = options("save_state", opts, { asynchronous = options.none, safe_serialization = true, adapter_only = false, format = "accel" })
  check.word("save_state", "format", o.format, { "accel", "accelerate" })
  if o.format == "accel" then require("accel.ckpt.model_files").only_safetensors("save_state", o.safe_serialization)
  elseif o.adapter_only then
    raise "save_state: adapter_only has no form in Accelerate's folders; leave out one of adapter_only and format"
  end
  if self._update.consumed then
    raise 'save_state: memory = "low" is in the middle of an update, which backward has applied; call it after optimizer:step()'
  end
  if output_dir ~= nil and (type(output_dir) ~= "string" or output_dir == "") then
    raise("save_state: the folder must be a string, got %s", check.shown(output_dir))
  end
  if o.asynchronous == nil then o.asynchronous = self.project_configuration.asynchronous_save end
  return self:_save(output_dir, o)
end

--- save_state, and with `always` under an automatic name in any case. o: options of save_state.
function M._save(self, output_dir, o, always)
  if unwritten.leaves_state(output_dir) then return output_dir or "?" end
  require "accel.accelerator.changes".settle(self)
  self:wait_for_save()
  local project, kept = self.project_configuration, self._checkpointing
  local elastic = rawget(self, "_elastic")
  local forget = elastic and require "accel.accelerator.elastic_saves".remember(self)
  local path, number, after = table.unpack(writing.of_first(self, "save_state", function()
    local to, n = folder.to_save(self, output_dir, always)
    kept.after = kept.after or folder.after(self)
    return { to, n or false, kept.after }
  end))
  if number and output_dir ~= nil then
    self:_warn(("save_state: the folder %s is ignored, because automatic_checkpoint_naming chooses the name; unset one of them"):format(output_dir))
  end
  if number then project.iteration, kept.next = number, number end
  local save
  save, path, number = begin(self, path, { replace = not number, after = after, number = number or nil }, o)
  local pending = { save = save, path = path, number = number, step = ckpt_content.step(self) }
  if elastic then
    pending.generation, pending.part, pending.forget = self.generation, writing.parts(self), forget
    pending.output_dir, pending.o, pending.always = output_dir, o, always
  end
  if number then project.iteration, kept.next = number + 1, number + 1 end
  kept.pending, kept.entering = pending, nil
  self._resume.moved = true -- there is a newer state than the one that --resume has loaded
  if not o.asynchronous then self:wait_for_save() end
  return path
end

--- Waits for the asynchronous save that is under way, if there is one, and raises its error. All processes call it.
function M.wait_for_save(self)
  check_self(self, "wait_for_save")
  local pending = self._checkpointing.pending
  if not pending then return end
  if pending.generation and pending.generation ~= self.generation then
    return require "accel.accelerator.elastic_saves".settle(self, pending, committed)
  end
  self._checkpointing.pending = nil
  local ok, why = pcall(verdict, self, "save_state", function()
    writing.wait(self, pending)
    committed(self, pending)
  end)
  if pending.reported then return end -- by the step that came upon it
  if not ok then
    if pending.number and self.project_configuration.iteration == pending.number + 1 then
      self.project_configuration.iteration, self._checkpointing.next = pending.number, pending.number
    end
    error(why, 0)
  end
end

--- In an elastic job, before an update: begins a save again that ranks were lost in. All ranks call it.
function M._resume_save(self)
  local pending = self._checkpointing.pending
  if pending and pending.generation ~= self.generation then
    require "accel.accelerator.elastic_saves".settle(self, pending, committed, true)
  end
end

--- At a step: raises the error of an asynchronous save that has failed, on this rank. It stays to be waited for, since that
--- is a collective, and other ranks may learn of its end a step later. In an elastic job it may have failed for a lost rank, of which this
--- one has not heard, so that only wait_for_save raises.
function M._look_at_save(self)
  local pending = self._checkpointing.pending
  if not pending or pending.generation or pending.looked_at or not pending.save:done() then return end
  pending.looked_at, pending.reported = true, true
  writing.wait(self, pending)
  pending.reported = false
end

-- ---- loading ----

--- Runs the load hooks. Returns the models that they took over, by position.
local function run_load_hooks(self, path)
  local models = table.move(self._prepared.models, 1, #self._prepared.models, 1, {})
  if #self._checkpointing.load_hooks == 0 then return {} end
  for _, hook in ipairs { table.unpack(self._checkpointing.load_hooks) } do hook.fn(models, path) end
  return taken_out(self._prepared.models, models)
end

--- Goes on from a saved state, on any number of processes. Everything is read, compared and verified before anything is changed: a state
--- that is damaged, or of another run, raises on all processes and leaves this one as it was. Prepared loaders continue with the next
--- batch of the interrupted pass, and loader.iteration is the number of finished passes. Without a folder, and with
--- automatic_checkpoint_naming, it loads the newest checkpoint that passes verification and names the ones it skipped. Returns the folder.
---
--- Folders of other tools also load. DeepSpeed's (any number of ranks) give parameters, optimizer states, steps, loss scale and schedule.
--- Accelerate's (one process, DDP, FSDP 1 and 2) and checkpoint-N of Transformers' Trainer also give registered objects and the number of
--- micro-batches. Parameters of an optimizer are identified by their positions in its groups. One warning names everything that stays
--- as it was, above all random states.
---@param input_dir? string
---@param opts? {map_location: string?} without effect: tensors go to the devices of the model
---@return string folder
function M.load_state(self, input_dir, opts, ...)
  check.surplus("load_state", ...)
  check_self(self, "load_state")
  if type(input_dir) == "table" and opts == nil then input_dir, opts = nil, input_dir end
  local o = options("load_state", opts, { map_location = options.none })
  if o.map_location ~= nil then
    check.word("load_state", "map_location", o.map_location, { "cpu", "on_device" })
    no_effect("accel.accelerator.Accelerator:load_state", o)
  end
  local there = self._resume:loaded_already(input_dir)
  if there then return there end
  return self:_load(input_dir)
end

--- Opens a checkpoint: accel's, or the folder of another tool. nil and the reason on failure. The third result, if there is one, returns a
--- warning about what was not loaded.
local function open(self, path)
  local function adapted(fn, ...)
    local ok, made, warning = pcall(fn, self, ...)
    if ok then return made, nil, warning end
    return nil, ("%s: %s"):format(path, (tostring(made):gsub("^[^\n:]*%.lua:%d+: ", "")))
  end
  if require "accel.ckpt.deepspeed".is(path) then return adapted(require "accel.accelerator.deepspeed_state".open, path) end
  local reader = foreign.opener(path)
  if reader then return adapted(foreign.open, reader, path) end
  local c, why = require "accel.ckpt".open(path)
  if c and c.manifest.state.format == "accelerate" then return adapted(foreign.mixed, c) end
  return c, why
end

--- load_state of a folder, or of the newest one.
function M._load(self, input_dir)
  self:wait_for_save()
  require "accel.accelerator.changes".settle(self)
  self._resume:explicit()
  local path = writing.of_first(self, "load_state", function() return folder.to_load(self, input_dir) end)
  local warning
  local plan = verdict(self, "load_state", function()
    local skip = run_load_hooks(self, path)
    local c, why
    c, why, warning = open(self, path)
    if not c then raise("load_state: %s", why) end
    local ok, result = pcall(function()
      for _, i in ipairs(c.manifest.state.hooked or {}) do
        if not skip[i + 1] then
          raise("a hook saved model %d, and no load hook takes it out of its list", i)
        end
      end
      return loading.check(self, c, skip)
    end)
    if self.is_local_main_process and self._checkpointing.verified ~= path then
      -- The data read so far is compared already. Now compare the rest, before any change. Damage also explains an error
      -- raised above.
      local whole, damage = pcall(writing.verify, self, c)
      if not whole then ok, result = false, damage end
    end
    if ok then return result end
    c:close()
    raise("load_state: %s: %s", path, (tostring(result):gsub("^[^\n:]*%.lua:%d+: ", "")))
  end)
  self._checkpointing.verified = nil
  for rank, step in ipairs(self.num_processes > 1 and dist.all_gather_object(plan.record.step) or {}) do
    if step ~= plan.record.step then
      plan.c:close()
      raise("load_state: the checkpoint of rank %d is of step %d, that of rank %d of step %d", self.process_index,
        plan.record.step, rank - 1, step)
    end
  end
  local _ <close> = setmetatable({}, { __close = function() plan.c:close() end })
  verdict(self, "load_state", loading.apply, self, plan)
  loading.publish(self)
  run.continue(plan.c.manifest.version and plan.c.manifest or nil) -- other tools have none
  if warning then self:_warn(warning()) end
  self._checkpointing.next = 1 + writing.of_first(self, "load_state", function()
    local last = plan.record.iteration
    local parent = folder.checkpoints(self)
    return math.max(path:find "checkpoint_%d+$" and last or last - 1, parent and folder.greatest(parent) or -1)
  end)
  self.project_configuration.iteration = self._checkpointing.next
  return path
end

return M
