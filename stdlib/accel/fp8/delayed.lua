--- Delayed scaling, TransformerEngine's recipe: a tensor is cast with the scale that follows from the largest magnitudes (amax) of steps
--- before, while its own is taken down for the next. The states of all layers lie together: of layer i, input and weight are columns
--- 2i - 1 and 2i of the forward's, the output's gradient is column i of the backward's.
---
--- When scales change. TransformerEngine moves the forward's history at the end of a forward with gradients, the backward's at the end of
--- the backward. Here both wait until something reads them: the next forward of the model, a second backward before that, or a checkpoint.
--- The result is the same, and a recomputation by accel.checkpoint in between uses the original scales. If a forward in fp8 without
--- gradients needs new ones first, as an evaluation may, the old ones are kept until the next forward with gradients. All micro-batches of
--- a pipeline are one forward: their scales are the same, and amax is the largest of all of them. With several ranks amax is the maximum
--- over all of them. One reduction serves both histories.
local accel = require "accel"
local class = require "accel.util.class"
local dist = require "accel.dist"
local absent = require "accel.parallel.absent"
local guard = require "accel.util.guard"
local product = require "accel.fp8.product"
local raise = require "accel.util.raise"
local recompute = require "accel.autograd.recompute"

local cast, update = product.cast, accel.fp8_update_scale_

local MOST <const> = { e4m3 = 448.0, e5m2 = 57344.0 }
local FORMATS <const> = { HYBRID = { "e4m3", "e5m2" }, E4M3 = { "e4m3", "e4m3" } }

--- example: local s = accel.fp8.convert_model(accel.nn.Sequential(accel.nn.Linear(16, 32)), accel.TERecipeKwargs { amax_history_len = 4 })
---   return s:state_dict().history_fwd.shape, s:state_dict().layers --> { 4, 2 }, { "0" }
---@class accel.fp8.DelayedScaling : accel.fp8.Scaling
---@field scale_fwd accel.Tensor (2 layers), f32, ones at first
---@field history_fwd accel.Tensor (amax_history_len, 2 layers), f32, zeros at first. Row 1 belongs to the current step
---@field scale_bwd accel.Tensor (layers)
---@field history_bwd accel.Tensor (amax_history_len, layers)
---@field updates integer forwards whose amax went into scale_fwd
---@field apart? fun(): boolean whether ranks are temporarily out of step, as when one has no more data. Each then uses its own amax
local DelayedScaling = class "accel.fp8.DelayedScaling"

---@param opts table
---  fp8_format string: "HYBRID": e4m3 forward, e5m2 for gradients. "E4M3"
---  margin integer: scales are divided by 2^margin
---  interval integer: forwards between two new scales. The history moves with each
---  amax_history_len integer
---  amax_compute_algo string: "most_recent" or "max" of the history
---  override_linear_precision boolean[]: leave fp8 out of forward, input gradient, weight gradient
---  use_autocast_during_eval boolean: use fp8 in evaluation as well
---  reduce boolean: whether amax is reduced over all ranks
function DelayedScaling:init(opts)
  self.o = opts
  self.formats = FORMATS[opts.fp8_format]
  if not self.formats then
    raise("fp8: fp8_format = '%s' has no number for the forward that trains: use HYBRID or E4M3", tostring(opts.fp8_format))
  end
  self.layers, self.names = {}, {}
  self.depth, self.updates, self.backward_updates = 0, 0, 0
end

--- The views of layer i into the states, which lie on one device.
local function bind(self, layer, i)
  local function column(t, k) return t:narrow(1, k, 1) end
  layer.scales = { column(self.scale_fwd, 2 * i - 1), column(self.scale_fwd, 2 * i), column(self.scale_bwd, i) }
  local fwd, bwd = self.history_fwd[1], self.history_bwd[1]
  layer.amax = { column(fwd, 2 * i - 1), column(fwd, 2 * i), column(bwd, i) }
end

--- States on a device: new ones, or those there are.
local function place(self, device)
  if self.scale_fwd and self.scale_fwd.device == device then return end
  local _ <close> = accel.no_grad()
  local n, rows = #self.layers, self.o.amax_history_len
  local function put(name, make, shape)
    self[name] = accel.unscoped(function()
      return self[name] and self[name]:to(device) or make(shape, { device = device })
    end)
  end
  put("scale_fwd", accel.ones, { 2 * n })
  put("scale_bwd", accel.ones, { n })
  put("history_fwd", accel.zeros, { rows, 2 * n })
  put("history_bwd", accel.zeros, { rows, n })
  accel.unscoped(function() for i, layer in ipairs(self.layers) do bind(self, layer, i) end end)
end

--- A layer that takes part: called once for each, in the order of the model, before the first forward.
---@param name string
---@param transposed boolean
---@return accel.fp8.Layer
function DelayedScaling:layer(name, transposed)
  local scaling, forward, backward = self, self.formats[1], self.formats[2]
  local override = self.o.override_linear_precision
  local layer = { fprop = not override[1], dgrad = not override[2], wgrad = not override[3], transposed = transposed }
  local function casts(own, x, k)
    local kept = recompute.depth > 0 and scaling.kept
    if not kept then return cast(x, own.scales[k], own.amax[k], forward) end
    local column = 2 * own.index - 2 + k
    return cast(x, kept:narrow(1, column, 1), accel.zeros({ 1 }, { device = kept.device }), forward) -- amax was taken down
  end
  layer.index = #self.layers + 1
  layer.input = function(own, x) return casts(own, x, 1) end
  layer.weight = function(own, w) return casts(own, w, 2) end
  layer.gradient = function(own, dy)
    if scaling.backward_done and scaling.depth == 0 then scaling:flush() end
    if scaling.first == own then scaling.backward_done = true end
    scaling.backward_recorded = true
    return cast(dy, own.scales[3], own.amax[3], backward)
  end
  self.layers[#self.layers + 1], self.names[#self.names + 1] = layer, name
  return layer
end

--- Whether a layer called now with x multiplies in fp8. The first one of a forward ends its backward. Those of other stages of a
--- pipeline are shapes here.
---@param layer accel.nn.Module
---@param x accel.Tensor the input
function DelayedScaling:active(layer, x)
  if absent.is(x) and not (self.scale_fwd and absent.is(self.scale_fwd)) then return false end
  if recompute.depth > 0 then return self.trained end -- as in the forward that is computed again, whatever came since
  if self.depth == 0 then return false end
  if not self.on then return false end
  if not self.first and accel.is_grad_enabled() then self.first = layer end
  return true
end

--- Before a forward of the model.
---@param training boolean
---@param device string
function DelayedScaling:enter(training, device)
  if self.depth == 0 and recompute.depth == 0 then -- else computed again: with the scales of the first time
    self.on = training or self.o.use_autocast_during_eval
    local learns = accel.is_grad_enabled()
    if self.on then
      place(self, device)
      if learns then self.kept = nil
      elseif self.forward_recorded and not self.backward_recorded then
        self.kept = accel.unscoped(self.scale_fwd.clone, self.scale_fwd)
      end
      self:flush()
      if learns then self.first, self.backward_done = nil, false end
    end
    if learns then self.trained = self.on end
  end
  self.depth = self.depth + 1 -- the last, since a reduction may fail
end

--- Behind it.
function DelayedScaling:leave()
  self.depth = self.depth - 1
  if self.depth == 0 and self.on and recompute.depth == 0 and accel.is_grad_enabled() then self.forward_recorded = true end
end

--- Around all micro-batches of a pipeline, on all its ranks: new scales before them, none while they are under way.
---@param training boolean
---@param device string
---@return any value to close after them
function DelayedScaling:batch(training, device)
  self:enter(training, device)
  return guard(function()
    self:leave()
    -- a stage whose layers had no gradients moves its history as the others do: all ranks reduce the same
    if self.forward_recorded then self.backward_recorded = true end
  end)
end

local function reduce(self, forward, backward)
  if not self.o.reduce or not dist.is_initialized() or dist.get_world_size() == 1 or self.apart and self.apart() then return end
  local rows = {}
  if forward then rows[1] = self.history_fwd[1] end
  if backward then rows[#rows + 1] = self.history_bwd[1] end
  local all = #rows == 1 and rows[1] or accel.cat(rows)
  dist.all_reduce(all, "max")
  if #rows == 2 then
    rows[1]:copy_(all:narrow(1, 1, rows[1].shape[1]))
    rows[2]:copy_(all:narrow(1, rows[1].shape[1] + 1, rows[2].shape[1]))
  end
end

--- New scales from the values recorded since the last call, on all ranks.
function DelayedScaling:flush()
  local forward, backward, o = self.forward_recorded, self.backward_recorded, self.o
  if not forward and not backward then return end
  local _ <close> = accel.no_grad()
  self.forward_recorded, self.backward_recorded, self.backward_done = false, false, false
  reduce(self, forward, backward)
  local function step(name, most, count)
    update(self["scale_" .. name], self["history_" .. name], most, o.margin, o.amax_compute_algo == "most_recent", count % o.interval == 0)
  end
  if forward then
    step("fwd", MOST[self.formats[1]], self.updates)
    self.updates = self.updates + 1
  end
  if backward then
    step("bwd", MOST[self.formats[2]], self.backward_updates)
    self.backward_updates = self.backward_updates + 1
  end
end

--- The state for a checkpoint, on all ranks.
---@return table
function DelayedScaling:state_dict()
  place(self, self.scale_fwd and self.scale_fwd.device or "cpu")
  self:flush()
  local out = { layers = self.names, updates = self.updates, backward_updates = self.backward_updates }
  for _, name in ipairs { "scale_fwd", "history_fwd", "scale_bwd", "history_bwd" } do out[name] = self[name]:clone() end
  return out
end

--- Goes on from there. Continues from it. Layers must be the same. A history of another length is cut, or padded with
--- zeros.
---@param dict table
function DelayedScaling:load_state_dict(dict)
  if #dict.layers ~= #self.names then
    raise("fp8: the states of %d layers are stored, %d layers compute in fp8 here", #dict.layers, #self.names)
  end
  for i, name in ipairs(self.names) do
    if dict.layers[i] ~= name then raise("fp8: layer %d is stored as '%s', here it is '%s'", i, dict.layers[i], name) end
  end
  place(self, self.scale_fwd and self.scale_fwd.device or "cpu")
  local _ <close> = accel.no_grad()
  for _, name in ipairs { "scale_fwd", "scale_bwd" } do self[name]:copy_(dict[name]) end
  for _, name in ipairs { "history_fwd", "history_bwd" } do
    local rows = math.min(dict[name].shape[1], self[name].shape[1])
    self[name]:zero_()
    self[name]:narrow(1, 1, rows):copy_(dict[name]:narrow(1, 1, rows))
  end
  self.updates, self.backward_updates = dict.updates, dict.backward_updates
  self.forward_recorded, self.backward_recorded, self.backward_done = false, false, false
end

return DelayedScaling
