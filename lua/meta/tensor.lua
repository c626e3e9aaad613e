---@meta
-- Fields of tensors, and methods that are no ops: for editors and for the reference page core.md. A line
-- "-- ## TITLE" begins a section of the page.

---@class accel.Tensor
---@field shape integer[] extents; prints as (2, 3), equals any list of the same numbers
---@field dtype accel.DType "f32", "i64", "bool", ...; accel.float32, accel.long and PyTorch's other names are these
---@field device accel.Device where the bytes live
---@field ndim integer the number of dims; #t is the extent of the first (t[#t + 1] is nil, so that ipairs ends)
---@field requires_grad boolean whether gradients are recorded; may be assigned on a leaf
---@field grad accel.Tensor the gradient, of a leaf after backward (nil before); may be assigned, nil drops it
---@field is_leaf boolean not made by a recorded operation
---@field grad_fn string? the operation that made it
---@field quant_state accel.QuantState? of a quantised tensor (quantize_4bit and others): what its bytes stand for
---@field T accel.Tensor a matrix with its dims swapped, a view; x:T() is the same, as for the next three
---@field H accel.Tensor the conjugate transpose of a matrix
---@field mT accel.Tensor the last two dims swapped, a view
---@field mH accel.Tensor the conjugate transpose of the last two dims
---@field data accel.Tensor the same bytes without history; assigning gives a leaf the memory of another tensor of its shape
---@field itemsize integer bytes of an element
---@field nbytes integer bytes of all elements
---@field is_cpu boolean whether the bytes are in the CPU's memory
---@field is_cuda boolean whether the bytes are on a CUDA device
---@field is_meta boolean whether there are no bytes
---@field retains_grad boolean whether backward keeps `grad` of this tensor, which is not a leaf
---@field is_quantized boolean whether the bytes stand for other values (quant_state)
---@field layout string "strided"
---@field is_sparse boolean false, as the next six: accel has no such tensors and devices
---@field is_sparse_csr boolean false
---@field is_nested boolean false
---@field is_mps boolean false
---@field is_xla boolean false
---@field is_ipu boolean false
---@field is_maia boolean false
---@field [integer] accel.Tensor a view: t[1] the first of dim 1, t[-1] the last; t[#t + 1] is nil, which ends ipairs
---@field [table] accel.Tensor one entry per dim: a position, a range { first, last, step }, a tensor of indices
---@operator add(accel.Tensor|number): accel.Tensor
---@operator sub(accel.Tensor|number): accel.Tensor
---@operator mul(accel.Tensor|number): accel.Tensor
---@operator div(accel.Tensor|number): accel.Tensor
---@operator mod(accel.Tensor|number): accel.Tensor
---@operator pow(accel.Tensor|number): accel.Tensor
---@operator idiv(accel.Tensor|number): accel.Tensor
---@operator shl(accel.Tensor|integer): accel.Tensor
---@operator shr(accel.Tensor|integer): accel.Tensor
---@operator band(accel.Tensor|integer|boolean): accel.Tensor
---@operator bor(accel.Tensor|integer|boolean): accel.Tensor
---@operator bxor(accel.Tensor|integer|boolean): accel.Tensor
---@operator bnot: accel.Tensor
---@operator unm: accel.Tensor
---@operator len: integer
local Tensor = {}

-- ## Tensors as Lua values

---The element of a tensor of one element, as a Lua number or boolean.
---example: accel.tensor { 1.5 }:item() --> 1.5
---@return number|boolean
function Tensor:item() end

---The elements as nested lists; of rank 0 a number.
---example: accel.ones(1, 2):tolist() --> { { 1, 1 } }
---@return table|number|boolean
function Tensor:tolist() end

---The elements as a string of bytes, in row-major order.
---example: accel.tensor({ 1, 2 }, { dtype = "u8" }):to_bytes() --> "\1\2"
---@return string
function Tensor:to_bytes() end

---The shape, or one extent of it.
---example: accel.ones(2, 3):size(2) --> 3
---@param dim? integer
---@return integer[]|integer
function Tensor:size(dim) end

---The number of dims.
---example: accel.ones(2, 3):dim() --> 2
---@return integer
function Tensor:dim() end

---A new tensor of 0s with this one's dtype and device, and a shape of its own. Options: dtype, device, requires_grad.
---example: accel.ones(2):new_zeros(1, 2) --> { { 0, 0 } }
---@param ... any shape, then options
---@return accel.Tensor
function Tensor:new_zeros(...) end

---A new tensor of 1s with this one's dtype and device, and a shape of its own. Options: dtype, device, requires_grad.
---example: accel.zeros(2):new_ones({ 2 }, { dtype = "i64" }) --> { 1, 1 }
---@param ... any shape, then options
---@return accel.Tensor
function Tensor:new_ones(...) end

---A new tensor without values, with this one's dtype and device, and a shape of its own. Options: dtype, device, requires_grad.
---example: accel.zeros(2):new_empty(3).shape --> { 3 }
---@param ... any shape, then options
---@return accel.Tensor
function Tensor:new_empty(...) end

---A new tensor of one value with this one's dtype and device, and a shape of its own. Options: dtype, device, requires_grad.
---example: accel.zeros(2):new_full({ 2 }, 7) --> { 7, 7 }
---@param shape integer|integer[]
---@param value number|boolean
---@param opts? {dtype: accel.DType?, device: accel.Device?, requires_grad: boolean?}
---@return accel.Tensor
function Tensor:new_full(shape, value, opts) end

---accel.tensor(data) with this tensor's dtype and device. Options: dtype, device, requires_grad.
---example: accel.ones(2, { dtype = "f64" }):new_tensor({ 1, 2 }).dtype --> "f64"
---@param data table|number|boolean|accel.Tensor
---@param opts? {dtype: accel.DType?, device: accel.Device?, requires_grad: boolean?}
---@return accel.Tensor
function Tensor:new_tensor(data, opts) end

---The number of elements.
---example: accel.ones(2, 3):numel() --> 6
---@return integer
function Tensor:numel() end

---As numel.
---example: accel.ones(2, 3):nelement() --> 6
---@return integer
function Tensor:nelement() end

---Elements between neighbours along each dim, or along one.
---example: accel.ones(2, 3):stride() --> { 3, 1 }
---@param dim? integer
---@return integer[]|integer
function Tensor:stride(dim) end

---The first element's place in the storage, from 0.
---example: accel.arange(4):narrow(1, 3, 2):storage_offset() --> 2
---@return integer
function Tensor:storage_offset() end

---Bytes of an element.
---example: accel.ones(2):element_size() --> 4
---@return integer
function Tensor:element_size() end

---The address of the first element.
---example: math.type(accel.ones(1):data_ptr()) --> "integer"
---@return integer
function Tensor:data_ptr() end

---A capsule with the same bytes for another library, or for accel.from_dlpack: no copy, strides kept. It is good for one
---taker. A tensor that requires gradients has to be detached first.
---example: local x = accel.ones(2) accel.from_dlpack(x:to_dlpack()):mul_(3) return x --> { 3, 3 }
---@return accel.DLPack
function Tensor:to_dlpack() end

---An array in the bytes of a quantised tensor, as a view: "values" (codes), "absmax" (a magnitude a block), and where absmax is quantised
---itself "nested_absmax" and "offset"; nil where there is none.
---example: accel.quantize_4bit(accel.full({ 64 }, 3.0), "nf4"):quant_part "absmax" --> { 3 }
---@param name "values"|"absmax"|"nested_absmax"|"offset"
---@return accel.Tensor?
function Tensor:quant_part(name) end

---Says that the bytes of this tensor, u8 over the whole of its memory, stand for values as those of a quantised tensor do: for memory of
---another kind (host memory beside a device, a file) that is to hold it.
---example: local q = accel.quantize_int8(accel.ones(2, 2)) local t = accel.zeros(q:numel(), { dtype = "u8" })
---  return t:quantized_like_(q).quant_state.shape --> { 2, 2 }
---@param q accel.Tensor quantised
---@return accel.Tensor self
function Tensor:quantized_like_(q) end

---Whether the elements lie in row-major order without gaps.
---example: accel.ones(2, 3):t():is_contiguous() --> false
---@return boolean
function Tensor:is_contiguous() end

---Whether the dtype holds floating-point numbers.
---example: accel.arange(2):is_floating_point() --> false
---@return boolean
function Tensor:is_floating_point() end

---Whether the dtype holds complex numbers.
---example: accel.ones(2, { dtype = "c64" }):is_complex() --> true
---@return boolean
function Tensor:is_complex() end

---See accel.allclose.
---example: accel.ones(2):allclose(accel.ones(2) + 1e-9) --> true
---@param other accel.Tensor
---@param ... any
---@return boolean
function Tensor:allclose(other, ...) end

---See accel.equal.
---example: accel.ones(2):equal(accel.ones(3)) --> false
---@param other accel.Tensor
---@return boolean
function Tensor:equal(other) end

---Gives the memory back now instead of when the collector comes; the tensor may not be used any more.
---example: accel.ones(2):release() -->
function Tensor:release() end

-- ## Conversions

---As f32. x:to(dtype, device or tensor) converts to any; the same tensor comes back when nothing changes.
---example: accel.arange(2):float().dtype --> "f32"
---@return accel.Tensor
function Tensor:float() end

---As f64.
---example: accel.arange(2):double().dtype --> "f64"
---@return accel.Tensor
function Tensor:double() end

---As f16.
---example: accel.ones(2):half().dtype --> "f16"
---@return accel.Tensor
function Tensor:half() end

---As bf16.
---example: accel.ones(2):bfloat16().dtype --> "bf16"
---@return accel.Tensor
function Tensor:bfloat16() end

---As c64.
---example: accel.ones(2):cfloat().dtype --> "c64"
---@return accel.Tensor
function Tensor:cfloat() end

---As c128.
---example: accel.ones(2):cdouble().dtype --> "c128"
---@return accel.Tensor
function Tensor:cdouble() end

---See accel.stft.
---example: accel.ones(16):stft(8, { return_complex = true }).shape --> { 5, 9 }
---@param n_fft integer
---@param hop_length? integer
---@param win_length? integer
---@param window? accel.Tensor
---@param opts? {center: boolean?, pad_mode: string?, normalized: boolean?, onesided: boolean?, return_complex: boolean?}
---@return accel.Tensor
function Tensor:stft(n_fft, hop_length, win_length, window, opts) end

---See accel.istft.
---example: accel.ones(16):stft(8, { return_complex = true }):istft(8).shape --> { 16 }
---@param n_fft integer
---@param hop_length? integer
---@param win_length? integer
---@param window? accel.Tensor
---@param opts? {center: boolean?, normalized: boolean?, onesided: boolean?, length: integer?, return_complex: boolean?}
---@return accel.Tensor
function Tensor:istft(n_fft, hop_length, win_length, window, opts) end

---As i64, cut towards zero.
---example: accel.tensor { 1.7, -1.7 }:long() --> { 1, -1 }
---@return accel.Tensor
function Tensor:long() end

---As i32.
---example: accel.ones(2):int().dtype --> "i32"
---@return accel.Tensor
function Tensor:int() end

---As bool: what is not 0 is true.
---example: accel.tensor { 0, 2 }:bool() --> { false, true }
---@return accel.Tensor
function Tensor:bool() end

---On the CPU.
---example: accel.ones(1):cpu().device --> "cpu"
---@return accel.Tensor
function Tensor:cpu() end

-- ## Gradients of tensors

---Gradients of this tensor, added to the `grad` of every leaf it depends on. Options: retain_graph, create_graph,
---inputs.
---example: local x = accel.tensor({ 3.0 }, { requires_grad = true }) local y = x * x y:backward() return x.grad --> { 6 }
---@param gradient? accel.Tensor needed unless the tensor has one element
---@param opts? table
function Tensor:backward(gradient, opts) end

---The same bytes without history.
---example: accel.ones(1, { requires_grad = true }):detach().requires_grad --> false
---@return accel.Tensor
function Tensor:detach() end

---Takes the tensor out of its graph, in place: a leaf stops learning.
---example: local x = accel.ones(1, { requires_grad = true }) * 2 return x:detach_().requires_grad --> false
---@return accel.Tensor
function Tensor:detach_() end

---All windows of `size` neighbours along dim, each `step` after the one before it, as a view with a last dim of the elements.
---example: accel.arange(5):unfold(1, 3, 2) --> { { 0, 1, 2 }, { 2, 3, 4 } }
---@param dim integer
---@param size integer
---@param step integer
---@return accel.Tensor
function Tensor:unfold(dim, size, step) end

---Makes a leaf learn (default) or not; returns it.
---example: accel.ones(1):requires_grad_().requires_grad --> true
---@param on? boolean
---@return accel.Tensor
function Tensor:requires_grad_(on) end

---Keeps `grad` of a tensor that is not a leaf, too.
---example: local x = accel.ones(1, { requires_grad = true }) local y = x * 2 y:retain_grad() y:sum():backward()
---  return y.grad --> { 1 }
function Tensor:retain_grad() end

---fn(gradient) when the gradient of this tensor is known; a tensor that it returns takes its place. Returns a handle
---with remove().
---example: local x = accel.ones(1, { requires_grad = true }) x:register_hook(function(g) return g * 5 end)
---  x:sum():backward() return x.grad --> { 5 }
---@param fn fun(grad: accel.Tensor): accel.Tensor?
---@return {remove: fun(self)}
function Tensor:register_hook(fn) end

---Gradients of this leaf are put into place from now on, a float tensor of its shape (a part of a bucket): the first
---after `grad = nil` overwrites, others are added; `grad` is place while it is filled. nil ends it. Returns the tensor.
---example: local x, flat = accel.ones(2, { requires_grad = true }), accel.zeros(4) x:set_grad_slot_(flat:narrow(1, 3, 2))
---  x:sum():backward() return flat --> { 0, 0, 1, 1 }
---@param place accel.Tensor?
---@return accel.Tensor
function Tensor:set_grad_slot_(place) end

---fn(tensor) after backward has added to the `grad` of this leaf. Returns a handle with remove().
---example: local x, n = accel.ones(1, { requires_grad = true }), 0 x:register_post_accumulate_grad_hook(function()
---  n = n + 1 end) x:sum():backward() return n --> 1
---@param fn fun(tensor: accel.Tensor)
---@return {remove: fun(self)}
function Tensor:register_post_accumulate_grad_hook(fn) end
