--- A model's part of a checkpoint: its tensors by name, tied ones once, and whether stored ones fit. Used by
--- stdlib/accel/accelerator/checkpoint_content.lua and checkpoint_load.lua.
local ordered = require "accel.util.ordered"
local tensors = require "accel.util.tensors"

local M = {}

local SHOWN <const> = 40 -- names that a message lists at most, of each kind

--- The identity of a tensor's bytes, the same for names of the same bytes.
local function identity(name, t)
  if t:numel() == 0 or t.device == "meta" then return name end
  return ("%s %d %s %s"):format(t.device, t:data_ptr(), t.dtype, tensors.shape_string(t))
end

--- The tensors of a state without the further names of tied ones: name -> tensor in the state's order, and name -> the
--- name that stands for it.
---@param state table<string, accel.Tensor>
---@return table<string, accel.Tensor> kept
---@return table<string, string> tied
function M.untied(state)
  local kept, tied, first = ordered(), {}, {}
  for name, t in ordered.iterate(state) do
    local id = identity(name, t)
    if first[id] then tied[name] = first[id]
    else
      first[id], kept[name] = name, t
    end
  end
  return kept, tied
end

local function listed(names)
  local shown = {}
  for i = 1, math.min(#names, SHOWN) do shown[i] = "'" .. names[i] .. "'" end
  if #names > SHOWN then shown[#shown + 1] = ("... (%d in all)"):format(#names) end
  return table.concat(shown, ", ")
end

local function shape_text(shape)
  local parts = {}
  for i, n in ipairs(shape) do parts[i] = ("%d"):format(n) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

--- Whether a stored tensor of 16 bits is read into one of f32, which loses nothing: prepare holds trained parameters in f32 that were
--- saved in 16 bits by another strategy.
---@param stored string dtype
---@param own string dtype
---@return boolean
function M.widens(stored, own) return own == "f32" and (stored == "bf16" or stored == "f16") end

--- The reasons why stored tensors cannot be loaded into these, as one text: missing names, unexpected names, different
--- shapes and dtypes. nil if they match.
---@param own table<string, accel.Tensor>
---@param stored {name: string, dtype: string, shape: integer[]}[]
---@return string?
function M.misfit(own, stored)
  local found, missing, unexpected, problems = {}, {}, {}, {}
  for _, s in ipairs(stored) do
    found[s.name] = s
    if own[s.name] == nil then unexpected[#unexpected + 1] = s.name end
  end
  local differ, narrows = {}, false
  for name, t in ordered.iterate(own) do
    local s = found[name]
    if not s then
      -- files from before norms counted their batches lack this one
      if not name:find "num_batches_tracked$" then missing[#missing + 1] = name end
    elseif shape_text(s.shape) ~= tensors.shape_string(t) then
      differ[#differ + 1] = ("'%s' has shape %s, here it is %s"):format(name, shape_text(s.shape), tensors.shape_string(t))
    elseif s.dtype ~= t.dtype and not M.widens(s.dtype, t.dtype) then
      differ[#differ + 1] = ("'%s' has dtype %s, here it is %s"):format(name, s.dtype, t.dtype)
      narrows = narrows or M.widens(t.dtype, s.dtype)
    end
  end
  table.sort(unexpected)
  if #missing > 0 then problems[#problems + 1] = "missing " .. listed(missing) end
  if #unexpected > 0 then problems[#problems + 1] = "unexpected " .. listed(unexpected) end
  for i = 1, math.min(#differ, SHOWN) do problems[#problems + 1] = differ[i] end
  if #differ > SHOWN then problems[#problems + 1] = ("... (%d that differ in all)"):format(#differ) end
  if narrows then problems[#problems + 1] = "load the model in f32, in which it was saved" end
  return #problems > 0 and table.concat(problems, "; ") or nil
end

return M
