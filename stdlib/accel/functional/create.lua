--- New tensors of data, values and strides: parts of accel.functional.
local accel = require "accel"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- data as a tensor. A tensor stays itself, unless another dtype or device is asked for.
--- example: local x = accel.ones(1) return rawequal(accel.as_tensor(x), x) --> true
---@param data accel.Tensor|table|number|boolean
---@param opts? {dtype: accel.DType?, device: accel.Device?}
---@return accel.Tensor
function M.as_tensor(data, opts)
  if not tensors.is_tensor(data) then return accel.tensor(data, opts) end
  for key in next, opts or {} do
    if key ~= "dtype" and key ~= "device" then raise("as_tensor: unknown option '%s'; there are dtype and device", tostring(key)) end
  end
  if not opts or (opts.dtype == nil and opts.device == nil) then return data end
  return data:to(opts)
end

--- data as a tensor, as as_tensor. With copy = true a tensor is copied, with requires_grad it is detached and learns.
--- example: local x = accel.ones(1) return rawequal(accel.asarray(x, { copy = true }), x) --> false
---@param data accel.Tensor|table|number|boolean
---@param opts? {dtype: accel.DType?, device: accel.Device?, copy: boolean?, requires_grad: boolean?}
---@return accel.Tensor
function M.asarray(data, opts)
  local copy, learns, rest = nil, nil, nil
  for key, value in next, opts or {} do
    if key == "copy" then copy = value
    elseif key == "requires_grad" then learns = value
    else rest = rest or {}; rest[key] = value end
  end
  local t = M.as_tensor(data, rest)
  if copy and rawequal(t, data) then t = t:clone() end
  if copy == false and tensors.is_tensor(data) and not rawequal(t, data) then
    raise "asarray: copy = false, but the dtype or device asked for needs a copy"
  end
  if learns then return t:detach():requires_grad_() end
  if learns == false or tensors.is_tensor(data) and t.requires_grad then return t:detach() end
  return t
end

--- A tensor of rank 0.
--- example: accel.scalar_tensor(2).shape --> {}
---@param value number|boolean
---@param opts? accel.FactoryOptions
---@return accel.Tensor f32 unless dtype says otherwise
function M.scalar_tensor(value, opts)
  local o = { dtype = "f32" }
  for key, v in next, opts or {} do o[key] = v end
  return accel.tensor(value, o)
end

--- A tensor of x's shape, dtype and device, filled with one value.
--- example: accel.fill(accel.ones(2), 7) --> { 7, 7 }
---@param x accel.Tensor
---@param value number|boolean|accel.Tensor
---@return accel.Tensor
function M.fill(x, value)
  if tensors.is_tensor(value) and value.ndim ~= 0 then
    raise("fill: value must be a number or a tensor of rank 0, got shape %s", tensors.shape_string(value))
  end
  return x:masked_fill(accel.ones({}, { dtype = "bool", device = x.device }), value)
end

--- n numbers at equal ratios: base^start to base^stop.
--- example: accel.logspace(0, 2, 3) --> { 1, 10, 100 }
---@param start number
---@param stop number
---@param n integer
---@param base number|accel.FactoryOptions|nil default 10
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function M.logspace(start, stop, n, base, opts)
  local o = {}
  if type(base) == "table" then base, opts = nil, base end
  for key, v in next, opts or {} do o[key] = v end
  local dtype, learns = o.dtype or "f32", o.requires_grad
  o.dtype, o.requires_grad = "f64", nil
  local y = accel.pow(base or 10.0, accel.linspace(start, stop, n, o)):to(dtype)
  return learns and y:requires_grad_() or y
end

--- A capsule with the bytes of x for another library: see Tensor:to_dlpack.
--- example: accel.from_dlpack(accel.to_dlpack(accel.ones(2))) --> { 1, 1 }
---@param x accel.Tensor
---@return accel.DLPack
function M.to_dlpack(x) return x:to_dlpack() end

-- Elements that strides span.
local function span(size, stride)
  local last = 0
  for d, n in ipairs(size) do
    if n == 0 then return 0 end
    last = last + (n - 1) * stride[d]
  end
  return last + 1
end

--- A tensor without values, with these strides in elements.
--- example: accel.empty_strided({ 2, 3 }, { 1, 2 }):stride() --> { 1, 2 }
---@param size integer[]
---@param stride integer[]
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function M.empty_strided(size, stride, opts)
  local o, learns = {}, opts and opts.requires_grad
  for key, v in next, opts or {} do o[key] = v end
  o.requires_grad = nil
  local t = accel.empty({ span(size, stride) }, o):as_strided(size, stride)
  return learns and t:detach():requires_grad_() or t
end

--- A tensor without values with these strides, of x's dtype and device.
--- example: accel.ones(1):new_empty_strided({ 2 }, { 3 }):stride() --> { 3 }
---@param x accel.Tensor
---@param size integer[]
---@param stride integer[]
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function M.new_empty_strided(x, size, stride, opts)
  local o = { dtype = x.dtype, device = x.device }
  for key, v in next, opts or {} do o[key] = v end
  return M.empty_strided(size, stride, o)
end

--- A tensor without values whose memory has its dims in another order: physical_layout lists them, outermost first.
--- example: accel.empty_permuted({ 2, 3 }, { 2, 1 }):stride() --> { 1, 2 }
---@param size integer[]
---@param physical_layout integer[] dims from 1
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function M.empty_permuted(size, physical_layout, opts)
  local stride, n = {}, 1
  if #physical_layout ~= #size then raise("empty_permuted: %d extents and %d dims; give each dim once", #size, #physical_layout) end
  for i = #physical_layout, 1, -1 do
    local d = physical_layout[i]
    if stride[d] or not size[d] then raise("empty_permuted: dim %s is not one of the %d dims, or is given twice", tostring(d), #size) end
    stride[d], n = n, n * size[d]
  end
  return M.empty_strided(size, stride, opts)
end

return M
