--- Functions for other processes of the same program: their code, and the values that they use from outside (upvalues, and names of a
--- prompt's session or globals of the script), as plain data for accel.encode. Tables and functions that several of them share stay shared.
--- Libraries are named and loaded there. Used by accel.launch and its worker.
---
--- Open files, coroutines, objects of classes and other userdata stay in their process. As an upvalue they are an error that names them.
--- A global that cannot be sent raises when the function uses it there, since code names more globals than it uses.
local accel = require "accel.core"

local M = {}

local LIBRARIES <const> = { "string", "table", "math", "coroutine", "io", "os", "utf8", "debug" }

local function kind_of(value)
  local meta = debug.getmetatable(value)
  local name = type(meta) == "table" and (rawget(meta, "__name") or type(rawget(meta, "__index")) == "table" and rawget(meta.__index, "__name"))
  return type(name) == "string" and name or type(value)
end

local function where_of(f)
  local info = debug.getinfo(f, "S")
  return ("the function at %s:%d"):format(info.short_src, info.linedefined)
end

-- Names for the values that every process has: modules, and functions of the standard library.
local function shared_names()
  local names = { [_G] = { "env" } }
  for _, library in ipairs(LIBRARIES) do
    for name, value in next, rawget(_G, library) or {} do
      if type(value) == "function" then names[value] = { "field", library, name } end
    end
  end
  for name, value in next, _G do
    if type(value) == "function" and debug.getinfo(value, "S").what == "C" then names[value] = { "field", "_G", name } end
  end
  for name, value in next, package.loaded do
    if type(name) == "string" and type(value) == "table" and value ~= _G then names[value] = { "module", name } end
    if type(name) == "string" and type(value) == "function" and not names[value] then names[value] = { "module", name } end
  end
  return names
end

local function is_environment(name) return name == "_ENV" end

local Packer = {}
Packer.__index = Packer

-- The place of a value among the nodes. nil, reason: it cannot be sent.
function Packer:add(value, depth)
  local kind = type(value)
  if kind == "nil" or kind == "boolean" or kind == "number" or kind == "string" then
    self.nodes[#self.nodes + 1] = { "value", value }
    return #self.nodes
  end
  if self.seen[value] then return self.seen[value] end
  if depth > 150 then return nil, "is nested too deeply" end
  local function node(n)
    self.nodes[#self.nodes + 1] = n
    self.seen[value] = #self.nodes
    return #self.nodes, n
  end
  if self.names[value] then return (node(self.names[value])) end
  if accel.is_tensor(value) then
    if value.requires_grad and not value.is_leaf then return nil, "is a tensor with a history; detach() it" end
    return (node { "value", value })
  end
  if kind == "function" then
    if debug.getinfo(value, "S").what == "C" then return nil, "is a function of C" end
    return self:add_function(value, depth, node)
  end
  if kind ~= "table" then return nil, "is a " .. kind_of(value) end
  local meta = getmetatable(value)
  if meta ~= nil and meta ~= getmetatable(accel.json.array {}) then return nil, ("is an object (%s)"):format(kind_of(value)) end
  local at, n = node { "table" }
  for k, v in next, value do
    local key, why = self:add(k, depth + 1)
    local there
    if key then there, why = self:add(v, depth + 1) end
    if not there then return nil, ("has the entry %s, which %s"):format(tostring(k), why) end
    n[#n + 1], n[#n + 2] = key, there
  end
  return at
end

-- The variables of an environment that the code of a function may use: its text has every name that it uses.
function Packer:add_environment(env, code)
  local kept = env ~= _G and env or {}
  local function look(names)
    for name, value in next, names do
      if type(name) == "string" and not self.globals[name] and value ~= _G and code:find(name, 1, true) and not self.standard[name] then
        self.globals[name] = { "pending" }
        local at, why = self:add(value, 1)
        self.globals[name] = at and { at } or { false, why }
      end
    end
  end
  look(kept)
  look(_G)
end

function Packer:add_function(f, depth, node)
  local code = string.dump(f)
  local at, n = node { "function", code, ("=%s"):format(debug.getinfo(f, "S").short_src) }
  local i = 1
  while true do
    local name, value = debug.getupvalue(f, i)
    if not name then break end
    local id = debug.upvalueid(f, i)
    if is_environment(name) and type(value) == "table" then
      n[#n + 1] = 0
      self:add_environment(value, code)
    else
      if not self.cells[id] then
        self.n_cells = self.n_cells + 1
        self.cells[id] = self.n_cells
        local there, why = self:add(value, depth + 1)
        if not there then return nil, ("uses '%s', which %s"):format(name, why) end
        self.cell_values[self.cells[id]] = there
      end
      n[#n + 1] = self.cells[id]
    end
    i = i + 1
  end
  return at
end

--- A function as plain data for accel.encode. nil, why: other processes cannot receive it.
---@param f function
---@return table? parcel
---@return string? why
function M.pack(f)
  local self = setmetatable({ nodes = {}, seen = {}, names = shared_names(), globals = {}, cells = {}, n_cells = 0, cell_values = {},
    standard = { _G = true } }, Packer)
  for _, library in ipairs(LIBRARIES) do self.standard[library] = true end
  if self.names[f] or debug.getinfo(f, "S").what == "C" then return nil, "it is a function of C" end
  local at, why = self:add(f, 1)
  if not at then return nil, ("%s %s; create it inside the function"):format(where_of(f), why) end
  return { at = at, nodes = self.nodes, cells = self.cell_values, globals = self.globals }
end

--- The function, in another process. Its globals are this process's.
---@param parcel table
---@return function
function M.unpack(parcel)
  local values = {}
  for i, n in ipairs(parcel.nodes) do
    if n[1] == "value" then values[i] = n[2]
    elseif n[1] == "env" then values[i] = _G
    elseif n[1] == "field" then values[i] = n[2] == "_G" and rawget(_G, n[3]) or rawget(_G, n[2])[n[3]]
    elseif n[1] == "module" then values[i] = require(n[2])
    elseif n[1] == "table" then values[i] = {}
    else values[i] = accel.process.function_of(n[2], n[3]) end
  end
  local owners = {} -- of each variable: a function and its position
  for i, n in ipairs(parcel.nodes) do
    if n[1] == "table" then
      for k = 2, #n, 2 do values[i][values[n[k]]] = values[n[k + 1]] end
    elseif n[1] == "function" then
      for k = 4, #n do
        local cell = n[k]
        if cell == 0 then debug.setupvalue(values[i], k - 3, _G)
        elseif owners[cell] then debug.upvaluejoin(values[i], k - 3, owners[cell][1], owners[cell][2])
        else
          owners[cell] = { values[i], k - 3 }
          debug.setupvalue(values[i], k - 3, values[parcel.cells[cell]])
        end
      end
    end
  end
  local missing = {}
  for name, global in next, parcel.globals do
    if rawget(_G, name) ~= nil then goto continue end
    if global[1] then rawset(_G, name, values[global[1]])
    else missing[name] = global[2] end
    ::continue::
  end
  if next(missing) then
    local meta = getmetatable(_G) or {}
    local index = meta.__index
    meta.__index = function(t, name)
      if missing[name] then
        error(("launch: other processes cannot receive '%s', which %s; create it inside the function"):format(name, missing[name]), 2)
      end
      if type(index) == "function" then return index(t, name) end
      return index and index[name]
    end
    setmetatable(_G, meta)
  end
  return values[parcel.at]
end

return M
