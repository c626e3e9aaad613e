--- Process control: methods that Accelerator, PartialState and AcceleratorState share. Work for one rank only, the
--- order of ranks, each rank's share of a list, and a flag that any rank can raise for all.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local check_self = require "accel.accelerator.check_self"
local dist = require "accel.dist"
local guard = require "accel.util.guard"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local region = require "accel.accelerator.region"

local M = {}

-- ---- on some ranks only ----

--- A function that runs fn if here(self) is true, as a region without collectives, and returns nil on other ranks.
local function only(self, name, ranks, here, fn)
  check.callable(name, "fn", fn)
  return function(...)
    if self.num_processes == 1 then return fn(...) end
    if not here(self) then return nil end
    return region.run(name, ranks, fn, ...)
  end
end

--- A function like fn that runs on the main process and returns nil on the others. Collectives inside it raise.
--- example: local s = accel.PartialState() return s:on_main_process(function(x) return x + 1 end)(1) --> 2
---@param fn function
---@return function
function M.on_main_process(self, fn)
  return only(self, "on_main_process", 1, function(s) return s.is_main_process end, fn)
end

--- The same for the first process of every machine.
---@param fn function
---@return function
function M.on_local_main_process(self, fn)
  return only(self, "on_local_main_process", dist.get_num_nodes(), function(s) return s.is_local_main_process end, fn)
end

--- The same for the last process.
---@param fn function
---@return function
function M.on_last_process(self, fn)
  return only(self, "on_last_process", 1, function(s) return s.is_last_process end, fn)
end

--- The index of { process_index = 0 }, by the names that Accelerate's method and its pages have.
local function index_of(name, given, keys)
  local declared = { process_index = options.none }
  for _, key in ipairs(keys) do declared[key] = options.none end
  local o = options(name, given, declared)
  for _, key in ipairs(keys) do
    if o[key] ~= nil then return o[key] end
  end
  return o.process_index
end

local function by_index(self, name, keys, ranks, limit, fn, index)
  local key = keys[1]
  if type(fn) == "table" and index == nil and getmetatable(fn) == nil then
    fn, index = nil, index_of(name, fn, keys)
  elseif type(fn) == "number" and index == nil then
    fn, index = nil, fn
  elseif type(index) == "table" and getmetatable(index) == nil then
    index = index_of(name, index, keys)
  end
  if index == nil then raise("%s: which process? say %s(fn, 0)", name, name) end
  check.count(name, "process_index", index)
  if index >= limit and self.num_processes > 1 then -- a script for several processes runs on one, which does the work of all
    raise("%s: process_index is %d, there are %d processes, from 0", name, index, limit)
  end
  local function here(s) return s[key] == index end
  if fn ~= nil then return only(self, name, ranks, here, fn) end
  return function(f) return only(self, name, ranks, here, f) end
end

--- A function that runs on one process: on_process(fn, index), or on_process(index)(fn). The index may be written
--- { process_index = index }. A single process runs it for every index.
--- example: local s = accel.PartialState() return s:on_process(0)(function() return "here" end)() --> "here"
---@param fn function|integer
---@param index? integer
---@return function
function M.on_process(self, fn, index, ...)
  check.surplus("on_process", ...)
  return by_index(self, "on_process", { "process_index" }, 1, self.num_processes, fn, index)
end

--- The same by the number that a process has on its machine, { local_process_index = index }, or local_process_idx.
--- example: local s = accel.PartialState()
---   return s:on_local_process({ local_process_idx = 0 })(function() return "here" end)() --> "here"
---@param fn function|integer
---@param index? integer
---@return function
function M.on_local_process(self, fn, index, ...)
  check.surplus("on_local_process", ...)
  return by_index(self, "on_local_process", { "local_process_index", "local_process_idx" }, dist.get_num_nodes(),
    dist.get_local_world_size(), fn, index)
end

-- ---- who goes first ----

local function goes_first(self, name, first, ranks, fn, ...)
  if fn ~= nil then check.callable(name, "fn", fn) end
  if self.num_processes == 1 then return guard(function() end, fn, ...) end
  if not first then dist.barrier() end
  local inside = region.enter(name, first and ranks or self.num_processes - 1, fn)
  return guard(function(failure)
    inside:close()
    if not first then return end
    -- the others wait, even after an error here. The first error is the one to report
    if failure == nil then dist.barrier() else pcall(dist.barrier) end
  end, fn, ...)
end

--- The main process runs the block first, the others after it: `local _ <close> = accelerator:main_process_first()`, or
--- main_process_first(fn, ...), which returns fn's results. Collectives of all ranks inside it raise.
--- example: accel.PartialState():main_process_first(function() return 7 end) --> 7
---@param fn? function
---@param ... any
function M.main_process_first(self, fn, ...)
  return goes_first(self, "main_process_first", self.is_main_process, 1, fn, ...)
end

--- The same with the first process of every machine.
---@param fn? function
---@param ... any
function M.local_main_process_first(self, fn, ...)
  return goes_first(self, "local_main_process_first", self.is_local_main_process, dist.get_num_nodes(), fn, ...)
end

--- Returns when every process has called it.
function M.wait_for_everyone(self)
  if self.num_processes > 1 then dist.barrier() end
end

--- print on the first process of every machine.
---@param ... any
function M.print(self, ...)
  check_self(self, "print")
  if self.is_local_main_process then print(...) end
end

-- ---- a flag for all ranks ----

local triggers = setmetatable({}, { __mode = "k" })

--- Raises a flag that check_trigger sees on every process: to stop together when one has a reason.
--- example: local s = accel.PartialState() s:set_trigger() return s:check_trigger(), s:check_trigger() --> true, false
function M.set_trigger(self) triggers[self] = true end

--- Whether any process has raised the flag. Lowers it. All processes call it.
---@return boolean
function M.check_trigger(self)
  local set = triggers[self] or false
  if self.num_processes > 1 then
    local count = accel.tensor({ set and 1 or 0 }, { dtype = "i64", device = "cpu" })
    dist.all_reduce(count, "max")
    set = count:item() > 0
  end
  triggers[self] = nil
  return set
end

-- ---- shares of a list ----

local WHO <const> = "split_between_processes"

local function is_dataset(x)
  return class.of(x) ~= nil and type(x.len) == "function" and type(x.get) == "function"
end

--- "list", "map", "tensor" or "dataset"
local function kind_of(x, where)
  if accel.is_tensor(x) then
    if x:dim() == 0 then raise("%s: %s is a tensor without dims, there is nothing to split", WHO, where) end
    return "tensor"
  end
  if is_dataset(x) then return "dataset" end
  if type(x) ~= "table" then
    raise("%s: %s must be a list, a table of lists, a tensor or a data set, got %s", WHO, where, check.shown(x))
  end
  local key = next(x)
  if key == nil or (#x > 0 and type(key) == "number") then
    for k in next, x do
      if type(k) ~= "number" then raise("%s: %s has list entries and the key '%s'", WHO, where, tostring(k)) end
    end
    return "list"
  end
  return "map"
end

--- The number of items in x. All values of a map must have the same number.
local function count(x, where)
  local kind = kind_of(x, where)
  if kind == "tensor" then return x.shape[1] end
  if kind == "dataset" then return x:len() end
  if kind == "list" then return #x end
  local n, first
  for key, value in ordered.iterate(x) do
    if type(key) ~= "string" then raise("%s: %s has the key %s; keys must be strings", WHO, where, tostring(key)) end
    local own = count(value, ("%s.%s"):format(where, key))
    if n ~= nil and own ~= n then
      raise("%s: all values must have the same length: %s.%s has %d items, %s.%s has %d", WHO, where, first, n, where,
        key, own)
    end
    n, first = n or own, first or key
  end
  return n
end

--- Items first .. last (from 1) as a new value, then `padding` times the last item of the whole.
local function share(x, first, last, padding)
  local kind = kind_of(x, "input")
  if kind == "tensor" then
    local part = x:narrow(1, first, last - first + 1)
    if padding == 0 then return part end
    local rows = { part }
    for i = 1, padding do rows[i + 1] = x:narrow(1, x.shape[1], 1) end
    return accel.cat(rows, 1)
  end
  if kind == "map" then
    local out = ordered.is(x) and ordered() or {}
    for key, value in ordered.iterate(x) do out[key] = share(value, first, last, padding) end
    return out
  end
  local out, whole = {}, kind == "list" and x or nil
  local n = whole and #x or x:len()
  for i = first, last do out[#out + 1] = whole and x[i] or i end
  for _ = 1, padding do out[#out + 1] = whole and x[n] or n end
  return whole and out or accel.data.Subset(x, out)
end

--- The share of a list that belongs to this process: neighbours, the first (length mod num_processes) processes get one
--- item more. Lists, tensors (by dim 1), data sets, and tables of these by name, which must have the same length. With
--- apply_padding every process gets equally many: the last item of the whole input is repeated. On one process the
--- input itself. With one process it returns the input itself. With fn, it returns the results of fn(share).
--- example: accel.PartialState():split_between_processes({ "a", "b" }, function(part) return #part end) --> 2
---@param inputs any never changed
---@param opts? boolean|{apply_padding: boolean?} apply_padding
---@param fn? function
function M.split_between_processes(self, inputs, opts, fn, ...)
  check.surplus("split_between_processes", ...)
  if type(opts) == "function" and fn == nil then opts, fn = nil, opts end
  if type(opts) == "boolean" then opts = { apply_padding = opts } end
  local o = options(WHO, opts, { apply_padding = false })
  if fn ~= nil then check.callable(WHO, "fn", fn) end
  local n, P, r = count(inputs, "input"), self.num_processes, self.process_index
  local part = inputs
  if P > 1 then
    local each, more = n // P, n % P
    local size = each + (r < more and 1 or 0)
    local first = r * each + math.min(r, more) + 1
    local padding = o.apply_padding and more > 0 and each + 1 - size or 0
    part = share(inputs, first, first + size - 1, padding)
  end
  if fn ~= nil then return fn(part) end
  return part
end

return M
