-- prepare_pippy: outputs on several ranks are those of the whole model, for shipped models and for one that has no plan; split points by
-- name and by class, batches that do not divide, outputs on the last rank or on all, several inputs and outputs; what is wrong.
--   accel-run tests/stdlib/parallel/inference_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local cases = dofile(here .. "cases.lua")
local nn, prepare_pippy = accel.nn, accel.accelerator.prepare_pippy

if ranks.start { 1, 2, 3, 4 } then return end
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
local at = table.move({ P == 2 and "blocks.4" or "blocks.1", "blocks.2", "blocks.4" }, 1, P - 1, 1, {})
local made = prepare_pippy(net(), { split_points = at, gather_output = true })
check(made, "split points", true)
assert(#made.blocks == 5 and made.axis == nil) -- fields are the model's
if P > 1 then -- a rank has what is its own
  assert(made.module.blocks[1].fc.weight.device == (R == 0 and "cpu" or "meta") and made.module.head.weight.device == "cpu")
  assert(made.module.blocks[5].fc.weight.device == (R == P - 1 and "cpu" or "meta"))
end

-- any number of rows in any number of parts; example inputs are taken, nothing is traced
local plain = cases.model("gpt2", 4, 0):eval()
for _, rows in ipairs { 1, 3, 8 } do
  local text = accel.randint(0, 33, { rows, 8 }, { generator = accel.Generator(rows) })
  for _, chunks in ipairs { 1, 2, 5 } do
    local model = prepare_pippy(cases.model("gpt2", 4, 0), { num_chunks = chunks, gather_output = chunks > 1, example_args = { text },
      example_kwargs = {}, no_split_module_classes = "GPT2Block" })
    local out = model(text)
    if chunks > 1 or R == P - 1 then
      ranks.close(out, plain(text):detach(), ("%d rows in %d parts"):format(rows, chunks), 1e-5)
    else
      ranks.same(out, nil, "output of another stage")
    end
  end
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
  ranks.fails("split_points: 'blocks.7' is not a block of the model", prepare_pippy, net(),
    { split_points = P == 2 and { "blocks.7" } or P == 3 and { "blocks.1", "blocks.7" } or { "blocks.1", "blocks.2", "blocks.7" } })
  ranks.fails(("split_points make %d stages, but there are %d"):format(P + 1, P), prepare_pippy, net(),
    { split_points = table.move({ "blocks.1", "blocks.2", "blocks.3", "blocks.4" }, 1, P, 1, {}) })
  ranks.fails("has no module of the classes Blok", prepare_pippy, net(), { no_split_module_classes = { "Blok" } })
end
for _, case in ipairs {
  { 'split_points must be "auto", "even" or a list of names, got', split_points = "blocks.1" },
  { "split_points[1] must be a name, got 3", split_points = { 3 } }, { "split_points names 'a' twice", split_points = { "a", "a" } },
  { "no_split_module_classes must be a name or a list of names, got 3", no_split_module_classes = 3 },
  { "example_args must be a table, got 3", example_args = 3 }, { "example_kwargs must be a table", example_kwargs = "x" },
  { "num_chunks must be a positive integer, got 0", num_chunks = 0 }, { "'gather_output' must be a boolean", gather_output = 1 },
} do
  local options = {}
  for key, value in next, case do options[key] = key ~= 1 and value or nil end
  ranks.fails(case[1], prepare_pippy, net(), options)
end
ranks.fails("expected a module", prepare_pippy, 3)
ranks.fails("unknown option 'num_chunk'; did you mean 'num_chunks'?", prepare_pippy, net(), { num_chunk = 2 })
