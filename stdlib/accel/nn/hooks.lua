--- The hooks of one module: made by nn.Module on the first register_*_hook, run by its call.
local accel = require "accel"
local class = require "accel.util.class"
local module_call = require "accel.nn.module_call"
local options = require "accel.util.options"
local tensors = require "accel.util.tensors"

---@class accel.nn.Hooks
local Hooks = class("accel.nn.Hooks")

function Hooks:init() self.forward_pre, self.forward, self.full_backward = {}, {}, {} end

--- The hooks of a kind that forward does not look at, now.
function Hooks:of(kind) return { table.unpack(self[kind] or {}) } end

--- Adds fn after the others of its kind (before them with {prepend = true}). {copied = true} marks a hook that belongs
--- to the module's computation: copies of the module get it.
function Hooks:add(kind, fn, opts, ...)
  local o = options(("register_%s_hook"):format(kind), opts, { prepend = false, copied = false }, ...)
  local entry, list = { fn = fn, copied = o.copied }, self[kind]
  if not list then
    list = {}
    self[kind] = list
  end
  table.insert(list, o.prepend and 1 or #list + 1, entry)
  return {
    remove = function()
      for i, e in ipairs(list) do
        if e == entry then return table.remove(list, i) and nil end
      end
    end,
  }
end

--- Whether there are any hooks on calls. Removed ones and those of states do not count.
function Hooks:see_calls() return #self.forward_pre > 0 or #self.forward > 0 or #self.full_backward > 0 end

--- The hooks that copies of the module get, or nil.
function Hooks:copied()
  local new
  for kind, list in next, self do
    for _, entry in ipairs(list) do
      if entry.copied then
        new = new or Hooks()
        new:add(kind, entry.fn, { copied = true })
      end
    end
  end
  return new
end

--- Gives each tensor of args that needs a gradient its own alias, so that a hook on it sees only this use. Returns
--- their number. Aliases replace the tensors in place.
local function alias(list, n)
  local at = {}
  for i = 1, n do
    local t = list[i]
    if tensors.is_tensor(t) and t.requires_grad then
      list[i] = t:view(t.shape)
      at[#at + 1] = i
    end
  end
  return at
end

local function run_backward(self, module, ins, n_ins, call)
  local list = self.full_backward
  local single = n_ins == 1 and ins[1] or nil
  for _, entry in ipairs({ table.unpack(list) }) do
    local new = entry.fn(module, call.grad_inputs, call.grad_outputs)
    if new ~= nil and single then
      if type(new) == "table" then new = new[single] or new[1] end
      call.grad_inputs[single] = new
    end
  end
  return single and call.grad_inputs[single] or nil
end

--- Runs module's forward between its hooks.
function Hooks:run(module, ...)
  local args = table.pack(...)
  for _, entry in ipairs({ table.unpack(self.forward_pre) }) do
    local new = entry.fn(module, args)
    if type(new) == "table" then
      args = new
      args.n = args.n or #new
    elseif new ~= nil then
      args = { new, n = 1 }
    end
  end
  local forward = module.forward
  module_call.check(module, forward, table.unpack(args, 1, args.n))
  local call, ins
  if #self.full_backward > 0 and accel.is_grad_enabled() then
    ins = alias(args, args.n)
    call = { grad_inputs = {}, grad_outputs = {} }
    local left = #ins
    for _, i in ipairs(ins) do
      args[i]:register_hook(function(grad)
        call.grad_inputs[i] = grad
        left = left - 1
        if left == 0 then
          left = #ins
          return run_backward(self, module, ins, #ins, call)
        end
      end)
    end
  end
  local out = table.pack(forward(module, table.unpack(args, 1, args.n)))
  for _, entry in ipairs({ table.unpack(self.forward) }) do
    local new = table.pack(entry.fn(module, args, table.unpack(out, 1, out.n)))
    if new[1] ~= nil then out = new end
  end
  if call then
    local outs = alias(out, out.n)
    local left = #outs
    for _, i in ipairs(outs) do
      out[i]:register_hook(function(grad)
        call.grad_outputs[i] = grad
        left = left - 1
        if left == 0 then
          left = #outs
          if #ins == 0 then run_backward(self, module, ins, 0, call) end
        end
      end)
    end
  end
  return table.unpack(out, 1, out.n)
end

return Hooks
