--- Perplexity of a language model.
local Mean = require("accel.metrics.mean").Mean
local accel = require "accel"
local check = require "accel.util.check"
local inputs = require "accel.metrics.inputs"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local ratio = require "accel.metrics.ratio"
local tensors = require "accel.util.tensors"

local half = { f16 = true, bf16 = true }

--- exp of the mean negative log likelihood per token: {perplexity = }. update(logits, labels) with logits (rows, time,
--- classes). Labels equal to ignore_index (-100) are not counted. shift = true compares each label with the logits of
--- the position before it. Or update(nll) with each token's negative log likelihood. A mask or weights have one entry
--- per row or per token. NaN without tokens.
--- example: local m = accel.metrics.Perplexity() m:update(accel.zeros(2, 3, 8), accel.tensor { { 1, 2, -100 }, { 7, 0,
---   1 } }) return math.floor(m:value() + 0.5) --> 8
---@class accel.metrics.Perplexity: accel.metrics.Mean
local Perplexity = Mean:extend("accel.metrics.Perplexity")

Perplexity.names = { "perplexity" }

---@param opts? {ignore_index: integer?, shift: boolean?}
function Perplexity:init(opts)
  local o = options("metrics.Perplexity", opts, { ignore_index = -100, shift = false })
  self.ignore_index = check.integer("metrics.Perplexity", "ignore_index", o.ignore_index)
  self.shift = o.shift
  self:reset()
end

local function nll_of(logits, labels, ignore_index)
  local n = labels:numel()
  if n == 0 then return accel.empty(labels.shape, { dtype = "f64" }) end
  if half[logits.dtype] then logits = logits:to "f32" end
  local nll = accel.cross_entropy(logits:reshape(n, logits.shape[logits:dim()]), labels:reshape(n),
    { reduction = "none", ignore_index = ignore_index })
  return nll:reshape(labels.shape)
end

function Perplexity:elements(p, r)
  local who = self:who()
  if not r then
    if self.shift then raise("%s: shift = true needs logits and labels", who) end
    return p
  end
  if not inputs.one_longer(p, r) then
    raise("%s: logits %s do not fit labels %s", who, tensors.shape_string(p), tensors.shape_string(r))
  end
  local labels = inputs.labels(who, r)
  local keep = labels:ne(self.ignore_index)
  if not self.shift then return nll_of(p, labels, self.ignore_index), nil, keep end
  local dim = labels:dim()
  local time = labels.shape[dim]
  if dim < 2 then raise("%s: shift = true needs labels of rows and time, got %s", who, tensors.shape_string(r)) end
  if time == 0 then return nll_of(p, labels, self.ignore_index), nil, keep end
  local later = nll_of(p:narrow(dim, 1, time - 1), labels:narrow(dim, 2, time - 1), self.ignore_index)
  local first = labels:narrow(dim, 1, 1)
  return accel.cat({ first:to(later.dtype), later }, dim), nil,
    accel.cat({ first:ne(first), keep:narrow(dim, 2, time - 1) }, dim)
end

function Perplexity:result() return { perplexity = math.exp(ratio(self.total:value(), self.weight:value())) } end

return Perplexity
