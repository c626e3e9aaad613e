-- accel.onnx.export: the bytes of a small file field by field, what it refuses, names, and that the model is as it was. runtime_test.lua compares
-- numbers with ONNX Runtime.
--   accel-run tests/stdlib/onnx/export_test.lua
local accel = require "accel"
local says = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua").fails
local nn, export = accel.nn, accel.onnx.export
local path = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/small.onnx"

--- A message of protocol buffers: lists of values by field, integers or texts.
local function fields(s)
  local out, at = {}, 1
  local function varint()
    local n, shift = 0, 0
    while true do
      local byte = s:byte(at)
      n, shift, at = n | (byte & 127) << shift, shift + 7, at + 1
      if byte < 128 then return n end
    end
  end
  while at <= #s do
    local key, value = varint(), nil
    if key & 7 == 0 then value = varint()
    elseif key & 7 == 2 then
      local n = varint()
      value, at = s:sub(at, at + n - 1), at + n
    else
      assert(key & 7 == 5, key & 7)
      value, at = ("<f"):unpack(s:sub(at, at + 3)), at + 4
    end
    out[key >> 3] = out[key >> 3] or {}
    table.insert(out[key >> 3], value)
  end
  return out
end

local function read()
  local file <close> = assert(io.open(path, "rb"))
  return fields(file:read "a")
end

do -- onnx.proto: ModelProto, GraphProto, NodeProto, TensorProto, ValueInfoProto
  local model, x = nn.Sequential(nn.Linear(3, 2), nn.LeakyReLU(0.25)):eval(), accel.ones(4, 3)
  local before = model(x)
  assert(export(model, x, path, { input_names = { "x" }, output_names = { "y" }, dynamic_batch = true }))
  assert(accel.equal(model(x), before) and model[1].weight.requires_grad)
  local file = read()
  assert(file[1][1] == 10 and file[2][1] == "accel" and fields(file[8][1])[2][1] == 20)
  local graph, kinds, made = fields(file[7][1]), {}, { x = true }
  local constants = {}
  for _, text in ipairs(graph[5]) do
    local t = fields(text)
    constants[t[8][1]], made[t[8][1]] = t, true
  end
  for i, text in ipairs(graph[1]) do
    local node = fields(text)
    kinds[i] = node[4][1]
    for _, name in ipairs(node[1]) do assert(made[name], name) end
    for _, name in ipairs(node[2]) do made[name] = true end
    if kinds[i] == "LeakyRelu" then assert(fields(node[5][1])[1][1] == "alpha" and fields(node[5][1])[2][1] == 0.25) end
  end
  assert(table.concat(kinds, " ") == "Transpose MatMul Add LeakyRelu Identity" and made.y, table.concat(kinds, " "))
  local weight = constants["0.weight"]
  assert(weight[1][1] == 2 and weight[1][2] == 3 and weight[2][1] == 1 and weight[9][1] == model[1].weight:detach():to_bytes())
  for field, want in pairs { [11] = { "x", 3 }, [12] = { "y", 2 } } do
    local value = fields(graph[field][1])
    local kind = fields(fields(value[2][1])[1][1])
    local dims = fields(kind[2][1])[1]
    assert(value[1][1] == want[1] and kind[1][1] == 1 and fields(dims[1])[2][1] == "batch" and fields(dims[2])[1][1] == want[2])
  end
end

do -- a weight that two layers share is in the file once, and operations on constants are not
  local Net = nn.Module:extend "Net"
  function Net:init()
    self.a = nn.Linear(3, 3, { bias = false })
    self.b = nn.Linear(3, 3, { bias = false })
    self.b.weight = self.a.weight
  end
  function Net:forward(o) return { second = self.b(self.a(o.words)) + accel.arange(3):exp(), first = o.words } end
  assert(export(Net():eval(), { { words = accel.ones(2, 3) } }, path))
  local graph = fields(read()[7][1])
  assert(#graph[5] == 2) -- the weight, and exp of 0 .. 2
  assert(fields(graph[11][1])[1][1] == "words" and fields(graph[12][1])[1][1] == "first" and fields(graph[12][2])[1][1] == "second")
end

local Net = nn.Module:extend "Net"
function Net:init(fn) self.l, self.fn = nn.Linear(3, 3), fn end
function Net:forward(x) return self.fn(self, x) end
local x = accel.randn(2, 3)
local function refused(text, fn, opts) says(text, export, Net(fn):eval(), x, path, opts) end
refused("the model reads values that depend on its inputs", function(_, v)
  if v:sum():item() > 0 then return v + 1 end
  return v
end)
refused("the model reads values that depend on its inputs", function(self, v) return self.l(v):detach():tolist() and v end)
refused("'add_' changes a tensor in place", function(_, v) return (v * 1):add_(1) end)
refused("the op 'sort' has no mapping to ONNX's opset 20", function(_, v) return (v:sort()) end)
refused("the model draws random numbers by 'normal_'", function(_, v) return v + accel.randn(2, 3) end)
refused("the model draws random numbers by 'dropout'", function(_, v) return accel.dropout(v, 0.5) end)
refused("the model draws random numbers by 'scaled_dot_product_attention'", function(_, v)
  local q = v:reshape(1, 1, 2, 3)
  return accel.scaled_dot_product_attention(q, q, q, { dropout_p = 0.1 })
end)
assert(export(Net(function(_, v) -- at a probability of 0 nothing is drawn
  local q = v:reshape(1, 1, 2, 3)
  return accel.scaled_dot_product_attention(q, q, q)
end):eval(), x, path))
refused("the model returns no tensor", function() return 3 end)
refused("another batch makes other calls", function(_, v) return #v > 2 and v * 2 or v + 1 + 1 end, { dynamic_batch = true })
refused("reads constants that differ by row of the batch", function(_, v) return v + accel.arange(#v):unsqueeze(2) end, { dynamic_batch = true })
refused("'div' takes 2 of this batch and 3 of another", function(_, v) return v:sum() / #v end, { dynamic_batch = true })
refused("two inputs or outputs have the name 'a'", function(_, v) return v * 2 end, { input_names = { "a" }, output_names = { "a" } })
refused("input_names has 2 names for 1 tensors", function(_, v) return v end, { input_names = { "a", "b" } })
says("call model:eval() first", export, nn.Linear(2, 2):train(), x, path)
says("inputs has no tensor", export, nn.Linear(2, 2):eval(), {}, path)
says("path must be a string", export, nn.Linear(2, 2):eval(), x, 3)
local made, message = export(nn.Linear(3, 2):eval(), x, "/nowhere/at/all.onnx")
assert(made == nil and message:find "nowhere", message)
says("the model reads values", export, accel.models.MixtralForCausalLM { vocab_size = 9, hidden_size = 8, intermediate_size = 8,
  num_hidden_layers = 1, num_attention_heads = 2, num_key_value_heads = 2, num_local_experts = 2 }:eval(), accel.tensor { { 1, 2 } }, path)
-- after an error the next one runs
assert(export(nn.Linear(3, 2):eval(), x, path))
