--- accel.checkpoint(fn, ...): the tensors that fn's calls save for backward are not kept, but computed again when
--- backward needs them. The native side (accel.autograd.core) counts saved tensors and returns recomputed ones. This
--- file records the modes around fn and restores them for the second run.
local accel = require "accel.core"
local check = require "accel.util.check"
local core = require "accel.autograd.core"
local guard = require "accel.util.guard"
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"
local recompute = require "accel.autograd.recompute"

local declared = recompute.options

--- The option that a key of fn's own looks like: one that is near, or that it begins.
local function mistaken(key)
  if type(key) ~= "string" then return nil end
  local near = nearest(key, declared)
  for name in next, declared do
    if #key >= 4 and name:sub(1, #key) == key then near = name end
  end
  return near
end

--- The options among the arguments: those in a last table with string keys. All other keys are fn's.
---@return table options completed
---@return table? args of fn, with n. nil: unchanged
local function take_options(...)
  local n = select("#", ...)
  local last = n > 0 and (select(n, ...)) or nil
  if type(last) ~= "table" or getmetatable(last) ~= nil or rawlen(last) > 0 then return declared, nil end
  local o, rest, any = {}, {}, false
  for key, default in next, declared do o[key] = default end
  for key, value in next, last do
    if declared[key] == nil then
      local meant = mistaken(key)
      if meant then
        raise("checkpoint: unknown option '%s'; did you mean '%s'? An option of fn's own with such a name is given "
          .. "inside a function: checkpoint(function(...) return fn(..., { %s = ... }) end, ...)", key, meant, key)
      end
      rest[key] = value
    else
      if type(value) ~= type(declared[key]) then
        raise("checkpoint: option '%s' must be a %s, got %s", key, type(declared[key]), check.shown(value))
      end
      o[key], any = value, true
    end
  end
  if not any then return declared, nil end
  if o.use_reentrant then
    raise "checkpoint: use_reentrant = true is not supported: use_reentrant = false does the same without its limits"
  end
  if o.determinism_check ~= "default" and o.determinism_check ~= "none" then
    local near = nearest(o.determinism_check, { default = true, none = true })
    raise("checkpoint: determinism_check must be 'default' or 'none', got '%s'%s", o.determinism_check,
      near and ("; did you mean '%s'?"):format(near) or "")
  end
  if o.offload ~= "none" and o.offload ~= "host" then
    raise("checkpoint: offload must be 'none' or 'host', got '%s'", o.offload)
  end
  local args = table.pack(...)
  args[n] = next(rest) ~= nil and rest or nil
  if args[n] == nil then args.n = n - 1 end
  return o, args
end

--- fn once more, as it was called in the forward. Afterwards the backward's random numbers continue from their previous
--- state.
local function again(was, ...)
  local now = accel.get_rng_state()
  recompute.depth = recompute.depth + 1
  local _ <close> = guard(function()
    recompute.depth = recompute.depth - 1
    if was.rng then accel.set_rng_state(now) end
  end)
  local _ <close> = accel.device(was.device)
  local _ <close> = accel.autocast { enabled = was.cast ~= nil, dtype = was.cast }
  if was.rng then accel.set_rng_state(was.rng) end
  was.fn(...)
end

local function run(o, fn, ...)
  local was = {
    fn = fn, device = accel.get_default_device(), rng = o.preserve_rng_state and accel.get_rng_state() or nil,
    cast = accel.is_autocast_enabled() and accel.get_autocast_dtype() or nil,
  }
  local _ <close> = o.offload ~= "none" and require "accel.autograd"._offload { tier = o.offload } or nil
  local _ <close> = core.region(again, was, o.early_stop, o.determinism_check == "default", ...)
  return fn(...)
end

--- Calls fn(...) and returns its results without keeping the tensors that fn's operations save for their gradients.
--- Backward calls fn again when it needs them, so a second forward saves the memory of the activations inside. Random
--- numbers (dropout), autocast and the default device are restored, so that losses and gradients are equal to the last
--- bit. fn must do the same each time: the shapes and dtypes of its saved tensors are compared. It may contain further
--- checkpoints. Tensors among the arguments are kept, and checked for changes in place.
---
--- Options stand in a table at the end, with options of fn's own if it has some.
--- example: local x = accel.tensor({ 2.0 }, { requires_grad = true })
---   local function f(t) return t:exp():exp() end
---   local a = accel.grad(f(x), x)
---   return accel.equal(a, accel.grad(accel.checkpoint(f, x), x)) --> true
---@param fn function|accel.nn.Module
---@param ... any its arguments, then options
---  preserve_rng_state boolean = true: the second run draws the random numbers of the first
---  determinism_check string = "default": compare shapes and dtypes of saved tensors. "none": do not
---  early_stop boolean = true: the second run is left as soon as all that is needed is there
---  use_reentrant boolean = false: only false is taken
---  offload string = "none": "host": its tensor arguments rest in host memory until the backward
return function(fn, ...)
  if accel.is_tensor(fn) then
    raise "checkpoint: fn must be a function, got a tensor; pass function and arguments separately: checkpoint(layer, x)"
  end
  check.callable("checkpoint", "fn", fn)
  local o, args = take_options(...)
  local arrive = type(fn) == "table" and rawget(fn, "pipeline_arguments")
  if arrive then args = arrive(args or table.pack(...)) end -- received tensors of another stage are kept, and used in the recomputation
  if not accel.is_grad_enabled() then
    if args then return fn(table.unpack(args, 1, args.n)) end
    return fn(...)
  end
  if args then return run(o, fn, table.unpack(args, 1, args.n)) end
  return run(o, fn, ...)
end
