--- accel.compile(fn or model): chains of elementwise operations and reductions inside become one pass over memory. The function runs as it
--- is, every time: there is no trace that could miss a branch, and no guard. An elementwise operation on many elements (host/ops/fuse.h) just
--- waits until something reads its result; then all of the chain before it is computed, piece by piece in the first cache, by the very
--- loops of single calls, so that results are equal to the last bit. What is not read is not written. Of a chain that comes again the
--- system's C compiler makes a kernel (host/ops/fuse_code.h), from the same formulas and with the same bits.
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
-- PyTorch's backends that need another compiler: what they would do, the one here does.
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
    once(("compile: there is no backend '%s' here; chains of elementwise operations are fused, as by 'inductor'"):format(backend))
  elseif backend ~= "inductor" and backend ~= "no" and not AS_IT_IS[backend] then
    raise("compile: backend must be one of 'inductor', 'eager' and 'aot_eager', got '%s'", o.backend)
  end
  if o.mode ~= nil and o.options ~= nil then raise "compile: give mode or options, not both" end
  if o.mode ~= nil and o.mode ~= "default" then
    once(("compile: mode '%s' has no effect: the one way of fusing is that of 'default'"):format(o.mode))
  end
  if o.dynamic == false then once "compile: dynamic = false has no effect: kernels serve all shapes" end
  if o.options ~= nil then once "compile: options has no effect: the one way of fusing has none" end
  o.plain = o.disable or backend == "no" or AS_IT_IS[backend] or false
  return o
end

-- ---- running ----
local depth = 0
-- What a function keeps besides what it returns is found in its first call, and in the first that records gradients, since graphs and
-- checkpoints keep tensors, too; then everything it makes is computed.
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
    for _ = 1, 2 do -- what finalizers of the first let go is found by the second
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

--- Takes a model's compilation off again, where its forward is still the compiled one, and that of its regions. Returns the options it had,
--- nil for others, and the function that compiles so.
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

--- Whether accel.compile made a model what it is.
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

--- What modules of one kind have in common: classes, and the names, shapes and dtypes of parameters and buffers.
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

--- Regional compilation: blocks that repeat (the modules of a ModuleList, all of one class) are compiled each, as is every module beside them.
--- Since no chain leaves its block, blocks of one structure have the same kernels, however many there are; what each keeps besides what it
--- returns, by a hook or a field of its own, its own first calls find out. A model in which nothing repeats is compiled as a whole. The model is
--- changed in place and returned; names of its state stay.
--- example: local m = accel.nn.ModuleList { accel.nn.Linear(2, 2), accel.nn.Linear(2, 2) }
---   accel.accelerator.compile_regions(m) return accel.accelerator.is_compiled_module(m), accel.accelerator.is_compiled_module(m[2]) --> false, true
---@param module accel.nn.Module
---@param opts? table those of accel.compile
---@return accel.nn.Module
function M.compile_regions(module, opts)
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

--- The regions of a model that compile_regions compiled, and how many kinds of them there are; none for others.
---@param module accel.nn.Module
---@return accel.nn.Module[]
---@return integer
function M.regions_of(module)
  local record = regional[module]
  if not record then return {}, 0 end
  return table.move(record.modules, 1, #record.modules, 1, {}), record.programs
end

--- A function whose chains of elementwise operations and reductions become one pass over memory each, or a model, which is changed in place
--- and returned. On the CPU, for results of 131072 elements and more in f32, bf16 and f16; everything else runs as it does without. Results,
--- gradients and random numbers are equal, bit for bit. So does a backward through what was recorded inside, up to the leaves; not one with
--- `create_graph`. What is not written has no memory, and a result takes that of an operand that ends with it.
---
--- A chain of f32 that comes for the third time gets a kernel of its own where there is a C compiler (ACCEL_COMPILE_CC, kept in
--- ACCEL_COMPILE_CACHE), whatever its shapes: nothing is compiled again for others, blocks of a model that repeat share kernels, and there are
--- ACCEL_COMPILE_LIMIT at most. On CUDA chains of elementwise operations of 1024 elements and more become kernels by NVRTC, where it is
--- installed; else they run call by call, which is said once.
--- There is nothing to trace, so that `fullgraph` and `dynamic` are true of every function; another `mode` than "default", which has no effect
--- here, is said once, as is `dynamic` = false.
---
--- A tensor that the function stores somewhere without returning it: where its first call does so, or the first that records gradients,
--- all that it makes is computed; one that only a later call stores cannot be read, which raises.
--- example: local f = accel.compile(function(x, y) return ((x + y) * 0.5 - x):abs() end)
---   return f(accel.ones(3), accel.zeros(3)) --> { 0.5, 0.5, 0.5 }
---@param fn function|accel.nn.Module
---@param opts? table
---  backend string = "inductor": "eager" and "aot_eager" run fn as it is; others of PyTorch's are taken as inductor, with a warning
---  mode string: "default", "reduce-overhead", "max-autotune"; not beside options
---  fullgraph boolean = false
---  dynamic boolean
---  options table: without effect, which a warning says
---  disable boolean = false: run fn as it is
---@return function|accel.nn.Module
function M.compile(fn, opts)
  local o = check_options(opts)
  if is_module(fn) then return compile_module(fn, o, "the model") end
  if type(fn) ~= "function" then raise("compile: expected a function or a model, got %s", check.shown(fn)) end
  if o.plain then return fn end
  local states = states_of "the function"
  return function(...) return run(states, fn, ...) end
end

return M
