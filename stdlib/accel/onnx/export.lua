--- accel.onnx.export: a model's forward as an ONNX file. It runs the model, reads the recorded calls of ops and maps each to nodes (ops.lua).
local accel = require "accel"
local Graph = require "accel.onnx.graph"
local Module = require "accel.nn.module"
local attention = require "accel.onnx.attention"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.calls.core"
local ops = require "accel.onnx.ops"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- Methods that give a script the values of a tensor.
local READS <const> = { item = true, tolist = true, to_bytes = true }

--- The tensors of arguments or results, with names: positions, or the keys of a table.
local function leaves(list, word, names)
  local out = {}
  local function add(name, t) out[#out + 1] = { name = names and names[#out + 1] or name, tensor = t } end
  for i = 1, list.n do
    local v = list[i]
    if tensors.is_tensor(v) then
      add(list.n == 1 and word or ("%s_%d"):format(word, i), v)
    elseif type(v) == "table" then
      for key, t in accel.pairs(v) do
        if tensors.is_tensor(t) then add(tostring(key), t) end
      end
    end
  end
  if names and #names ~= #out then raise("onnx.export: %s_names has %d names for %d tensors", word, #names, #out) end
  return out
end

--- Ops that others are made of, by the names of those.
local PUBLIC <const> = { random_mask = "dropout", flash_attention = "scaled_dot_product_attention",
  bernoulli_each_ = "bernoulli", bernoulli_fill_ = "bernoulli" }

--- Names of ops that take numbers of a generator.
local function generators()
  local out = {}
  for _, op in ipairs(accel.ops()) do out[op.name] = op.signature:find("generator: generator?", 1, true) ~= nil end
  return out
end

--- Raises if a call drew random numbers: the file would hold those of this run. Attention and dropout draw nothing at a probability of 0.
local function check_draws(calls)
  local draws = generators()
  for _, call in ipairs(calls) do
    local args = call.args
    local p = args.dropout_p or not call.op:find "attention" and 1 or 0
    if draws[call.op] and p ~= 0 and args.training ~= false then
      raise("onnx.export: the model draws random numbers by '%s', and the file would hold those of this run; give them as an input",
        PUBLIC[call.op] or call.op)
    end
  end
end

--- Runs the model once. Returns the calls, its results, and the storages whose values a script read.
local function recorded(model, arguments)
  local read, meta = {}, debug.getmetatable(arguments.any)
  local index = meta.__index
  meta.__index = function(t, key)
    if READS[key] then read[#read + 1] = select(2, core.id(t)) end
    return index(t, key)
  end
  core.begin()
  local results = table.pack(pcall(function()
    local _ <close> = accel.no_grad()
    return model(table.unpack(arguments, 1, arguments.n))
  end))
  local calls = core.finish()
  meta.__index = index
  if not results[1] then error(results[2], 0) end
  check_draws(calls)
  return calls, table.pack(table.unpack(results, 2, results.n)), read
end

--- The tensors of a run by their places in storages. detach gives a tensor of its own in the place of another.
---@class accel.onnx.Storages
local Storages = class("accel.onnx.Storages")
function Storages:init() self.lists = {} end
function Storages:add(t)
  local id, storage, offset = core.id(t)
  self.lists[storage] = self.lists[storage] or {}
  table.insert(self.lists[storage], { id = id, offset = offset, tensor = t })
end

--- The id of the first tensor in that place, or the tensor's own.
function Storages:same(t)
  local id, storage, offset = core.id(t)
  for _, other in ipairs(self.lists[storage] or {}) do
    if other.offset == offset and other.tensor.dtype == t.dtype and accel.inspect(other.tensor.shape) == accel.inspect(t.shape)
      and accel.inspect(other.tensor:stride()) == accel.inspect(t:stride()) then return other.id end
  end
  return id
end

--- The arguments with one more row in each tensor of that batch.
local function longer(arguments, batch)
  local function one(t)
    if not tensors.is_tensor(t) or t.ndim == 0 or t.shape[1] ~= batch then return t end
    return accel.cat({ t, t:narrow(1, 1, 1) }, 1)
  end
  local out = { n = arguments.n, any = arguments.any }
  for i = 1, arguments.n do
    local v = arguments[i]
    if type(v) == "table" then
      out[i] = {}
      for key, t in next, v do out[i][key] = one(t) end
    else
      out[i] = one(v)
    end
  end
  return out
end

--- Adds a call's nodes. names: id -> name of what depends on inputs and parameters.
local function add_call(g, names, call, twin)
  local function name_of(id, t)
    if not names[id] then
      if twin and t.ndim > 0 and twin.constants[id] and twin.constants[id].shape[1] ~= t.shape[1] then -- made for the batch: rows must be equal
        local row = t:narrow(1, 1, 1)
        if not accel.equal(row:expand(t.shape), t) then
          raise("onnx.export: %s reads constants that differ by row of the batch; export without dynamic_batch", call.op)
        end
        local shape = g:node("Concat", { g:batch(), g:ints { table.unpack(t.shape, 2) } }, { axis = 0 })
        names[id] = g:node("Expand", { g:constant(row), shape })
        return names[id]
      end
      names[id] = g:constant(t)
    end
    return names[id]
  end
  local c = { args = call.args, results = call.results }
  function c.varies(key) return names[call.ids[key]] ~= nil end
  function c.x(key)
    local v, id = call.args[key], call.ids[key]
    if v == nil then return nil end
    if type(id) ~= "table" then return name_of(id, v) end
    local list = {}
    for i, t in ipairs(v) do list[i] = name_of(id[i], t) end
    return list
  end
  function c.like(key, dtype)
    local v = call.args[key]
    if v == nil then v = 0 end
    if type(v) == "boolean" then v = v and 1 or 0 end
    if type(v) == "number" then return g:number(v, dtype) end
    local name = c.x(key)
    return v.dtype == dtype and name or g:node("Cast", { name }, { to = g.type_of(dtype) })
  end
  function c.extents(i) -- -1: the free batch
    local out, free = { table.unpack(call.results[i].shape) }, 0
    for d, n in ipairs(twin and twin.call.results[i].shape or {}) do
      if n ~= out[d] then out[d], free = -1, free + 1 end
    end
    if free > 1 then raise("onnx.export: %s gives a result with the batch in %d dims; export without dynamic_batch", call.op, free) end
    return out
  end
  function c.batch() return g:batch() end
  local map = ops[call.op] or attention[call.op]
  if not map then
    raise("onnx.export: the op '%s' has no mapping to ONNX's opset %d; replace it in the model, or export a part without it", call.op, g.opset)
  end
  local out = table.pack(map(g, c))
  for i, id in ipairs(call.result_ids) do
    if out[i] then names[id] = out[i] end
  end
end

--- Writes the inference graph of a model, for ONNX Runtime and other programs: opset 20, weights inside the file, at most 2 GiB. It runs the
--- model once with these inputs. Operations on constants alone become constants. Lua's loops and conditions are those of this run, and
--- reading a value that depends on the inputs raises. An op without a mapping raises with its name, and so does one
--- that draws random numbers.
--- example: local path = os.tmpname()
---   return accel.onnx.export(accel.nn.Linear(3, 2):eval(), accel.ones(1, 3), path), os.remove(path) --> true, true
---@param model accel.nn.Module
---@param inputs accel.Tensor|any[] a tensor, or the list of the call's arguments: tensors and tables of tensors by name
---@param path string
---@param opts? table
---  input_names string[]: in the order of the tensors (default: input_1, ..., and the keys of tables)
---  output_names string[]: in the order of the results (default: output, or the keys of tables)
---  dynamic_batch boolean = false: the first dim of inputs is free. Runs the model a second time, with one more row
---@return boolean? true. nil if the file cannot be written
---@return string? message
---@return string? code
function M.export(model, inputs, path, opts, ...)
  check.surplus("onnx.export", ...)
  local o = options("onnx.export", opts, { input_names = options.none, output_names = options.none, dynamic_batch = false })
  if not Module.is_module(model) then raise("onnx.export: %s", Module.not_a_module(model)) end
  if type(path) ~= "string" then raise("onnx.export: path must be a string, got %s", check.shown(path)) end
  if tensors.is_tensor(inputs) then inputs = { inputs } end
  if type(inputs) ~= "table" then raise("onnx.export: inputs must be a tensor or a list of arguments, got %s", check.shown(inputs)) end
  if model.training then raise "onnx.export: the model is in training mode; call model:eval() first" end
  local arguments = table.pack(table.unpack(inputs))
  local given = leaves(arguments, "input", o.input_names)
  if #given == 0 then raise "onnx.export: inputs has no tensor" end
  arguments.any = given[1].tensor
  local calls, results, read = recorded(model, arguments)
  local batch, twins, twin_results = given[1].tensor.shape[1], nil, nil
  if o.dynamic_batch then
    if not batch then raise "onnx.export: dynamic_batch needs inputs with a dim" end
    twins, twin_results = recorded(model, longer(arguments, batch))
    if #twins ~= #calls then raise "onnx.export: another batch makes other calls; export without dynamic_batch" end
  end
  local g, names, constants = Graph(given[1].name), {}, {}
  for _, v in ipairs(given) do names[core.id(v.tensor)] = v.name end
  local weights, aliases = {}, {}
  for _, named in ipairs { model:named_parameters(), model:named_buffers() } do
    for name, t in accel.pairs(named) do
      if t.quant_state then raise("onnx.export: '%s' is quantised; export a model of floats", name) end
      weights[core.id(t)] = weights[core.id(t)] or { name = name, tensor = t }
    end
  end
  local live, of_inputs = {}, {} -- ids of what depends on inputs or weights, and on inputs
  local there = Storages()
  for _, v in ipairs(given) do
    of_inputs[core.id(v.tensor)] = true
    there:add(v.tensor)
  end
  for _, call in ipairs(calls) do
    local any, inner = false, false
    for key, id in next, call.ids do
      for k, one in ipairs(type(id) == "table" and id or { id }) do
        local same = there:same(type(id) == "table" and call.args[key][k] or call.args[key])
        if same ~= one and (of_inputs[same] or live[same]) then
          live[one], of_inputs[one], names[one], aliases[one] = live[same], of_inputs[same], names[same], same
        end
        if weights[one] and not names[one] then names[one] = g:constant(weights[one].tensor, weights[one].name) end
        any, inner = any or names[one] ~= nil or live[one] ~= nil, inner or of_inputs[one] ~= nil
      end
    end
    call.live = any
    for i, id in ipairs(call.result_ids) do
      live[id], of_inputs[id] = any or nil, inner or of_inputs[id]
      if any and call.results[i] then there:add(call.results[i]) end
    end
  end
  for _, storage in ipairs(read) do
    for _, one in ipairs(there.lists[storage] or {}) do
      if of_inputs[one.id] then
        raise "onnx.export: the model reads values that depend on its inputs (a mixture of experts does), and the file could not follow them"
      end
    end
  end
  for i, call in ipairs(calls) do
    local twin = twins and { call = twins[i], constants = constants } or nil
    if twin and twin.call.op ~= call.op then raise "onnx.export: another batch makes other calls; export without dynamic_batch" end
    if twin then -- constants of the second run, under the ids of the first
      for key, id in next, call.ids do
        local other = twin.call.args[key]
        if type(id) == "table" then
          for k, one in ipairs(id) do constants[one] = other[k] end
        else
          constants[id] = other
        end
      end
    end
    if call.live then
      for key, v in next, twin and call.args or {} do -- of the batch, such as a division by its size; lists are shapes, see extents
        local other = twin.call.args[key]
        if math.type(v) and math.type(other) and v ~= other and v == v then
          raise("onnx.export: '%s' takes %s of this batch and %s of another; export without dynamic_batch", call.op, v, other)
        end
      end
      if call.inplace then raise("onnx.export: '%s' changes a tensor in place, which ONNX cannot; write it as a new tensor", call.op) end
      for _, id in next, call.ids do
        for _, one in ipairs(type(id) == "table" and id or { id }) do names[one] = names[one] or names[aliases[one]] end
      end
      add_call(g, names, call, twin)
    end
  end
  local function described(list, twin_list)
    local out = {}
    for i, v in ipairs(list) do
      local shape = { table.unpack(v.tensor.shape) }
      for d, n in ipairs(twin_list and twin_list[i].tensor.shape or {}) do
        if n ~= shape[d] then shape[d] = "batch" end
      end
      out[i] = { name = v.name, dtype = v.tensor.dtype, shape = shape }
    end
    return out
  end
  local made, outputs = leaves(results, "output", o.output_names), {}
  if #made == 0 then raise "onnx.export: the model returns no tensor" end
  for i, v in ipairs(made) do
    local id = core.id(v.tensor)
    local name = names[id] or g:constant(v.tensor)
    g:output(name, v.name)
    outputs[i] = v
  end
  local taken = {}
  for _, list in ipairs { given, outputs } do
    for _, v in ipairs(list) do
      if taken[v.name] then raise("onnx.export: two inputs or outputs have the name '%s'; give others in input_names or output_names", v.name) end
      taken[v.name] = true
    end
  end
  local inputs_of = described(given, twins and leaves(longer(arguments, batch), "input"))
  return accel.write_file(path, g:file(inputs_of, described(outputs, twin_results and leaves(twin_results, "output"))))
end

return M
