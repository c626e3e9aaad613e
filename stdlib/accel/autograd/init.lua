--- accel.autograd: gradients beyond t:backward(), in PyTorch's names. The modes and accel.grad are accel's own.
--- recompute is accel.checkpoint.
local accel = require "accel.core"

---@class accel.autograd
---@field gradcheck fun(fn: function, inputs: accel.Tensor|table, ...: any): boolean
---@field gradgradcheck fun(fn: function, inputs: accel.Tensor|table, ...: any): boolean
---@field graph accel.autograd.graph
---@field functional accel.autograd.functional
---@field detect_anomaly fun(...: any): any
---@field set_detect_anomaly fun(mode: boolean, ...: any): any
---@field is_anomaly_enabled fun(): boolean
---@field is_anomaly_check_nan_enabled fun(): boolean
---@field once_differentiable fun(backward: function): function
---@field is_recomputing fun(): boolean
---@field checkpoint fun(fn: function, ...: any): any
---@field checkpoint_sequential fun(functions: table, segments: integer, x: any, opts?: table): any
return require "accel.util.lazy"("accel.autograd", {
  gradcheck = "gradcheck", gradgradcheck = "gradcheck", graph = "graph", functional = "functional",
  detect_anomaly = "anomaly", set_detect_anomaly = "anomaly", is_anomaly_enabled = "anomaly",
  is_anomaly_check_nan_enabled = "anomaly", once_differentiable = "once_differentiable", checkpoint = "checkpoint",
  checkpoint_sequential = "checkpoint_sequential", is_recomputing = "recompute",
}, {
  Function = accel.Function, grad = accel.grad, backward = accel.backward, no_grad = accel.no_grad,
  enable_grad = accel.enable_grad, set_grad_enabled = accel.set_grad_enabled, is_grad_enabled = accel.is_grad_enabled,
})
