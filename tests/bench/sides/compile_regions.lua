-- A training step of a deep GPT of plain modules - norms and activations of primitives - compiled by regions, as a whole and not at all, by
-- turns: milliseconds of forward and backward, the least of a few. Losses are equal.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { layers = 24, width = 256, heads = 4, batch = 4, seq = 256, steps = 6 }
local nn = accel.nn

local Norm = nn.Module:extend "Norm"
function Norm:init(n) self.weight, self.bias = nn.Parameter(accel.ones(n)), nn.Parameter(accel.zeros(n)) end
function Norm:forward(x)
  local d = x - x:mean(-1, true)
  return d * ((d * d):mean(-1, true) + 1e-5):rsqrt() * self.weight + self.bias
end

local Block = nn.Module:extend "Block"
function Block:init(n)
  self.norm1, self.norm2 = Norm(n), Norm(n)
  self.qkv, self.out, self.up, self.down = nn.Linear(n, 3 * n), nn.Linear(n, n), nn.Linear(n, 4 * n), nn.Linear(4 * n, n)
end
function Block:forward(x)
  local b, t, n = table.unpack(x.shape)
  local q, k, v = table.unpack(self.qkv(self.norm1(x)):view(b, t, 3, o.heads, n // o.heads):unbind(3))
  local a = accel.scaled_dot_product_attention(q:transpose(2, 3), k:transpose(2, 3), v:transpose(2, 3), { is_causal = true })
  x = x + self.out(a:transpose(2, 3):reshape(b, t, n))
  local h = self.up(self.norm2(x))
  return x + self.down(h * 0.5 * ((h + h * h * h * 0.044715) * 0.7978845608):tanh() + h * 0.5)
end

local GPT = nn.Module:extend "GPT"
function GPT:init()
  self.embed, self.norm, self.head = nn.Embedding(256, o.width), Norm(o.width), nn.Linear(o.width, 256)
  self.h = nn.ModuleList()
  for _ = 1, o.layers do self.h:append(Block(o.width)) end
end
function GPT:forward(ids)
  local x = self.embed(ids)
  for _, block in ipairs(self.h) do x = block(x) end
  return self.head(self.norm(x))
end

local ids = accel.randint(0, 256, { o.batch, o.seq })
local labels = ids:reshape(-1)
local ways = { { "plain", function(m) return m end }, { "whole", accel.compile }, { "regions", accel.accelerator.compile_regions } }
for _, way in ipairs(ways) do
  accel.manual_seed(1)
  way.model, way.best, way.losses = way[2](GPT()), math.huge, {}
end
for step = 1, o.quick and 3 or o.steps do
  for _, way in ipairs(ways) do
    local t = accel.clock()
    local loss = accel.cross_entropy(way.model(ids):view(-1, 256), labels)
    loss:backward()
    local ms = (accel.clock() - t) * 1e3
    for _, p in ipairs(way.model:parameters()) do p.grad = nil end
    way.losses[step] = loss:item()
    way.best = math.min(way.best, ms)
  end
end
local figures = {}
for _, way in ipairs(ways) do
  figures[way[1]] = way.best
  for i, loss in ipairs(way.losses) do assert(loss == ways[1].losses[i], way[1] .. ": another loss") end
end
side.finish(figures)
