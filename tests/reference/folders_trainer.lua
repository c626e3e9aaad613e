-- checkpoint-N folders of Transformers' Trainer: every file but training_args.bin is read as data and compared, accelerator:load_state reads the
-- folder, and the next steps have Trainer's losses, rates and norms of gradients. Used by folders.lua.
local accel = require "accel"
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
local accelerate = require "folders_accelerate"
local trees = require "trees"

local M = {}

local LOSS <const>, NORM <const>, RATE <const> = 1e-5, 1e-4, 1e-9

-- Trainer's defaults of the arguments that a row may leave out.
local DEFAULTS <const> = { optim = "adamw", lr_scheduler_type = "linear", warmup_steps = 0, weight_decay = 0.0, max_grad_norm = 1.0 }

local OPTIMIZERS <const> = {
  adamw = function(groups) return accel.optim.AdamW(groups) end,
  sgd = function(groups) return accel.optim.SGD(groups) end,
  adafactor = function(groups) return accel.optim.Adafactor(groups, { scale_parameter = false }) end,
}

local function compare_files(path, about, tensors, report)
  for name, want in accel.pairs(about.files) do
    local at = path .. "/folder/" .. name
    if want.safetensors then
      local state, message = accel.load(at)
      if not state then report(name, message, "loads") end
      for key, form in pairs(state and want.safetensors or {}) do
        local fits = state[key] and table.concat(state[key].shape, ",") == table.concat(form[2], ",")
        if not fits then report(name .. "/" .. key, "another shape", form[1]) end
      end
    elseif want.json then
      if not trees.equal(accelerate.read_json(at), want.json) then report(name, "other values", "equal") end
    elseif not want.object then
      local value, message = accel.load(at, { device = "cpu" })
      if value == nil then report(name, message, "loads")
      else
        if want.list and not value[1] then -- the row has the keys alone
          local keys = {}
          for key in pairs(value) do keys[#keys + 1] = key end
          table.sort(keys)
          value = keys
        end
        local ok, why = accelerate.same(want, value, tensors, name)
        if not ok then report("files", why, "equal") end
      end
    end
  end
end

--- The model of a row: its own, or a base with the saved adapter.
local function model_of(path)
  if not accelerate.exists(path .. "/folder/adapter_config.json") then
    local config = accelerate.read_json(path .. "/folder/config.json")
    return accel.models.AutoModelForCausalLM.from_config(config)
  end
  local base = assert(accel.models.from_pretrained(path .. "/base"))
  return assert(accel.peft.PeftModel.from_pretrained(base, path .. "/folder", { is_trainable = true }))
end

--- Compares one row.
---@param path string
---@param report fun(quantity: string, distance: any, bar: any)
function M.check(path, report)
  local about = accelerate.read_json(path .. "/expected.json")
  compare_files(path, about, assert(accel.load(path .. "/expected.safetensors")), report)
  local state = accelerate.read_json(path .. "/folder/trainer_state.json")
  local args = setmetatable(about.arguments, { __index = DEFAULTS })
  accel.accelerator.AcceleratorState._reset_state(true)
  accel.manual_seed(5)
  local a, model = accel.Accelerator(), model_of(path)
  local by_name, groups = {}, {}
  for name, p in model:named_parameters() do by_name[name] = p end
  for g, names in ipairs(about.optimizer_parameters) do
    local params = {}
    for i, name in ipairs(names) do params[i] = by_name[name] or error("no parameter " .. name) end
    if #params > 0 then groups[#groups + 1] = { params = params, weight_decay = g == 1 and args.weight_decay or 0.0 } end
  end
  local optimizer = OPTIMIZERS[args.optim](groups)
  local schedule = accel.optim.lr_scheduler.get_scheduler(args.lr_scheduler_type, optimizer,
    { num_warmup_steps = args.warmup_steps, num_training_steps = state.max_steps })
  model, optimizer, schedule = a:prepare(model, optimizer, schedule)
  a:load_state(path .. "/folder")
  if optimizer.applied ~= about.global_step and args.optim ~= "sgd" then report("applied", optimizer.applied, about.global_step) end
  local ids = assert(accel.load((path:gsub("[^/]*$", "data.safetensors")))).ids
  for _, want in ipairs(about.steps_after_resume) do
    local batch = ids:narrow(1, (want.step - 1) * about.batch + 1, about.batch)
    local n, rate = batch.shape[2], optimizer.param_groups[1].lr
    local logits = model(batch)
    logits = logits:narrow(2, 1, n - 1):reshape(-1, logits.shape[3])
    local loss = accel.nn.functional.cross_entropy(logits, batch:narrow(2, 2, n - 1):reshape(-1))
    a:backward(loss)
    local norm = a:clip_grad_norm_(model:parameters(), args.max_grad_norm > 0 and args.max_grad_norm or math.huge)
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
    accelerate.numbers(("step %d: loss"):format(want.step), loss:item(), want.loss, LOSS, report)
    accelerate.numbers(("step %d: learning_rate"):format(want.step), rate, want.learning_rate, RATE, report)
    norm = accel.is_tensor(norm) and norm:item() or norm
    accelerate.numbers(("step %d: grad_norm"):format(want.step), norm, want.grad_norm, NORM, report)
  end
end

return M
