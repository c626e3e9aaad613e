--- adapter_only of save_state, save_model and get_state_dict: of a model with adapters (accel.peft) nothing but the active adapter, by the
--- names of PEFT's files. Used by prepare.lua, save.lua, checkpoint_content.lua and checkpoint_load.lua.
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local states = require "accel.peft.state"

local M = {}

--- The names in files of a prepared model's saved parameters: parameter -> name. nil for a model without adapters.
---@param accelerator accel.Accelerator
---@param who string
---@param model accel.nn.Module
---@param adapter? string default the active one, even if the model has no adapter of that name
---@return table<accel.Tensor, string>?
function M.names(accelerator, who, model, adapter)
  local inner = accelerator:unwrap_model(model)
  if not states.is(inner) then return nil end
  if accelerator._parallel and accelerator._parallel:is_model_parallel() then
    raise("%s: adapter_only: the model is split over a mesh of ranks, which cannot write separate adapter files; leave it out", who)
  end
  return states.names(inner, adapter)
end

--- The names for every prepared model, false for those without adapters. Raises if no model has adapters.
---@param accelerator accel.Accelerator
---@param who string
---@return (table<accel.Tensor, string>|false)[]
function M.all(accelerator, who)
  local list, any = {}, false
  for i, model in ipairs(accelerator._prepared.models) do
    list[i] = M.names(accelerator, who, model) or false
    any = any or list[i] ~= false
  end
  if not any then raise("%s: adapter_only: no prepared model has adapters; make one by peft.get_peft_model", who) end
  return list
end

--- An adapter's tensors by the names of PEFT's files. If parameters are sharded over ranks, all ranks must call it. The main
--- process gets whole copies and the others an empty table. Units without adapter parameters are not gathered.
---@param accelerator accel.Accelerator
---@param who string
---@param model accel.nn.Module
---@param adapter? string as of `names`
---@return table<string, accel.Tensor> ordered
function M.state(accelerator, who, model, adapter)
  local names = M.names(accelerator, who, model, adapter)
  if not names then raise("%s: adapter_only: the model has no adapters; make one by peft.get_peft_model", who) end
  local inner, engine, whole = accelerator:unwrap_model(model), rawget(model, "reducer"), {}
  local for_file, name = who == "get_state_dict", adapter or inner.active_adapter
  if engine and engine.units and engine:gathers() then
    if for_file and states.computed(inner, name) then
      raise("%s: adapter_only: the prompt of this adapter is computed from parameters that ranks have parts of; leave adapter_only out", who)
    end
    local _ <close> = require("accel").no_grad()
    whole = require("accel.shard.summon").tensors(engine, accelerator.is_main_process, names)
    if not accelerator.is_main_process then return ordered() end
  elseif for_file then
    return states.get_peft_model_state_dict(inner, name)
  end
  local out = ordered()
  for _, p in pairs(inner:named_parameters()) do
    if names[p] then out[names[p]] = whole[p] or p:detach() end
  end
  if for_file then states.complete(inner, name, out) end
  return out
end

--- The option of a call that has none but this one.
---@param who string
---@param opts? {adapter_only: boolean?}
---@return boolean
function M.option(who, opts) return options(who, opts, { adapter_only = false }).adapter_only end

return M
