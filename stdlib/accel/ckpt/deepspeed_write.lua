--- Writes a folder of DeepSpeed, ZeRO stage 2 on one rank: `latest`, the file of the model and the file of the optimizer. zero_to_fp32.py
--- makes whole weights of it, and accel.ckpt.deepspeed reads it. Called by torch_folders.
---
--- A parameter group is one flat f32 vector of its parameters in order, and so is each of their states.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local pickle = require "accel.util.pickle"
local raise = require "accel.util.raise"
local torch_file = require "accel.util.torch_file"
local writer = require "accel.util.writer"

local VERSION <const> = "0.19.8" -- the version of DeepSpeed whose files these are
local MODEL <const>, OPTIM <const> = "mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"

local function flat(t) return t:detach():to "f32":reshape(-1) end

--- One vector of tensors. DeepSpeed cuts it among ranks at an even number of elements.
local function join(list)
  local n = 0
  for i, t in ipairs(list) do
    list[i] = flat(t)
    n = n + list[i]:numel()
  end
  if n % 2 == 1 then list[#list + 1] = accel.zeros(1) end
  return #list > 0 and accel.cat(list, 1) or accel.zeros(0), n % 2
end

--- The parameters by group. Without an optimizer all floating values are one group.
local function groups_of(contents)
  if #contents.groups > 0 then return contents.groups end
  local names = {}
  for name, t in ordered.iterate(contents.model) do
    if t:is_floating_point() then names[#names + 1] = name end
  end
  return { { names = names, options = {}, states = {} } }
end

--- A group's states: flat vectors by key, and the step. Parameters that never stepped have zeros.
local function states_of(group, model)
  local keys, step, out = {}, nil, ordered()
  for _, entry in next, group.states do
    for key, value in next, entry do
      if accel.is_tensor(value) and value.ndim > 0 then keys[key] = true
      elseif key == "step" then step = math.max(step or 0, accel.is_tensor(value) and value:item() or value) end
    end
  end
  if next(keys) == nil and not step then return nil end
  if step then out.step = accel.tensor(step + 0.0) end
  for key in accel.pairs(keys) do
    local list = {}
    for i, name in ipairs(group.names) do
      local value = group.states[name] and group.states[name][key]
      if value and value:numel() ~= model[name]:numel() then
        raise("'%s': its %s has another size than the parameter, which a flat vector cannot hold", name, key)
      end
      list[i] = value or accel.zeros(model[name].shape)
    end
    out[key] = join(list)
  end
  return out
end

local function sizes(t) return pickle.size(table.move(t.shape, 1, t.ndim, 1, {})) end

--- The contents of both files.
local function files_of(contents)
  local model, is_parameter, shapes, flats, paddings, slices, state, param_groups = contents.model, {}, {}, {}, {}, {}, {}, {}
  for g, group in ipairs(groups_of(contents)) do
    local list, at = {}, 0
    shapes[g], slices[g] = ordered(), ordered()
    for i, name in ipairs(group.names) do
      local t = model[name] or raise("the model has no '%s', which the optimizer trains", name)
      list[i], is_parameter[name], shapes[g][name] = t, true, sizes(t)
      slices[g][name] = pickle.object("deepspeed.utils.tensor_fragment", "fragment_address", { numel = t:numel(), start = at })
      at = at + t:numel()
    end
    flats[g], paddings[g] = join(list)
    state[g - 1] = states_of(group, model)
    param_groups[g] = ordered()
    for key, value in ordered.iterate(group.options) do param_groups[g][key] = value end
    param_groups[g].params = pickle.list { g - 1 }
    shapes[g] = pickle.odict(shapes[g])
    slices[g] = pickle.odict(slices[g])
  end
  local others, module, shared = {}, ordered(), contents.shared or {}
  for name, t in ordered.iterate(model) do
    module[name] = t:detach()
    if not is_parameter[name] then others[#others + 1] = name end
  end
  for alias, name in ordered.iterate(shared) do module[alias] = module[name] end
  local none = accel.json.null
  return {
    module = pickle.odict(module), buffer_names = pickle.list(others), optimizer = none, param_shapes = pickle.list(shapes),
    frozen_param_shapes = pickle.dict {}, frozen_param_fragments = pickle.dict {}, shared_params = pickle.dict(shared), lr_scheduler = none,
    data_sampler = none, random_ltd = none, sparse_tensor_module_names = pickle.list {}, skipped_steps = 0, global_steps = contents.step,
    global_samples = 0, dp_world_size = 1, mp_world_size = 1, ds_config = { zero_optimization = { stage = 2 } }, ds_version = VERSION,
  }, {
    optimizer_state_dict = {
      dynamic_loss_scale = false, overflow = false, clip_grad = 0.0, zero_stage = 2, partition_count = pickle.list { 1 },
      group_paddings = pickle.list(paddings), param_slice_mappings = pickle.list(slices), ds_version = VERSION,
      single_partition_of_fp32_groups = pickle.list(flats),
      base_optimizer_state = { state = pickle.dict(state), param_groups = pickle.list(param_groups) },
    },
    ds_config = { zero_optimization = { stage = 2 } }, ds_version = VERSION,
  }
end

--- Writes the folder: DIR/latest and DIR/global_step<N>. Tensors that no group trains are written as buffers.
---@param dir string
---@param contents {model: table<string, accel.Tensor>, groups: {names: string[], options: table, states: table<string, table>}[], step:
---  integer,
---  shared: table<string, string>?} shared: aliases of tied tensors
---@return boolean?, string?, string?
return function(dir, contents)
  local tag = ("global_step%d"):format(contents.step)
  local model, optimizer = files_of(contents)
  local set <close>, message, code = writer.set(dir .. "/" .. tag)
  if not set then return nil, message, code end
  local done
  done, message, code = torch_file.save(MODEL, model, set, dir)
  if done then done, message, code = torch_file.save(OPTIM, optimizer, set, dir) end
  if done then done, message, code = set:commit() end
  if done then done, message, code = writer.file(dir .. "/latest", tag) end -- last: it names the folder
  return done, message, code
end
