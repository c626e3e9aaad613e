--- accel.util.pickle: plain data as a pickle of protocol 2, which Python's pickle and torch's restricted reader load. encode(value) returns
--- its bytes. Lua has fewer types than Python, so marks choose among them: tuple, dict, odict, set, bytes and others below. Used by
--- torch_file and by writers of folders of other tools.
---
--- nil and accel.json.null become None, integers int, floats float, strings str (bytes if they are not UTF-8). A table with the keys 1 to n
--- becomes a list, accel.util.ordered a dict in its order, any other table a dict in the order of accel.pairs. An empty table is a dict
--- unless accel.json.array made it. A table or string that stands at several places is one object there too.
local accel = require "accel.core"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"

local M = {}

local DEPTH <const> = 250 -- of values inside each other; accel.load reads 256 levels
local BATCH <const> = 1000 -- items that one opcode adds, as in Python's pickler

local LATIN1 <const> = {} -- bytes above 127 as characters
for b = 128, 255 do LATIN1[string.char(b)] = utf8.char(b) end

--- A value with a Python type that its Lua value does not imply.
local Mark = { __name = "accel.util.pickle.Mark" }

local function mark(kind, value, more)
  return setmetatable({ kind = kind, value = value, more = more }, Mark)
end

local function marker(kind)
  return function(value) return mark(kind, value) end
end

--- Marks of one value: M.tuple { 1, 2 } is a tuple, and so on. dict, odict (collections.OrderedDict) and set keep the order of
--- accel.util.ordered or of accel.pairs. entries is a dict from a list of {key, value}, whose keys may be marks.
M.tuple, M.list, M.set = marker "tuple", marker "list", marker "set"
M.dict, M.odict, M.entries = marker "dict", marker "odict", marker "entries"
M.bytes = marker "bytes"

--- A torch.Size.
function M.size(list) return M.call("torch", "Size", { M.tuple(list) }) end

--- A torch.nn.Parameter around a tensor. For encoders that accept tensors (torch_file).
function M.parameter(t)
  return M.call("torch._utils", "_rebuild_parameter", { t, t.requires_grad, M.odict {} })
end

--- The object of a module by its name: a class, a function or a constant such as torch.float32.
---@param module string
---@param name string
function M.global(module, name) return mark("global", module, name) end

--- The result of calling that object with a list of arguments. `n` gives their number if the list ends with nil.
---@param module string
---@param name string
---@param args? table
function M.call(module, name, args) return mark("call", M.global(module, name), M.tuple(args or {})) end

--- An instance of a class with these fields, made without a call of its constructor.
---@param module string
---@param name string
---@param fields? table
function M.object(module, name, fields) return mark("object", M.global(module, name), fields) end

--- A persistent id, which the reader of the file resolves: a storage of torch's.
function M.persistent(id) return mark("persistent", id) end

--- Whether value is a mark.
---@return boolean
function M.is_mark(value) return getmetatable(value) == Mark end

---@class accel.util.pickle.Encoder
---@field out string[]
---@field memo table<any, integer> object or text -> slot
local Encoder = {}
Encoder.__index = Encoder

function Encoder:fail(fmt, ...)
  local at = #self.path > 0 and table.concat(self.path, ".") or "value"
  raise("%s: %s: %s", self.who, at, fmt:format(...))
end

function Encoder:emit(bytes) self.out[#self.out + 1] = bytes end

--- Remembers the value on top of the reader's stack for `key`.
function Encoder:put(key)
  local slot = self.slots
  self.memo[key], self.slots = slot, slot + 1
  self:emit(slot < 256 and "q" .. string.char(slot) or string.pack("<c1I4", "r", slot))
end

--- Emits a value that was written before. False: it was not.
function Encoder:get(key)
  local slot = self.memo[key]
  if not slot then return false end
  self:emit(slot < 256 and "h" .. string.char(slot) or string.pack("<c1I4", "j", slot))
  return true
end

function Encoder:text(s)
  local key = "s" .. s
  if self:get(key) then return end
  self:emit(string.pack("<c1s4", "X", s))
  self:put(key)
end

--- Bytes, which protocol 2 has as text that is encoded again.
function Encoder:bytes(s)
  local key = "b" .. s
  if self:get(key) then return end
  self:global("_codecs", "encode")
  self:text((s:gsub("[\x80-\xff]", LATIN1)))
  self:text "latin1"
  self:emit "\x86R"
  self:put(key)
end

function Encoder:global(module, name)
  local key = ("g%s\n%s"):format(module, name)
  if self:get(key) then return end
  if not (module:find "^[%w_.]+$" and name:find "^[%w_.]+$") then self:fail("'%s.%s' is not a name of Python", module, name) end
  self:emit(("c%s\n%s\n"):format(module, name))
  self:put(key)
end

function Encoder:integer(i)
  if i >= 0 and i < 256 then self:emit("K" .. string.char(i))
  elseif i >= 0 and i < 65536 then self:emit(string.pack("<c1I2", "M", i))
  elseif i >= -2147483648 and i < 2147483648 then self:emit(string.pack("<c1i4", "J", i))
  else
    local n = 5
    while n < 8 and (i < -(1 << (8 * n - 1)) or i >= 1 << (8 * n - 1)) do n = n + 1 end
    self:emit(string.pack("<c1Bi" .. n, "\x8a", n, i))
  end
end

--- Adds items of the value on top of the reader's stack. next_item emits one and returns false at the end.
function Encoder:add(opcode, next_item)
  local more = true
  while more do
    local at, n = #self.out + 1, 0
    self.out[at] = "("
    while n < BATCH do
      more = next_item()
      if not more then break end
      n = n + 1
    end
    if n > 0 then self:emit(opcode) else self.out[at] = "" end
  end
end

function Encoder:item(key, value)
  self.path[#self.path + 1] = M.is_mark(key) and "?" or tostring(key)
  self:value(value)
  self.path[#self.path] = nil
end

function Encoder:items(opcode, list, n)
  local i = 0
  self:add(opcode, function()
    i = i + 1
    if i > n then return false end
    self:item(i, list[i])
    return true
  end)
end

--- Pairs (key, value) of an iterator.
function Encoder:pairs(step, state, key)
  self:add("u", function()
    local value
    key, value = step(state, key)
    if key == nil then return false end
    self:value(key)
    self:item(key, value)
    return true
  end)
end

function Encoder:tuple(list)
  local n = list.n or #list
  if n > 3 then self:emit "(" end
  for i = 1, n do self:item(i, list[i]) end
  self:emit(n == 0 and ")" or n > 3 and "t" or string.char(0x84 + n))
end

--- Visits the entries of a dict in the order in which they are written.
---@param t table
local function iterate(t)
  if ordered.is(t) then return ordered.iterate(t) end
  return accel.pairs(t)
end

M.iterate = iterate

local function entries(list)
  local i = 0
  return function()
    i = i + 1
    if list[i] then return list[i][1], list[i][2] end
  end
end

--- Whether a table becomes a list: its keys are 1 to n. Tables that remember an order, and empty ones without a mark, are dicts.
---@param t table
---@return boolean
function M.is_list(t)
  if ordered.is(t) then return false end
  local n = 0
  for _ in next, t do n = n + 1 end
  if n == 0 then return getmetatable(t) == getmetatable(accel.json.array {}) end
  return n == #t
end

--- Emits a dict whose table is the key of the memo, before its items: a reader makes it, then fills it.
function Encoder:dict(t, step, state, key)
  self:emit "}"
  self:put(t)
  self:pairs(step, state, key)
end

local kinds = {}

function kinds.tuple(e, m, id)
  e:tuple(m.value)
  e:put(id)
end
function kinds.list(e, m, id)
  e:emit "]"
  e:put(id)
  e:items("e", m.value, m.value.n or #m.value)
end
function kinds.set(e, m, id)
  e:global("builtins", "set")
  e:emit "]"
  e:items("e", m.value, #m.value)
  e:emit "\x85R"
  e:put(id)
end
function kinds.dict(e, m, id) e:dict(id, iterate(m.value)) end
function kinds.entries(e, m, id) e:dict(id, entries(m.value)) end
function kinds.odict(e, m, id)
  e:global("collections", "OrderedDict")
  e:emit ")R"
  e:put(id)
  e:pairs(iterate(m.value))
end
function kinds.bytes(e, m) e:bytes(m.value) end
function kinds.global(e, m) e:global(m.value, m.more) end
function kinds.persistent(e, m)
  e:value(m.value)
  e:emit "Q"
end
function kinds.call(e, m, id)
  e:value(m.value)
  e:value(m.more)
  e:emit "R"
  e:put(id)
end
function kinds.object(e, m, id)
  e:value(m.value)
  e:emit ")\x81"
  e:put(id)
  if m.more == nil then return end
  e:value(m.more)
  e:emit "b"
end

function Encoder:table(t)
  if self.open[t] then self:fail("it contains itself, and a file cannot hold that") end
  if self:get(t) then return end
  if self.depth == DEPTH then self:fail("more than %d values inside each other", DEPTH) end
  self.open[t], self.depth = true, self.depth + 1
  local meta = getmetatable(t)
  if meta == Mark then
    kinds[t.kind](self, t, t)
  elseif type(t.state_dict) == "function" then
    self:fail("expected plain data and tensors, got %s; give its state_dict()", type(meta) == "table" and meta.__name or "an object")
  elseif M.is_list(t) then
    kinds.list(self, { value = t }, t)
  else
    self:dict(t, iterate(t))
  end
  self.open[t], self.depth = nil, self.depth - 1
end

function Encoder:value(v)
  local kind = math.type(v) or type(v)
  if v == nil or v == accel.json.null then self:emit "N"
  elseif kind == "boolean" then self:emit(v and "\x88" or "\x89")
  elseif kind == "integer" then self:integer(v)
  elseif kind == "float" then self:emit(string.pack(">c1d", "G", v))
  elseif kind == "string" then
    if utf8.len(v) then self:text(v) else self:bytes(v) end
  elseif kind == "table" then self:table(v)
  elseif accel.is_tensor(v) and self.tensor then
    if self:get(v) then return end
    self:value(self.tensor(v, table.concat(self.path, ".")))
    self:put(v)
  else
    self:fail("%s cannot be stored; expected plain data%s", accel.is_tensor(v) and "a tensor" or "a " .. kind,
      self.tensor and " and tensors" or "")
  end
end

--- The pickle of a value.
--- example: return #require "accel.util.pickle".encode { 1, "a" } --> 18
---@param value any
---@param opts? {who: string?, tensor: (fun(t: accel.Tensor, at: string): any)?} who: begins messages. tensor: the mark that stands for a
---  tensor
---@return string
function M.encode(value, opts)
  local e = setmetatable({ out = { "\x80\x02" }, memo = {}, slots = 0, open = {}, path = {}, depth = 0, who = opts and opts.who or "pickle",
    tensor = opts and opts.tensor }, Encoder)
  e:value(value)
  e:emit "."
  return table.concat(e.out)
end

return M
