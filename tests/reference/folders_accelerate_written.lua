-- Folders that accel writes for Accelerate. The state of a row is loaded and saved with format = "accelerate". Without accel's own files the
-- folder continues with the row's losses, its groups have the options that Accelerate needs (FORMAT.md), and its pickles hold only types that
-- Accelerate's reader takes (types.json). Used by folders_accelerate.lua.
local accel = require "accel"

local M = {}

-- The Python type of types.json for each name that a pickle may hold.
local TYPES <const> = { ["collections.OrderedDict"] = "OrderedDict", ["torch._utils._rebuild_tensor_v2"] = "tensor",
  ["torch._utils._rebuild_parameter"] = "parameter", ["torch.Size"] = "torch.Size", ["torch.device"] = "torch.device",
  ["builtins.set"] = "set", ["__builtin__.set"] = "set", ["_codecs.encode"] = "bytes", ["collections.Counter"] = "Counter" }

local function folder()
  local path = os.tmpname()
  os.remove(path)
  return path
end

local function remove(path) os.execute(("rm -rf '%s'"):format(path)) end

--- A folder without accel's own files.
local function without_own(path) os.execute(("rm -f '%s'/MANIFEST.json '%s'/*.accel"):format(path, path)) end

local function pickles(path)
  local list = {}
  for _, name in ipairs(accel.listdir(path)) do
    if name:find "%.bin$" or name:find "%.pkl$" or name:find "%.pt$" then list[#list + 1] = name end
  end
  return list
end

--- The names and the protocol of a file's pickle. accel stores zip entries uncompressed.
local function globals_of(file)
  local f <close> = assert(io.open(file, "rb"))
  local bytes, names = f:read "a", {}
  for module, name in bytes:gmatch "c([%a_][%w_.]*)\n([%a_][%w_]*)\n" do names[module .. "." .. name] = true end
  return names, bytes:match "\x80([\x02-\x05])[}c%]%(]"
end

--- Reports names of pickles in a folder that Accelerate's reader refuses.
local function check_names(path, types, report)
  local taken, protocols = {}, {}
  for _, t in ipairs(types) do
    if t.type then taken[t.type] = t.accelerate elseif t.torch then protocols[t["pickle protocol"]] = true end
  end
  for _, file in ipairs(pickles(path)) do
    local names, protocol = globals_of(path .. "/" .. file)
    for name in accel.pairs(names) do
      local kind = TYPES[name] or name:find "^torch%.%a+Storage$" and "tensor" or name:find "^torch%.%l[%w_]*$" and "torch.dtype"
      if not taken[kind] then report(file .. ": " .. name, "not taken", "a type that Accelerate reads") end
    end
    if not (protocol and protocols[protocol:byte()]) then report(file, "protocol " .. tostring(protocol and protocol:byte()), "2 or 3") end
  end
end

--- The row of types.json: a folder with every kind of value that a registered object may hold.
function M.check_types(path, report)
  local reference = require "folders_accelerate"
  local types = reference.read_json(path)
  accel.accelerator.AcceleratorState._reset_state(true)
  local a, net = accel.Accelerator { gradient_accumulation_steps = 2 }, accel.nn.Linear(3, 2)
  local optimizer = accel.optim.NAdam(net:parameters())
  local schedule = accel.optim.lr_scheduler.StepLR(optimizer, 2)
  local model
  model, optimizer, schedule = a:prepare(net, optimizer, schedule)
  local box = { load_state_dict = function() end, state_dict = function()
    return { text = "x\u{e9}", bytes = "\xff\0", flag = true, whole = 2 ^ 53 | 1, real = 0.5, list = { 1, { "y" } },
      map = { [3] = accel.ones(2) }, none = {} }
  end }
  a:register_for_checkpointing(box)
  a:backward(model(accel.ones(1, 3)):sum())
  optimizer:step()
  schedule:step()
  for _, safe in ipairs { true, false } do
    local out = folder()
    a:save_state(out, { format = "accelerate", safe_serialization = safe })
    without_own(out)
    check_names(out, types, report)
    remove(out)
  end
end

--- The options that Accelerate needs of a group, by the class of the optimizer (FORMAT.md).
local ADAM <const> = { "lr", "betas", "eps", "weight_decay", "amsgrad" }
local NEEDED <const> = { AdamW = ADAM, Adam = ADAM }

--- Saves the loaded state of a row and continues from the written folder.
---@param path string of the row
---@param about table
---@param data table<string, accel.Tensor>
---@param report fun(quantity: string, distance: any, bar: any)
function M.check(path, about, data, report)
  local reference = require "folders_accelerate"
  if about.files and next(about.files):find "^checkpoints/" then return end
  local opts = { gradient_accumulation_steps = about.gradient_accumulation_steps }
  local n = 0
  for name in pairs(about.files or {}) do n = n + (name:find "^custom_checkpoint_" and 1 or 0) end
  local function session()
    local a, sets = reference.session(about, opts)
    for _ = 1, n do a:register_for_checkpointing(reference.box()) end
    return a, sets
  end
  for _, safe in ipairs { true, false } do
    local a = session()
    a:load_state(path .. "/folder")
    local out = folder()
    a:save_state(out, { format = "accelerate", safe_serialization = safe })
    for _, own in ipairs { true, false } do -- with accel's files, and as Accelerate sees it
      if not own then without_own(out) end
      local b, sets = session()
      b:load_state(out)
      local losses = reference.train(b, sets, about, data, about.steps_before, #about.losses_after_load)
      local title = ("losses from the written folder%s%s"):format(safe and "" or " (pickles)", own and "" or " without accel's files")
      reference.numbers(title, losses, about.losses_after_load, about.half and 1e-2 or 1e-6, report)
    end
    for i, o in ipairs(about.optimizers) do
      local state = assert(accel.load(("%s/optimizer%s.bin"):format(out, i == 1 and "" or "_" .. i - 1)))
      for g, group in ipairs(state.param_groups) do
        for _, key in ipairs(NEEDED[o.class] or { "lr", "weight_decay" }) do
          if group[key] == nil then report(("written optimizer %d, group %d"):format(i - 1, g - 1), "no " .. key, "there") end
        end
      end
    end
    remove(out)
  end
end

return M
