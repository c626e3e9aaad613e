--- Tiers of one model or optimizer: host memory and files below the memory of devices, and on each device a window through
--- which tensors pass that have their home there. Ops, autograd and optimizers use such tensors as any other: their bytes
--- come when an op asks for them, and, once a pass over the model was seen, before.
local accel = require "accel"
local class = require "accel.util.class"
local core = require "accel.offload.core"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

---@class accel.offload.Tiers
---@field o {budget: integer, ahead: integer, host_limit: integer}
local Tiers = class("accel.offload.Tiers")

--- budget: bytes of a device for tensors not in use (0: as many as fit). ahead: bytes fetched before use (0: automatic).
--- host_limit: maximum bytes of host memory (0: none). phantom: for the meta device, which only counts bytes.
---@param o? {budget: integer?, ahead: integer?, host_limit: integer?, phantom: boolean?}
function Tiers:init(o)
  self.o = options("Tiers", o, { budget = 0, ahead = 0, host_limit = 0, phantom = false })
  self.windows, self.order = {}, {}
end

--- The window of a device, made when it is first asked for.
function Tiers:window(device)
  device = tostring(device)
  if device == "meta" and not self.o.phantom then
    raise "offload: fetched weights need a device with memory, and meta has none; name the device of the computation"
  end
  local window = self.windows[device]
  if not window then
    window = core.window(device, math.floor(self.o.budget), math.floor(self.o.ahead))
    self.windows[device], self.order[#self.order + 1] = window, window
  end
  return window
end

--- Host memory outside the pools of devices.
function Tiers:host_store()
  local limit = math.floor(self.o.host_limit)
  self.host = self.host or (self.o.phantom and core.phantom("host", limit) or core.host(limit))
  return self.host
end

--- A tensor of a device with its home in host memory. Its contents are undefined.
---@param device string
---@param shape integer[]
---@param dtype string
---@return accel.Tensor
function Tiers:in_host(device, shape, dtype)
  return accel.unscoped(function() return self:window(device):tensor(self:host_store(), shape, dtype) end)
end

--- A tensor of a device with its home in a file store (core.create), filled with zeros.
function Tiers:in_file(device, store, shape, dtype)
  return accel.unscoped(function() return self:window(device):tensor(store, shape, dtype) end)
end

--- A tensor of a device whose home is a part of a read-only file: changes stay in memory.
---@param device string
---@param path string
---@param offset integer byte of the file
---@param shape integer[]
---@param dtype string
---@return accel.Tensor? t
---@return string? message
---@return string? code
function Tiers:in_part_of(device, path, offset, shape, dtype)
  self.files = self.files or {}
  local store, message, code = self.files[path], nil, nil
  if not store then
    store, message, code = core.open(path)
    if not store then return nil, message, code end
    self.files[path] = store
  end
  local ok, t = pcall(accel.unscoped, function() return self:window(device):at(store, offset, shape, dtype) end)
  if ok then return t end
  return nil, type(t) == "table" and t.message or tostring(t), type(t) == "table" and t.code or "io"
end

--- A pass over the model begins. in_order: before the first one, tensors are expected to be used in the order in which they were made.
---@param in_order? boolean
function Tiers:pass(in_order)
  for _, window in ipairs(self.order) do window:pass(in_order) end
end

--- Gives up the device memory of all that is not in use.
function Tiers:empty()
  for _, window in ipairs(self.order) do window:empty() end
end

--- Bytes moved and waits: { host = {...}, files = {...}, windows = { [device] = {...} } }. hidden: the share of transfer
--- time overlapped with compute.
---@return table
function Tiers:stats()
  local out, busy, wait = { windows = {}, files = { read_bytes = 0, mapped_bytes = 0, written_bytes = 0, reads = 0, writes = 0,
    busy_seconds = 0 } }, 0, 0
  if self.host then
    out.host = self.host:stats()
    out.host.used_bytes = self.host:used()
    busy = out.host.busy_seconds
  end
  for _, store in accel.pairs(self.files or {}) do
    for key, n in next, store:stats() do out.files[key] = out.files[key] + n end
  end
  busy = busy + out.files.busy_seconds
  for device, window in next, self.windows do
    out.windows[device] = window:stats()
    wait = wait + out.windows[device].wait_seconds
  end
  out.hidden = busy > 0 and math.max(0, 1 - wait / busy) or 1
  return out
end

return Tiers
