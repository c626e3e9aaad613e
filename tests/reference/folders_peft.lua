-- Adapters that PEFT saved, on the model that each row names: logits with the adapter, without it and merged, the loss and the gradients of
-- what learns. Used by folders.lua and tests/stdlib/peft/folders_test.lua.
local accel = require "accel"
local peft = accel.peft
local described = require "described_model"

local M = {}

local BAR <const> = 1e-4 -- the README's: of the largest value

local function largest(t) return t:numel() > 0 and t:to "f64":abs():max():item() or 0 end

--- The largest difference as a share of the largest value, or of `size` where that is more.
local function distance(got, expected, size)
  got, expected = got:to "f64", expected:to "f64"
  if got.shape ~= expected.shape then return ("shape %s, not %s"):format(tostring(got.shape), tostring(expected.shape)) end
  size = math.max(largest(expected), size or 0)
  return largest(got - expected) / (size > 0 and size or 1)
end

local function read_json(path)
  local f <close> = assert(io.open(path, "rb"))
  return accel.json.decode(f:read "a")
end

--- The model's inputs: the first, and the others by name.
local function inputs(expected)
  local first, others
  for key, t in pairs(expected) do
    local name = key:match "^in/(.*)"
    if name then
      t = t:is_floating_point() and t:to "f64" or t
      if name == "input_ids" or name == "pixel_values" or name == "x" then first = t else others = others or {}; others[name] = t end
    end
  end
  return first, others
end

--- Whether a parameter's gradient is the loss's, though PEFT's differs: along the difference of both the loss rises as fast as the gradient
--- has it, and not as fast as PEFT's has it. (Layers of PEFT with backward functions of their own return wrong ones.)
local function right(p, want, size, loss_of)
  local got = p.grad:to "f64"
  if got.shape ~= want.shape or got:numel() == 0 then return false end
  local d = got - want:to "f64"
  local far = largest(d)
  if far <= BAR * math.max(largest(want), size) then return false end
  local _ <close> = accel.no_grad()
  local step, own = 1e-5 / far, p:detach()
  local kept = own:clone()
  own:copy_(kept + d * step)
  local above = loss_of():item()
  own:copy_(kept - d * step)
  local below = loss_of():item()
  own:copy_(kept)
  local slope = (above - below) / (2 * step)
  local ours, theirs = (got * d):sum():item(), (want:to "f64" * d):sum():item()
  return math.abs(slope - ours) < 1e-3 * math.abs(slope - theirs)
end

--- Compares one folder; report(quantity, distance, bar) is called for what is not as PEFT has it.
---@param path string
---@param report fun(quantity: string, distance: any, bar: any)
function M.check(path, report)
  local about = read_json(path .. "/expected.json")
  local folder, message = path:gsub("[^/]*$", about.base), nil
  local base = described.load(folder, "f64")
  if not base then base, message = accel.models.from_pretrained(folder, { dtype = "f64" }) end
  if not base then return report("base", message, "loads") end
  local ok, model, why = pcall(peft.PeftModel.from_pretrained, base, path, { is_trainable = true })
  if not ok or not model then return report("load", tostring(ok and why or model), "loads") end
  local expected = assert(accel.load(path .. "/expected.safetensors"))
  local function compare(quantity, got, want, size)
    local d = distance(got, want, size)
    if type(d) == "string" or not (d <= BAR) then report(quantity, d, BAR) end
  end
  model:eval()
  local first, others = inputs(expected)
  local logits, labels = nil, expected.labels
  local function loss_of()
    logits = model(first, others)
    return accel.nn.functional.cross_entropy(logits:reshape(-1, logits.shape[#logits.shape]), labels:reshape(-1))
  end
  local loss = loss_of()
  compare("logits", logits, expected.logits)
  compare("loss", loss, expected.loss)
  loss:backward()
  local gradients, wanted, size = 0, 0, 0 -- gradients that are zero but for rounding (of a key's bias) count beside the others
  for key, t in pairs(expected) do
    if key:find "^grad/" then wanted, size = wanted + 1, math.max(size, 1e-3 * largest(t)) end
  end
  for p, name in pairs(require("accel.peft.state").names(model)) do
    local want = expected["grad/" .. name]
    if want then
      gradients = gradients + 1
      if p.grad and not right(p, want, size, loss_of) then compare("grad/" .. name, p.grad, want, size)
      elseif not p.grad and want:numel() > 0 then report("grad/" .. name, "none", BAR) end
    end
  end
  if gradients ~= wanted then report("gradients", gradients, wanted) end
  local _ <close> = accel.no_grad()
  if expected.logits_off then
    if others then others.task_ids = nil end -- which are the adapter's
    compare("logits_off", model:disable_adapter(function() return model(first, others) end), expected.logits_off)
  end
  if about.merge then return end -- what cannot be merged there
  local merged, refused = pcall(model.merge_adapter, model)
  if not merged then
    if not about.merge_fault then report("merge_adapter", refused, "merges") end -- what PEFT merges wrongly may be refused
    return
  end
  compare("logits_merged", model(first, others), about.merge_fault and expected.logits or expected.logits_merged or expected.logits)
  model:unmerge_adapter()
  compare("logits after unmerge_adapter", model(first, others), expected.logits)
end

return M
