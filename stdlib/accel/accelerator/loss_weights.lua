--- The weight of a rank's mean loss in the mean over all ranks. Averaging gradients alone would be wrong if ranks have different numbers
--- of labels, or padding rows. Used by training.lua and prepare.lua.
---
--- A loss that a model has computed from labels has a known count (accel.autograd.means): weights follow from the counts of all ranks, and
--- micro-steps of an update have weights by theirs (update.lua). For another loss, the number of valid rows in the loader's batch is known.
--- Padding ends a pass if ranks must have equally many rows, and must not contribute to gradients: labels of a model are masked, and
--- gradients of its outputs are set to zero. A full batch needs none of this. Nor does the loss of a model of which nothing was prepared.
local accel = require "accel"
local dist = require "accel.dist"
local guard = require "accel.util.guard"
local means = require "accel.autograd.means"

local M = {}

--- The number of ranks that average gradients, and a function that sums a tensor over them, in place. nil if each rank
--- keeps its own.
local function averaging(self)
  local size, axis = self.num_processes, nil
  if self._parallel then
    axis = self._parallel:axis "data"
    size = axis.size
  end
  if size == 1 then return nil end
  local averages, by_hand = false, self.gradient_state.num_steps == 1
  for _, model in ipairs(self._prepared.models) do
    local reducer = rawget(model, "reducer")
    averages = averages or reducer
    -- a script's own no_sync: ranks need not run backward equally often there
    if reducer and by_hand and rawget(model, "require_backward_grad_sync") == false then return nil end
  end
  if not averages then return nil end
  return size, function(t) dist.all_reduce(t, { group = axis and axis.group }) end
end

local is_prepared = setmetatable({}, { __mode = "k" }) -- model -> the list of an Accelerator that has prepared it, or a part

--- Whether a loss comes from an unprepared model: its gradients stay on this rank, regardless of other ranks. Not asked while micro-steps
--- accumulate, whose weights are one for all losses of an update.
local function stays_here(self, loss)
  local model = self.gradient_state.num_steps == 1 and means.model(loss)
  local models = self._prepared.models
  if not model or is_prepared[model] == models then return false end
  local own, learns = {}, false
  for _, p in ipairs(model:parameters()) do own[p], learns = true, learns or p.requires_grad end
  if not learns then return false end -- gradients are for somebody else
  for _, prepared in ipairs(models) do
    for _, p in ipairs(prepared:parameters()) do
      if own[p] then
        is_prepared[model] = models
        return false
      end
    end
  end
  return true
end

-- Padding ----------------------------------------------------------------------------------------

--- The batch under way, if some rank's rows are padding: its Rows, this rank's rows, how many of them are valid, and how many of all ranks.
local function padded(self)
  local loader = self.gradient_state.active_dataloader
  local rows = loader and loader.rows
  if not rows or rows.full then return nil end
  local r, all, count = loader.process_index + 1, 0, 0
  for i, n in ipairs(rows.valid) do all, count = all + n, count + rows.counts[i] end
  if all == count then return nil end -- ranks have unequally many, as join_uneven_inputs takes them
  return rows, rows.counts[r], rows.valid[r], all
end

--- Names of options that hold labels of rows.
local function holds_labels(key, t)
  return type(key) == "string" and (key:find "label" or key == "is_random") and t.dtype:find "^i"
end

--- The arguments of a model with the labels of padding rows masked. nil if there are none. Counts them before and after. Only for models
--- that declare by _loss_counts that -100 counts nothing: another model may compute with its labels.
local function without_labels(args, count, valid)
  local out, before, after = nil, 0, 0
  for i = 1, args.n or #args do
    local options = args[i]
    for key, t in next, type(options) == "table" and getmetatable(options) == nil and options or {} do
      if accel.is_tensor(t) and t.ndim > 0 and t.shape[1] == count and holds_labels(key, t) then
        if not out then
          out = table.move(args, 1, args.n or #args, 1, { n = args.n })
          out[i] = {}
          for k, v in next, options do out[i][k] = v end
        end
        local kept = t:clone()
        kept:narrow(1, valid + 1, count - valid):fill_(-100)
        before, after = before + t:ne(-100):sum():item(), after + kept:ne(-100):sum():item()
        out[i][key] = kept
      end
    end
  end
  return out, before > 0 and after / before or 1
end

local leaving_out = false -- a backward of an Accelerator is under way

--- fn, during which padding is left out.
---@param fn function
---@return function
function M.leaving_out(fn)
  return function()
    local before = leaving_out
    leaving_out = true
    local _ <close> = guard(function() leaving_out = before end)
    return fn()
  end
end

--- The tensors by rows among the outputs of a model, which gradients come back to.
local function outputs_by_rows(count, ...)
  local list = {}
  local function look(x, depth)
    if accel.is_tensor(x) then
      if x.requires_grad and x.ndim > 0 and x.shape[1] == count then list[#list + 1] = x end
    elseif type(x) == "table" and getmetatable(x) == nil and depth < 3 then
      for _, y in next, x do look(y, depth + 1) end
    end
  end
  for i = 1, select("#", ...) do look((select(i, ...)), 1) end
  return list
end

--- Zeros come back to rows that are padding.
local function without_gradients(outputs, count, valid)
  for _, x in ipairs(outputs) do
    x:register_hook(function(grad)
      if not leaving_out then return nil end
      grad = grad:clone()
      grad:narrow(1, valid + 1, count - valid):zero_()
      return grad
    end)
  end
end

--- The modules that compute losses from labels: the prepared model itself, else the outermost ones inside of a script's own model.
local function takers_of(model, prepared)
  if model._loss_counts then return { prepared } end
  local list = {}
  local function look(module)
    for _, child in module:named_children() do
      if child._loss_counts then list[#list + 1] = child else look(child) end
    end
  end
  look(model)
  return list
end

--- Has a prepared model leave padding out.
---@param self accel.Accelerator
---@param model accel.nn.Module
function M.watch(self, model)
  if not rawget(model, "reducer") or self.num_processes == 1 then return end
  local weak = setmetatable({ self }, { __mode = "v" })
  local function now()
    local own = weak[1]
    if not own then return nil end
    local rows, count, valid = padded(own)
    if rows and valid < count then return own, rows, count, valid end
  end
  local takers = takers_of(self:unwrap_model(model), model)
  local function leave_out(_, args) -- in evaluation as well: its loss covers the valid rows
    local own, rows, count, valid = now()
    if not own then return nil end
    local changed, kept = without_labels(args, count, valid)
    if changed then rawset(own, "_padding", { rows = rows, kept = kept }) end
    return changed
  end
  model:register_forward_pre_hook(function()
    local own, rows = now()
    if own then rawset(own, "_padding", { rows = rows }) end
  end)
  for _, taker in ipairs(takers) do taker:register_forward_pre_hook(leave_out) end
  model:register_forward_hook(function(module, _, ...)
    if not module.training or not accel.is_grad_enabled() then return end
    local own = weak[1]
    local rows, count, valid
    if own then rows, count, valid = padded(own) end
    if not rows then return end
    local padding = rawget(own, "_padding")
    if padding and padding.rows == rows and padding.kept then return end
    local outputs = outputs_by_rows(count, ...)
    if #outputs == 0 and #takers == 0 then
      own:_warn "backward: padding rows of the last batch contribute to gradients, because the model returns no tensor by rows; \z
        return the outputs next to the loss, or set drop_last"
    elseif valid < count and padding and padding.rows == rows then
      without_gradients(outputs, count, valid)
      padding.by_rows = #outputs > 0 or padding.by_rows
    end
  end)
end

-- Weights ----------------------------------------------------------------------------------------

--- By the rows of the batch.
local function by_rows(self, size)
  local rows, count, valid, all = padded(self)
  if not rows or all == 0 then return nil end
  local padding = rawget(self, "_padding")
  local zeroed = padding and padding.rows == rows and padding.by_rows
  local n = size and #rows.valid or 1
  return n * (zeroed and count or valid) / all
end

--- The non-padding part of a loss that has its own weight.
---@param self accel.Accelerator
---@return number_of_loss the factor of the loss
---@return number of_weight and its weight
function M.of_weighted(self)
  local padding = rawget(self, "_padding")
  if not padding then return 1, 1 end
  local rows, count, valid = padded(self)
  if padding.rows ~= rows then return 1, 1 end
  if padding.kept then return padding.kept, padding.kept end
  return 1, padding.by_rows and valid / count or 1
end

--- The count of a loss inside of join_uneven_inputs, by which it is weighed as by a weight of the script's own: ranks that wait answer no sum
--- between a forward and its backward. nil: the loss is taken as it is.
---@param self accel.Accelerator
---@param loss accel.Tensor
---@return accel.Tensor? count
function M.of_joined(self, loss)
  if not self._prepared:active_join() or not (self._update.closed or self._update.weighted) then return nil end
  local terms = means.of(loss)
  return terms and #terms == 1 and not terms[1].whole and terms[1].count or nil
end

---@class accel.accelerator.LossWeight
---@field losses accel.Tensor[] whose gradients are wanted
---@field factors (number|accel.Tensor)[] by which they are multiplied
---@field count accel.Tensor? labels of all ranks, a rank-0 tensor

--- The weight of a loss without an explicit one. nil if it is taken unchanged. A collective if counts are known.
---@param self accel.Accelerator
---@param loss accel.Tensor
---@return accel.accelerator.LossWeight?
function M.of(self, loss)
  if self._prepared:active_join() then return nil end
  local size, sum = averaging(self)
  if size and stays_here(self, loss) then return nil end
  local terms = means.of(loss)
  if not size and (not terms or self.gradient_state.num_steps == 1) then return nil end
  if self._prepared:counts_micro_batches() then terms = nil end
  if not terms then
    local factor = size and by_rows(self, size)
    return factor and { losses = { loss }, factors = { factor } } or nil
  end
  local _ <close> = accel.no_grad()
  local counts, losses, factors = {}, {}, {}
  for t, term in ipairs(terms) do counts[t] = term.count:detach():to "f64":reshape {} end
  local own = accel.stack(counts, 1)
  local all = own
  if size then
    all = own:clone()
    sum(all)
    own = own * size / all:clamp(1)
  end
  if not size then return { losses = { loss }, factors = { 1 }, count = all:select(1, 1) } end
  for t, term in ipairs(terms) do
    losses[t], factors[t] = #terms == 1 and loss or term.loss, term.whole and 1 or own:select(1, t)
  end
  return { losses = losses, factors = factors, count = all:select(1, 1) }
end

return M
