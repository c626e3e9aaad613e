--- The head of a GGUF file of version 3: metadata by key, then names, shapes and places of tensors. Used by models.gguf.
local class = require "accel.util.class"

local KINDS <const> = { u32 = { 4, "<I4" }, i32 = { 5, "<i4" }, f32 = { 6, "<f" }, bool = { 7, "B" }, u64 = { 10, "<I8" } }

---@class accel.models.gguf.Head
local Head = class("accel.models.gguf.Head")

function Head:init() self.meta, self.n_meta, self.infos, self.n_tensors, self.at = {}, 0, {}, 0, 0 end

local function text(s) return ("<s8"):pack(s) end

function Head:put(key, number, bytes)
  self.n_meta = self.n_meta + 1
  self.meta[#self.meta + 1] = text(key) .. ("<I4"):pack(number) .. bytes
end

function Head:string(key, value) self:put(key, 8, text(value)) end
function Head:u32(key, value) self:put(key, KINDS.u32[1], ("<I4"):pack(value)) end
function Head:f32(key, value) self:put(key, KINDS.f32[1], ("<f"):pack(value)) end
function Head:bool(key, value) self:put(key, KINDS.bool[1], value and "\1" or "\0") end

--- An array of strings.
function Head:strings(key, list)
  local out = {}
  for i, s in ipairs(list) do out[i] = text(s) end
  self:put(key, 9, ("<I4I8"):pack(8, #list) .. table.concat(out))
end

--- An array of i32.
function Head:integers(key, list)
  local out = {}
  for i, v in ipairs(list) do out[i] = ("<i4"):pack(v) end
  self:put(key, 9, ("<I4I8"):pack(KINDS.i32[1], #list) .. table.concat(out))
end

--- An array of f32.
function Head:floats(key, list)
  local out = {}
  for i, v in ipairs(list) do out[i] = ("<f"):pack(v) end
  self:put(key, 9, ("<I4I8"):pack(KINDS.f32[1], #list) .. table.concat(out))
end

--- The next tensor: shape with the outermost dim first.
function Head:tensor(name, shape, number, bytes, alignment)
  local dims = {}
  for d = #shape, 1, -1 do dims[#dims + 1] = ("<I8"):pack(shape[d]) end
  self.infos[#self.infos + 1] = text(name) .. ("<I4"):pack(#shape) .. table.concat(dims) .. ("<I4I8"):pack(number, self.at)
  self.n_tensors = self.n_tensors + 1
  self.at = (self.at + bytes + alignment - 1) // alignment * alignment
end

--- All before the data, without its padding.
function Head:bytes()
  return "GGUF" .. ("<I4I8I8"):pack(3, self.n_tensors, self.n_meta) .. table.concat(self.meta) .. table.concat(self.infos)
end

return Head
