--- A graph of ONNX while export.lua makes it: nodes, constants and names, and the bytes of the file (onnx.proto of ONNX 1.16, IR version 10).
local accel = require "accel"
local class = require "accel.util.class"
local proto = require "accel.util.proto"
local raise = require "accel.util.raise"

local int, bytes, float = proto.int, proto.bytes, proto.float
local TYPES <const> = { f32 = 1, u8 = 2, i8 = 3, i16 = 5, i32 = 6, i64 = 7, bool = 9, f16 = 10, f64 = 11, bf16 = 16 }
local MOST_BYTES <const> = (1 << 31) - 1 -- of a message

---@class accel.onnx.Graph
---@field opset integer
local Graph = class("accel.onnx.Graph")
Graph.opset = 20

---@param input string the one whose first dim is the batch
function Graph:init(input)
  self.input = input
  self.nodes, self.constants, self.count, self.bytes, self.known, self.used = {}, {}, 0, 0, {}, {}
end

--- The number of a dtype in files.
function Graph.type_of(dtype) return TYPES[dtype] or raise("onnx.export: ONNX has no type for %s", dtype) end

function Graph:name(word)
  self.count = self.count + 1
  return ("%s_%d"):format(word, self.count)
end

local function attribute(key, value)
  local kind = math.type(value)
  local head = bytes(1, key)
  if kind == "integer" then return head .. int(3, value) .. int(20, 2) end
  if kind == "float" then return head .. float(2, value) .. int(20, 1) end
  if type(value) == "string" then return head .. bytes(4, value) .. int(20, 3) end
  local list = {}
  for i, n in ipairs(value) do list[i] = int(8, n) end
  return head .. table.concat(list) .. int(20, 7)
end

--- A node. Attributes: integers, floats, strings, lists of integers. Returns the names of its results.
---@param op string
---@param inputs string[] "" for one that is left out
---@param attributes? table
---@param n? integer results [1]
---@return string ...
function Graph:node(op, inputs, attributes, n)
  local out, parts = {}, {}
  for i = 1, n or 1 do out[i] = self:name(op) end
  for _, name in ipairs(inputs) do
    parts[#parts + 1], self.used[name] = bytes(1, name), true
  end
  for _, name in ipairs(out) do parts[#parts + 1] = bytes(2, name) end
  parts[#parts + 1] = bytes(3, out[1]) .. bytes(4, op)
  for key, value in accel.pairs(attributes or {}) do parts[#parts + 1] = bytes(5, attribute(key, value)) end
  self.nodes[#self.nodes + 1] = table.concat(parts)
  return table.unpack(out)
end

--- Gives a value a further name, of an output.
---@param name string
---@param output string
function Graph:output(name, output)
  self.nodes[#self.nodes + 1], self.used[name] = bytes(1, name) .. bytes(2, output) .. bytes(4, "Identity"), true
end

--- A constant with the values of a tensor. Returns its name.
---@param t accel.Tensor
---@param name? string
---@return string
function Graph:constant(t, name)
  name = name or self:name "constant"
  local parts = {}
  for i, d in ipairs(t.shape) do parts[i] = int(1, d) end
  local data = t:detach():to("cpu"):contiguous():to_bytes()
  self.bytes = self.bytes + #data
  if self.bytes > MOST_BYTES then
    raise "onnx.export: the weights exceed 2 GiB, the limit of one ONNX file; export a smaller or 16-bit model"
  end
  self.constants[#self.constants + 1] = name
  self.constants[name] = table.concat(parts) .. int(2, Graph.type_of(t.dtype)) .. bytes(8, name) .. bytes(9, data)
  return name
end

--- A list of integers as a constant of one dim. Equal lists share one.
---@param list integer[]
---@return string
function Graph:ints(list)
  local key = table.concat(list, ",")
  self.known[key] = self.known[key] or self:constant(accel.tensor(list, { dtype = "i64" }):reshape { #list })
  return self.known[key]
end

--- A number as a constant without dims.
---@param value number
---@param dtype string
---@return string
function Graph:number(value, dtype)
  local key = ("%s %a"):format(dtype, value)
  self.known[key] = self.known[key] or self:constant(accel.full({}, value, { dtype = dtype }))
  return self.known[key]
end

--- The number of rows of the batch, as a list of one.
---@return string
function Graph:batch()
  self.rows = self.rows or self:node("Shape", { self.input }, { start = 0, ["end"] = 1 })
  return self.rows
end

--- Inputs or outputs: name, dtype, shape. A dim that is a string is a free one.
local function value_info(v)
  local dims = {}
  for i, d in ipairs(v.shape) do dims[i] = bytes(1, type(d) == "string" and bytes(2, d) or int(1, d)) end
  return bytes(1, v.name) .. bytes(2, bytes(1, int(1, Graph.type_of(v.dtype)) .. bytes(2, table.concat(dims))))
end

--- The file.
---@param inputs {name: string, dtype: string, shape: (integer|string)[]}[]
---@param outputs {name: string, dtype: string, shape: (integer|string)[]}[]
---@return string[] pieces
function Graph:file(inputs, outputs)
  local parts = {}
  for _, node in ipairs(self.nodes) do parts[#parts + 1] = bytes(1, node) end
  parts[#parts + 1] = bytes(2, "accel")
  for _, name in ipairs(self.constants) do
    if self.used[name] then parts[#parts + 1] = bytes(5, self.constants[name]) end
  end
  for _, v in ipairs(inputs) do parts[#parts + 1] = bytes(11, value_info(v)) end
  for _, v in ipairs(outputs) do parts[#parts + 1] = bytes(12, value_info(v)) end
  return int(1, 10) .. bytes(2, "accel") .. bytes(8, bytes(1, "") .. int(2, self.opset)) .. bytes(7, table.concat(parts))
end

return Graph
