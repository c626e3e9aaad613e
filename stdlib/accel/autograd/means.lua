--- Means and their counts. A loss that is a mean over labels has the number of these labels as its count, so that means of parts (of
--- micro-batches, stages, ranks) can be joined: the sum of all losses over the sum of all counts. A part without labels has the loss 0 and
--- the count 0. Models mark their losses. accel.parallel, accelerator:backward and
--- others read the marks.
local accel = require "accel.core"
local core = require "accel.autograd.core"

local M = {}

local terms_of = setmetatable({}, { __mode = "k" })

---@class accel.autograd.Mean
---@field loss accel.Tensor a mean
---@field count accel.Tensor how many labels it is over, a rank-0 tensor
---@field whole boolean? the same on all ranks that average gradients: their labels are counted already

--- Notes that a loss is the sum of these means.
---@param loss accel.Tensor
---@param terms accel.autograd.Mean[]
---@return accel.Tensor loss
function M.mark(loss, terms)
  terms_of[loss] = terms
  return loss
end

--- The means whose sum a loss is. nil if unknown.
---@param loss accel.Tensor
---@return accel.autograd.Mean[]?
function M.of(loss) return terms_of[loss] end

local model_of = setmetatable({}, { __mode = "k" })

--- Whether no gradient can leave a model through an argument. Unknown objects might let one through.
local function ends_here(x)
  if accel.is_tensor(x) then return not x.requires_grad end
  if type(x) ~= "table" then return true end
  if getmetatable(x) ~= nil then return false end
  for _, y in next, x do
    if type(y) == "table" or accel.is_tensor(y) and y.requires_grad then return false end
  end
  return true
end

--- Notes that a model has made a loss of these arguments, and that gradients reach nothing but its parameters.
---@param model accel.nn.Module
---@param loss accel.Tensor
---@param ... any
---@return accel.Tensor loss
function M.from(model, loss, ...)
  if not terms_of[loss] then return loss end
  for i = 1, select("#", ...) do
    if not ends_here((select(i, ...))) then return loss end
  end
  model_of[loss] = model
  return loss
end

--- The only model whose parameters receive gradients of a loss. nil if unknown.
---@param loss accel.Tensor
---@return accel.nn.Module?
function M.model(loss) return model_of[loss] end

--- How many labels of a target count.
---@param target accel.Tensor
---@param ignore? integer -100
---@return accel.Tensor
function M.labels(target, ignore) return target:ne(ignore or -100):sum() end

--- A marked mean over the labels of a target. 0 if no label counts.
---@param loss accel.Tensor the mean, or NaN if no label counts
---@param target accel.Tensor
---@param ignore? integer -100
---@return accel.Tensor
function M.over(loss, target, ignore)
  local count = M.labels(target, ignore)
  loss = loss:masked_fill(count:eq(0), 0)
  return M.mark(loss, { { loss = loss, count = count } })
end

--- The count of a loss that is the mean of a cross entropy: by its marks, else by the call that made it. nil: not such a mean.
---@param loss accel.Tensor
---@return accel.Tensor? count
function M.count(loss)
  local terms = terms_of[loss]
  if terms then return #terms == 1 and terms[1].count or nil end
  local target, ignore, weight = core.averaged(loss)
  if not target then return nil end
  local _ <close> = accel.no_grad()
  if not weight then return M.labels(target, ignore) end
  target = target:reshape(-1)
  local counts = target:ne(ignore)
  return (weight:to("f64"):index_select(1, target:masked_fill(counts:logical_not(), 0)) * counts):sum()
end

return M
