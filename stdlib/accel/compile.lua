--- accel.compile(fn or model): chains of elementwise operations and reductions inside become one pass over memory. The function runs
--- unchanged, every time: no trace can miss a branch, and no guard is needed. An elementwise operation on many elements
--- (host/ops/core/fuse.h) only waits until something reads its result. Then the whole chain before it is computed, piece by piece in the
--- first-level cache, by the loops of single calls, so that results are equal to the last bit. Unread intermediates are never written. Of a
--- chain that comes again the system's C compiler makes a kernel (host/ops/core/fuse_code.h), from the same formulas and with the same bits.
local accel = require "accel.core"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.fuse.core"
local options = require "accel.util.options"
local is_module, not_a_module = require("accel.nn.module").is_module, require("accel.nn.module").not_a_module
local raise = require "accel.util.raise"

local M = {}

local MODES <const> = { "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs" }
local AS_IT_IS <const> = { eager = true, aot_eager = true }
-- PyTorch's backends that need another compiler: accel's own does their work.
local ELSEWHERE <const> = {}
for name in ([[aot_ts_nvfuser nvprims_nvfuser cudagraphs ofi fx2trt onnxrt tensorrt aot_torchxla_trace_once torchxla_trace_once ipex tvm
  hpu_backend neuron]]):gmatch "%S+" do
  ELSEWHERE[name] = true
end

local declared <const> = {
  backend = "inductor", mode = options.none, fullgraph = false, dynamic = options.none, options = options.none, disable = false,
}

local said = {}
local function once(text)
  if not said[text] then warn(text) end
  said[text] = true
end

local function check_options(opts)
  local o = options("compile", opts, declared)
  if o.mode ~= nil then check.word("compile", "mode", o.mode, MODES) end
  if type(o.backend) ~= "string" then raise("compile: backend must be a name such as 'inductor', got %s", check.shown(o.backend)) end
  local backend = o.backend:lower()
  if ELSEWHERE[backend] then
    once(("compile: accel has no backend '%s'; chains of elementwise operations are fused, as by 'inductor'"):format(backend))
  elseif backend ~= "inductor" and backend ~= "no" and not AS_IT_IS[backend] then
    raise("compile: backend must be one of 'inductor', 'eager' and 'aot_eager', got '%s'", o.backend)
  end
  if o.mode ~= nil and o.options ~= nil then raise "compile: give mode or options, not both" end
  if o.mode ~= nil and o.mode ~= "default" then
    once(("compile: mode '%s' has no effect: accel always fuses as in 'default'"):format(o.mode))
  end
  for _, name in ipairs { "fullgraph", "dynamic" } do
    if o[name] then once(("compile: %s has no effect: it holds for every function; leave it out"):format(name)) end
  end
  if o.dynamic == false then once "compile: dynamic = false has no effect: kernels serve all shapes" end
  if o.options ~= nil then once "compile: options has no effect: the one way of fusing has none" end
  o.plain = o.disable or backend == "no" or AS_IT_IS[backend] or false
  return o
end

-- ---- running ----
local depth = 0
-- The first call, and the first that records gradients, find tensors that a function keeps without returning them, since graphs and
-- checkpoints keep tensors as well. Then all its results are computed.
local function states_of(name) return { [true] = { keeps = false, name = name }, [false] = { keeps = false, name = name } } end

local region = { __close = function(state)
  depth = depth - 1
  core.leave(state.keeps)
end }

--- Tensors in results, in tables of results as well.
local function add_tensors(value, list, seen)
  if accel.is_tensor(value) then
    list[#list + 1] = value
  elseif type(value) == "table" and not seen[value] and not is_module(value) then
    seen[value] = true
    for _, each in next, value do add_tensors(each, list, seen) end
  end
end

--- How many tensors wait.
local function waiting() return (select(4, core.counts())) end

local function results(state, ...)
  local list, seen = {}, {}
  for i = 1, select("#", ...) do add_tensors((select(i, ...)), list, seen) end
  core.settle(table.unpack(list))
  if not state.seen and depth == 1 then
    state.seen = true
    for _ = 1, 2 do -- the second finds objects freed by finalizers of the first
      if waiting() > 0 then collectgarbage() end
    end
    if waiting() > 0 then
      state.keeps = true
      once(("compile: %s keeps %d tensors that it does not return: all that it makes is written, which costs some of the gain"):format(
        state.name, waiting()))
    end
  end
  return ...
end

local function run(states, fn, ...)
  local state = states[accel.is_grad_enabled()]
  depth = depth + 1
  core.enter()
  local _ <close> = setmetatable(state, region)
  return results(state, fn(...))
end

-- ---- models ----
-- Model -> { ours = the forward that fuses, own = the one that was its own field }.
local compiled = setmetatable({}, { __mode = "k" })

local function compile_module(model, o, name)
  if compiled[model] then return model end
  local own, forward = rawget(model, "forward"), model.forward
  local states = states_of(name)
  local function ours(...) return run(states, forward, ...) end
  if not o.plain then rawset(model, "forward", ours) end
  compiled[model] = { ours = ours, own = own, o = o }
  return model
end

-- Model -> { o = the options, modules = its regions, in order, programs = how many kinds of them }.
local regional = setmetatable({}, { __mode = "k" })

--- Removes a model's compilation, if its forward and its regions' are still the compiled ones. Returns the options it had, nil for others,
--- and the function that compiles so.
---@param model accel.nn.Module
---@return table?
---@return (fun(model: accel.nn.Module, opts: table): accel.nn.Module)?
function M.undo(model)
  local record, regions = compiled[model], regional[model]
  compiled[model], regional[model] = nil, nil
  if record and rawget(model, "forward") == record.ours then rawset(model, "forward", record.own) end
  for _, each in ipairs(regions and regions.modules or {}) do M.undo(each) end
  if not record then return regions and regions.o, regions and M.compile_regions end
  if not regions then return record.o, M.compile end
  local o = regions.o -- both ways: regions first
  return record.o, function(again, opts)
    return M.compile(M.compile_regions(again, { backend = o.backend, mode = o.mode, disable = o.disable }), opts)
  end
end

--- Whether accel.compile has compiled a model.
--- example: local m = accel.nn.Linear(2, 2) accel.compile(m) return accel.accelerator.is_compiled_module(m) --> true
---@param module any
---@return boolean
function M.is_compiled_module(module) return type(module) == "table" and compiled[module] ~= nil end

--- Whether a model, or one inside it, is compiled.
--- example: local m = accel.nn.Sequential(accel.nn.Linear(2, 2)) accel.compile(m[1]) return accel.accelerator.has_compiled_regions(m) --> true
---@param module accel.nn.Module
---@return boolean
function M.has_compiled_regions(module)
  for _, each in ipairs(module:modules()) do
    if compiled[each] then return true end
  end
  return false
end

-- ---- regions ----
local function is_repeated(module)
  if not class.isinstance(module, require "accel.nn.module_list") then return false end
  for _, each in ipairs(module) do
    if class.of(each) ~= class.of(module[1]) then return false end
  end
  return #module > 0
end

local function has_repeated(module)
  for _, each in ipairs(module:modules()) do
    if is_repeated(each) then return true end
  end
  return false
end

--- The common structure of modules of one kind: classes, and the names, shapes and dtypes of parameters and buffers.
local function structure(module, ids)
  local words = {}
  for name, each in module:named_modules() do
    local of = class.of(each)
    if not ids[of] then
      ids.n = ids.n + 1
      ids[of] = ids.n
    end
    words[#words + 1] = ("%s=%d"):format(name, ids[of])
  end
  for _, list in ipairs { "named_parameters", "named_buffers" } do
    for name, t in module[list](module) do words[#words + 1] = ("%s:%s(%s)"):format(name, t.dtype, table.concat(t.shape, ",")) end
  end
  return table.concat(words, ";")
end

--- Regional compilation: repeated blocks (the modules of a ModuleList, all of one class) are compiled each, as is every other module. Since
--- no chain leaves its block, blocks of one structure have the same kernels, however many there are. Each block's own first calls find the
--- tensors that it keeps without returning them, in a hook or a field. A model in which nothing repeats is compiled as a whole. A model
--- without repeated blocks is compiled as a whole. The model is changed in place and returned. Its state keeps its names.
--- example: local m = accel.nn.ModuleList { accel.nn.Linear(2, 2), accel.nn.Linear(2, 2) }
---   accel.accelerator.compile_regions(m) return accel.accelerator.is_compiled_module(m), accel.accelerator.is_compiled_module(m[2]) --> false, true
---@param module accel.nn.Module
---@param opts? table accel.compile's options
---@return accel.nn.Module
function M.compile_regions(module, opts, ...)
  check.surplus("compile_regions", ...)
  if not is_module(module) then raise("compile_regions: %s", not_a_module(module)) end
  if compiled[module] or not has_repeated(module) then return M.compile(module, opts) end
  local o, ids, kinds = check_options(opts), { n = 0 }, {}
  if regional[module] then return module end
  local record = { o = o, modules = {}, programs = 0 }
  local function compile_region(each)
    local key = structure(each, ids)
    if not kinds[key] then record.programs = record.programs + 1 end
    kinds[key] = true
    if not compiled[each] then record.modules[#record.modules + 1] = each end
    compile_module(each, o, "a region")
  end
  local function visit(each)
    if is_repeated(each) then
      for _, block in ipairs(each) do compile_region(block) end
    elseif has_repeated(each) then
      for _, child in each:named_children() do visit(child) end
    else
      compile_region(each)
    end
  end
  visit(module)
  regional[module] = record
  return module
end

--- The regions of a model that compile_regions compiled, and the number of their kinds. Nothing for other models.
---@param module accel.nn.Module
---@return accel.nn.Module[]
---@return integer
function M.regions_of(module)
  local record = regional[module]
  if not record then return {}, 0 end
  return table.move(record.modules, 1, #record.modules, 1, {}), record.programs
end

--- A function whose chains of elementwise operations and reductions become one pass over memory each, or a model, which is changed in place
--- and returned. On the CPU this applies to results of 131072 elements and more in f32, bf16 and f16. All other work runs as without it.
--- Results, gradients and random numbers are equal, bit for bit. Backward through ops recorded inside is fused as well, up to the leaves,
--- except with `create_graph`. Unmaterialised results use no memory, and a result takes over the memory of an operand that ends with it.
---
--- The third run of an f32 chain gets its own kernel if there is a C compiler (ACCEL_COMPILE_CC, cached in ACCEL_COMPILE_CACHE), for any
--- shapes: other shapes need no new compilation, repeated blocks of a model share kernels, and there are at most ACCEL_COMPILE_LIMIT. On
--- CUDA, chains of elementwise operations of 1024 elements and more become kernels by NVRTC, if it is installed. Otherwise they run call by
--- call, with one warning. Since nothing is traced, `fullgraph` and `dynamic` hold for every function. Another `mode` than "default" has no
--- effect and warns once, as does `dynamic` = false.
---
--- Tensors stored without being returned: if the function's first call stores one, or the first that records gradients, all its results
--- are computed. A tensor stored only by a later call cannot be read, and reading it raises.
--- example: local f = accel.compile(function(x, y) return ((x + y) * 0.5 - x):abs() end)
---   return f(accel.ones(3), accel.zeros(3)) --> { 0.5, 0.5, 0.5 }
---@param fn function|accel.nn.Module
---@param opts? table
---  backend string = "inductor": "eager" and "aot_eager" run fn unchanged. PyTorch's other backends are treated as inductor, with a warning
---  mode string: "default", "reduce-overhead", "max-autotune". Not together with options
---  fullgraph boolean = false
---  dynamic boolean
---  options table: without effect, with a warning
---  disable boolean = false: run fn as it is
---@return function|accel.nn.Module
function M.compile(fn, opts, ...)
  check.surplus("compile", ...)
  local o = check_options(opts)
  if is_module(fn) then return compile_module(fn, o, "the model") end
  if type(fn) ~= "function" then raise("compile: expected a function or a model, got %s", check.shown(fn)) end
  if o.plain then return fn end
  local states = states_of "the function"
  return function(...) return run(states, fn, ...) end
end

return M
