--- accel.amp: training in 16-bit floats, with PyTorch's names. autocast is accel.autocast. GradScaler prevents
--- underflow of small f16 gradients.
local accel = require "accel"

---@class accel.amp
---@field GradScaler accel.amp.GradScaler
---@field autocast fun(opts?: table, f?: function, ...: any): any
return require "accel.util.lazy"("accel.amp", { GradScaler = "grad_scaler" }, { autocast = accel.autocast })
