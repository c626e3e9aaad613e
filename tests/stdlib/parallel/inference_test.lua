-- prepare_pippy: outputs on several ranks are those of the whole model, for shipped models and for one that has no plan; split points by
-- name and by class, batches that do not divide, outputs on the last rank or on all, several inputs and outputs; what is wrong.
--   accel-run tests/stdlib/parallel/inference_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local cases = dofile(here .. "cases.lua")
local nn, prepare_pippy = accel.nn, accel.accelerator.prepare_pippy

if ranks.start { 1, 2, 3 } then return end
local R, P = ranks.rank, ranks.size

--- Two inputs, two outputs, of which the second comes from the middle of the model; a skip that every block gets.
local Block = nn.Module:extend "TestBlock"
function Block:init() self.fc = nn.Linear(6, 6) end
function Block:forward(x, skip, notes)
  notes.seen[#notes.seen + 1] = x
  return self.fc(x):tanh() + skip
end
local Net = nn.Module:extend "TestNet"
function Net:init()
  self.embed, self.side, self.blocks = nn.Embedding(9, 6), nn.Linear(2, 6), nn.ModuleList()
  for _ = 1, 5 do self.blocks:append(Block()) end
  self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 3)
end
function Net:forward(ids, o)
  local x, skip, notes = self.embed(ids), self.side(o.extra):unsqueeze(2), { seen = {} }
  for _, block in ipairs(self.blocks) do x = block(x, skip, notes) end
  return self.head(self.norm(x)), { middle = notes.seen[2], n = #notes.seen, last = x:sum(-1) }
end

local function net()
  accel.manual_seed(3)
  return Net()
end
local ids, extra = accel.randint(0, 9, { 5, 4 }, { generator = accel.Generator(1) }), accel.randn(5, 2, { generator = accel.Generator(2) })

local function check(made, label, gathered)
  local want, more = net():eval()(ids, { extra = extra })
  for _ = 1, 2 do
    local got, other = made(ids, { extra = extra })
    if gathered or R == P - 1 then
      ranks.close(got, want:detach(), label, 1e-6)
      ranks.close(other.middle, more.middle:detach(), label .. ", middle", 1e-6)
      ranks.close(other.last, more.last:detach(), label .. ", last", 1e-6)
      assert(other.n == 5 and got.shape[1] == 5 and not got.requires_grad)
    else
      assert(got == nil and other == nil)
    end
  end
end
check(prepare_pippy(net()), "no plan")
check(prepare_pippy(net(), { gather_output = true, num_chunks = 4 }), "chunks", true)
check(prepare_pippy(net(), { no_split_module_classes = { "TestBlock" }, gather_output = true }), "classes", true)
local at = P == 1 and {} or P == 2 and { "blocks.4" } or { "blocks.1", "blocks.2" }
local made = prepare_pippy(net(), { split_points = at, gather_output = true })
check(made, "split points", true)
assert(#made.blocks == 5 and made.axis == nil) -- fields are the model's
if P > 1 then -- a rank has what is its own
  assert(made.module.blocks[1].fc.weight.device == (R == 0 and "cpu" or "meta") and made.module.head.weight.device == "cpu")
  assert(made.module.blocks[5].fc.weight.device == (R == P - 1 and "cpu" or "meta"))
end

for _, name in ipairs(cases.names) do
  local args = cases.batch(name, 1, cases.model(name, 4, 0))
  local last = name == "vit" and 2 or args.n
  if type(args[2]) == "table" then args[2].labels = nil end
  local want = cases.model(name, 4, 0):eval()(table.unpack(args, 1, last))
  local model = prepare_pippy(cases.model(name, 4, 0), { gather_output = true, num_chunks = 2 })
  ranks.close((model(table.unpack(args, 1, last))), want:detach(), name, 1e-5)
end

if P > 1 then
  ranks.fails("split_points: 'blocks.7' is no block of the model", prepare_pippy, net(),
    { split_points = P == 2 and { "blocks.7" } or { "blocks.1", "blocks.7" } })
  ranks.fails("has no module of the classes Blok", prepare_pippy, net(), { no_split_module_classes = { "Blok" } })
end
ranks.fails("expected a module", prepare_pippy, 3)
ranks.fails("unknown option 'num_chunk'; did you mean 'num_chunks'?", prepare_pippy, net(), { num_chunk = 2 })
