--- text.Trigram(ids): a trigram model with interpolated Kneser-Ney smoothing, the bar that a trained
--- language model should clear. ids are lists of integers from 0 to vocab_size - 1.
---
---   local bar = Trigram(train_ids, #vocab):loss(validation_ids)    -- nats per token
---
---   p(c|ab) = (max(n(abc) - D, 0) + D n1(ab.) p(c|b)) / n(ab)
---   p(c|b)  = (max(n1(.bc) - D, 0) + D n1(b.) p(c)) / n1(.b.)    n1 counts different neighbours, not tokens
---   p(c)    = (max(n1(.c) - D, 0) + D V1 / V) / n1(..)
local class = require "accel.util.class"
local raise = require "accel.util.raise"

--- example: local t = accel.text.Trigram({ 0, 1, 0, 1 }, 2) return t:probability(0, 1, 0) + t:probability(0, 1, 1) --> 1
---@class accel.text.Trigram
local Trigram = class("accel.text.Trigram")

local function count(t, key) t[key] = (t[key] or 0) + 1 end

---@param ids integer[]
---@param vocab_size integer
---@param discount? number default 0.75
function Trigram:init(ids, vocab_size, discount)
  if #ids < 3 then raise("Trigram: needs at least 3 tokens, got %d", #ids) end
  local V = vocab_size
  self.V, self.D = V, discount or 0.75
  local abc, ab, ab_next = {}, {}, {}
  local bc_before, b_before, b_next, c_before, n_pairs, V1 = {}, {}, {}, {}, 0, 0
  local pair_seen = {}
  local a, b = ids[1], ids[2]
  pair_seen[a * V + b] = true
  for i = 3, #ids do
    local c = ids[i]
    local context, pair = a * V + b, b * V + c
    local triple = context * V + c
    local n = abc[triple]
    if not n then
      n = 0
      count(ab_next, context)
      if not bc_before[pair] then count(b_next, b) end
      count(bc_before, pair)
      count(b_before, b)
    end
    abc[triple] = n + 1
    count(ab, context)
    pair_seen[pair] = true
    a, b = b, c
  end
  for pair in next, pair_seen do
    local c = pair % V
    if not c_before[c] then V1 = V1 + 1 end
    count(c_before, c)
    n_pairs = n_pairs + 1
  end
  self.abc, self.ab, self.ab_next = abc, ab, ab_next
  self.bc_before, self.b_before, self.b_next = bc_before, b_before, b_next
  self.c_before, self.n_pairs, self.V1 = c_before, n_pairs, V1
end

--- Probability of c after a, b.
---@param a integer id
---@param b integer id
---@param c integer id
function Trigram:probability(a, b, c)
  local V, D = self.V, self.D
  local p = (math.max((self.c_before[c] or 0) - D, 0) + D * self.V1 / V) / self.n_pairs
  local n = self.b_before[b]
  if n then p = (math.max((self.bc_before[b * V + c] or 0) - D, 0) + D * self.b_next[b] * p) / n end
  local context = a * V + b
  n = self.ab[context]
  if n then p = (math.max((self.abc[context * V + c] or 0) - D, 0) + D * self.ab_next[context] * p) / n end
  return p
end

--- Mean negative log probability, in nats, of ids from the third on.
---@param ids integer[]
---@return number
function Trigram:loss(ids)
  if #ids < 3 then raise("Trigram: needs at least 3 tokens, got %d", #ids) end
  local sum = 0.0
  for i = 3, #ids do sum = sum - math.log(self:probability(ids[i - 2], ids[i - 1], ids[i])) end
  return sum / (#ids - 2)
end

return Trigram
