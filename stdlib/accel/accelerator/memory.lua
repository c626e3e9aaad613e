--- Memory: a function that is tried with smaller batches until they fit, on all ranks together, and letting memory go.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local dist = require "accel.dist"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

-- Texts of other libraries' errors that mean the same as code "out_of_memory".
local TEXTS <const> = {
  "out of memory.", "out of memory:", "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.",
  "DefaultCPUAllocator: can't allocate memory", "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed",
}

--- Whether an error means that memory did not suffice.
--- example: accel.accelerator.should_reduce_batch_size "CUDA out of memory. Tried to allocate" --> true
---@param err any
---@return boolean
function M.should_reduce_batch_size(err)
  if type(err) == "table" then
    if err.code == "out_of_memory" then return true end
    err = err.message
  end
  if type(err) ~= "string" then return err == "not enough memory" end
  if err == "not enough memory" then return true end -- Lua's own
  for _, text in ipairs(TEXTS) do
    if err:find(text, 1, true) then return true end
  end
  return false
end

local function let_go()
  accel.collect()
  accel.empty_cache()
end

-- ---- batches that fit ----

local FINE <const>, TOO_BIG <const>, FAILED <const> = 0, 1, 2
local WHO <const> = "find_executable_batch_size"

--- example: local f = accel.accelerator.find_executable_batch_size({ starting_batch_size = 16 })(function(n)
---   if n > 10 then error("out of memory.") end return n end) return f(), f.batch_size --> 10, 10
---@class accel.accelerator.BatchSizeFinder
---@field batch_size integer the size of the next try
local Finder = class("accel.accelerator.BatchSizeFinder")

local function nine_tenths(n) return math.floor(n * 0.9) end

function Finder:init(fn, opts)
  if type(opts) == "number" then opts = { starting_batch_size = opts } end
  local o = options(WHO, opts, { starting_batch_size = 128, reduce_batch_size_fn = options.none })
  self.fn = check.callable(WHO, "fn", fn)
  self.starting_batch_size = check.count(WHO, "starting_batch_size", o.starting_batch_size)
  self.smaller = o.reduce_batch_size_fn and check.callable(WHO, "reduce_batch_size_fn", o.reduce_batch_size_fn)
    or nine_tenths
  self.batch_size = self.starting_batch_size
end

--- The next call begins with starting_batch_size again.
function Finder:reset() self.batch_size = self.starting_batch_size end

--- Every rank's result, once all have tried.
local function outcomes(outcome, batch_size)
  local P = dist.get_world_size()
  if P == 1 then return { outcome }, { batch_size } end
  local all = accel.empty({ P, 2 }, { dtype = "i64", device = "cpu" })
  dist.all_gather_into_tensor(all, accel.tensor({ outcome, batch_size }, { dtype = "i64", device = "cpu" }))
  return all:select(2, 1):tolist(), all:select(2, 2):tolist()
end

local function agree(outcome, err, batch_size)
  local ok, all, sizes = pcall(outcomes, outcome, batch_size)
  if outcome == FAILED then error(err, 0) end
  if not ok then
    if outcome == FINE then error(all, 0) end
    raise("%s: out of memory with batch size %d on rank %d, while other ranks are inside a collective and cannot try "
      .. "again: %s", WHO, batch_size, dist.get_rank(), tostring(all))
  end
  local worst = FINE
  for r, one in ipairs(all) do
    if one == FAILED then raise("%s: rank %d failed with batch size %d; see its error", WHO, r - 1, sizes[r]) end
    if sizes[r] ~= sizes[1] then
      raise("%s: rank 0 tries batch size %d, rank %d tries %d; give all ranks the same starting_batch_size", WHO,
        sizes[1], r - 1, sizes[r])
    end
    worst = math.max(worst, one)
  end
  return worst
end

local function refuse_size(fn, n)
  if n == 0 or type(fn) ~= "function" then return end
  local info = debug.getinfo(fn, "uSn")
  if info.isvararg or n + 1 <= info.nparams then return end
  raise("%s: the function of %s:%d takes %d arguments including the batch size, which is passed automatically; got %d more",
    WHO, info.short_src, info.linedefined, info.nparams, n)
end

local function reduced(self, size)
  local new = math.tointeger(self.smaller(size))
  if not new or new < 0 or new >= size then
    raise("%s: reduce_batch_size_fn must return a smaller integer than %d, got %s", WHO, size, check.shown(new))
  end
  return new
end

function Finder.__call(self, ...)
  refuse_size(self.fn, select("#", ...))
  let_go()
  while true do
    local size = self.batch_size
    if size == 0 then
      raise("%s: no batch size fits: even one row needs more memory than there is", WHO)
    end
    local result = table.pack(pcall(self.fn, size, ...))
    local outcome, err = FINE, nil
    if not result[1] then
      err = result[2]
      outcome = M.should_reduce_batch_size(err) and TOO_BIG or FAILED
    end
    if outcome == TOO_BIG then let_go() end
    if agree(outcome, err, size) == FINE then return table.unpack(result, 2, result.n) end
    result, err = nil, nil -- luacheck: ignore
    let_go()
    self.batch_size = reduced(self, size)
  end
end

--- A function that calls fn(batch_size, ...) with smaller and smaller batches until memory suffices on every rank: 0.9
--- times the size, rounded down, or reduce_batch_size_fn(size). All ranks must call it. If one runs out of memory, all
--- try again with the same size. Other errors propagate. The next call reuses the size found. :reset() starts over.
--- Also find_executable_batch_size { starting_batch_size = 16 } (fn). A rank that runs out of memory while others wait
--- for it inside a collective cannot be helped: that is an error on all.
--- example: accel.accelerator.find_executable_batch_size(function(n) return n end, { starting_batch_size = 8 })() --> 8
---@param fn function
---@param opts? {starting_batch_size: integer?, reduce_batch_size_fn: (fun(size: integer): integer)?}
---@return accel.accelerator.BatchSizeFinder
function M.find_executable_batch_size(fn, opts, ...)
  check.surplus("find_executable_batch_size", ...)
  if fn == nil or (type(fn) == "table" and getmetatable(fn) == nil) then
    if opts ~= nil then raise("%s: expected function before the options, got %s", WHO, check.shown(fn)) end
    opts = fn
    return function(f) return Finder(f, opts) end
  end
  return Finder(fn, opts)
end

-- ---- small helpers ----

--- Returns a nil for every argument, and collects: `model, optimizer = release_memory(model, optimizer)`. Assigning the
--- results releases the old values.
--- example: select("#", accel.accelerator.release_memory(1, 2)) --> 2
---@param ... any
function M.release_memory(...)
  local n = select("#", ...)
  let_go()
  return table.unpack({}, 1, n)
end

--- A name to show: an object's or its class's, or the file and line of a function.
--- example: accel.accelerator.get_pretty_name(accel.nn.Linear(1, 1)) --> "Linear"
---@param x any
---@return string
function M.get_pretty_name(x)
  local cls = class.isclass(x) and x or class.of(x)
  if cls then return (cls.__name:match "[^.]*$") end
  if type(x) == "function" then
    local info = debug.getinfo(require "accel.util.checked".original(x), "S")
    return info.what == "C" and "function" or ("function %s:%d"):format(info.short_src, info.linedefined)
  end
  local meta = getmetatable(x)
  local name = type(meta) == "table" and rawget(meta, "__name")
  return type(name) == "string" and name or tostring(x)
end

--- Merges the entries of source into destination, and inner tables likewise. Returns destination.
--- example: accel.accelerator.merge_dicts({ a = { b = 1 } }, { a = { c = 2 } }) --> { a = { b = 1, c = 2 } }
---@param source table
---@param destination table
---@return table destination
function M.merge_dicts(source, destination)
  for key, value in next, source do
    if type(value) == "table" and type(destination[key]) == "table" then
      M.merge_dicts(value, destination[key])
    else
      destination[key] = value
    end
  end
  return destination
end

return M
