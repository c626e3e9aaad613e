---@meta
-- Functions of accel that are no ops, for editors and for the reference page core.md; the tests run the
-- examples and find names that are missing here. A line "-- ## TITLE" begins a section of the page.

---@class accel
local accel = {}

---@alias accel.Device "cpu"|"cuda"|"meta"|string "cuda:1" is the second GPU
---@class accel.FactoryOptions: {dtype: accel.DType?, device: accel.Device?, requires_grad: boolean?}
---@class accel.RandomOptions: accel.FactoryOptions, {generator: accel.Generator?}

-- ## Making tensors

---A tensor of Lua data: a number, a boolean, or lists of them, nested by dim. Without dtype it is i64 when all
---numbers are integers, bool when all are booleans, f32 otherwise: write 1.0 where a float is meant.
---example: accel.tensor { { 1, 2 }, { 3, 4 } }.dtype --> "i64"
---example: accel.tensor({ 1, 2 }, { dtype = "f32" }) / 4 --> { 0.25, 0.5 }
---@param data number|boolean|table
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function accel.tensor(data, opts) end

---Zeros of a shape, f32 unless dtype says otherwise. Here and below a shape is written out or given as a list.
---example: accel.zeros(2, 3).shape --> { 2, 3 }
---example: accel.zeros({ 2 }, { dtype = "i64" }) --> { 0, 0 }
---@param ... integer|integer[]|accel.FactoryOptions
---@return accel.Tensor
function accel.zeros(...) end

---Ones of a shape, f32 unless dtype says otherwise.
---example: accel.ones(2) --> { 1, 1 }
---@param ... integer|integer[]|accel.FactoryOptions
---@return accel.Tensor
function accel.ones(...) end

---A tensor whose contents are undefined until something is written.
---example: accel.empty(2, 3):zero_() --> { { 0, 0, 0 }, { 0, 0, 0 } }
---@param ... integer|integer[]|accel.FactoryOptions
---@return accel.Tensor
function accel.empty(...) end

---A tensor filled with one value; the value decides the dtype as in accel.tensor.
---example: accel.full({ 2 }, 0.5) --> { 0.5, 0.5 }
---@param shape integer|integer[]
---@param value number|boolean
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function accel.full(shape, value, opts) end

---A tensor of x's shape, dtype and device, with undefined contents.
---example: accel.empty_like(accel.ones(2, 3)).shape --> { 2, 3 }
---@param x accel.Tensor
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function accel.empty_like(x, opts) end

---arange([start = 0,] stop [, step = 1]): start, start + step, ... before stop; i64 when all are integers.
---example: accel.arange(3) --> { 0, 1, 2 }
---example: accel.arange(1, 2, 0.5) --> { 1, 1.5 }
---@param ... number|accel.FactoryOptions
---@return accel.Tensor
function accel.arange(...) end

---n numbers at equal distances, from start to stop inclusive.
---example: accel.linspace(0, 1, 3) --> { 0, 0.5, 1 }
---@param start number
---@param stop number
---@param n integer
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function accel.linspace(start, stop, n, opts) end

---The identity matrix n x n, or n x m.
---example: accel.eye(2) --> { { 1, 0 }, { 0, 1 } }
---@param n integer
---@param m? integer
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function accel.eye(n, m, opts) end

---A tensor of the elements in a string of bytes, in this machine's byte order; 1-d without a shape.
---example: accel.from_bytes("\1\2", "u8") --> { 1, 2 }
---@param bytes string
---@param dtype accel.DType
---@param shape? integer[]
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function accel.from_bytes(bytes, dtype, shape, opts) end

---The elements as a string of bytes, in row-major order.
---example: #accel.to_bytes(accel.ones(3)) --> 12
---@param x accel.Tensor
---@return string
function accel.to_bytes(x) end

---Whether x is a tensor.
---example: accel.is_tensor(accel.ones(1)), accel.is_tensor(1) --> true, false
---@param x any
---@return boolean
function accel.is_tensor(x) end

---@class accel.DLPack

---A tensor of the bytes in a DLPack capsule, without a copy: what to_dlpack made, or another library through accel/lua.h.
---Strides are kept; the memory goes back to its owner when the last tensor over it is gone.
---example: local x = accel.arange(3) return accel.from_dlpack(x:to_dlpack()), accel.from_dlpack(x:to_dlpack()):data_ptr() ==
---  x:data_ptr() --> { 0, 1, 2 }, true
---@param capsule accel.DLPack
---@return accel.Tensor
function accel.from_dlpack(capsule) end

---A quantised tensor without contents, to be filled through its arrays (t:quant_part): what readers of files need.
---blocksize: 64 of 4 bits, 256 of 8; dtype = "f32", nested = false, device.
---example: accel.empty_quantized("nf4", { 8, 64 }, { dtype = "bf16" }):quant_part("values").shape --> { 256 }
---@param quant_type "nf4"|"fp4"|"int8"|"dynamic"|"udynamic"
---@param shape integer[]
---@param opts? {dtype: string?, blocksize: integer?, nested: boolean?, device: string?}
---@return accel.Tensor
function accel.empty_quantized(quant_type, shape, opts) end

---The values that the codes of a type stand for: 16 or 256, times the block's magnitude.
---example: accel.quant_map("nf4")[{ { 1, 2 } }] --> { -1, -0.6961928 }
---@param quant_type "nf4"|"fp4"|"dynamic"|"udynamic"
---@return accel.Tensor f32
function accel.quant_map(quant_type) end

-- ## Signals

---A Hann window, half a cosine above 0.
---example: accel.hann_window(4) --> { 0, 0.5, 1, 0.5 }
---@param window_length integer
---@param periodic? boolean
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function accel.hann_window(window_length, periodic, opts) end

---A Hamming window.
---example: accel.hamming_window(4) --> { 0.08, 0.54, 1, 0.54 }
---@param window_length integer
---@param periodic? boolean
---@param alpha? number
---@param beta? number
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function accel.hamming_window(window_length, periodic, alpha, beta, opts) end

---A Blackman window.
---example: accel.blackman_window(1) --> { 1 }
---@param window_length integer
---@param periodic? boolean
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function accel.blackman_window(window_length, periodic, opts) end

---A Bartlett window, a triangle.
---example: accel.bartlett_window(4) --> { 0, 0.5, 1, 0.5 }
---@param window_length integer
---@param periodic? boolean
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function accel.bartlett_window(window_length, periodic, opts) end

---A Kaiser window.
---example: accel.kaiser_window(3, false, 0) --> { 1, 1, 1 }
---@param window_length integer
---@param periodic? boolean
---@param beta? number
---@param opts? accel.FactoryOptions
---@return accel.Tensor
function accel.kaiser_window(window_length, periodic, beta, opts) end

---Transforms of the frames of a signal, (batch, samples) to (batch, frequencies, frames). Options: hop_length = n_fft // 4, win_length,
---window (ones), center = true, pad_mode = "reflect", normalized = false, onesided, return_complex.
---example: accel.stft(accel.ones(16), 8, { return_complex = true }).shape --> { 5, 9 }
---@param input accel.Tensor
---@param n_fft integer
---@param hop_length? integer
---@param win_length? integer
---@param window? accel.Tensor
---@param opts? {center: boolean?, pad_mode: string?, normalized: boolean?, onesided: boolean?, return_complex: boolean?}
---@return accel.Tensor
function accel.stft(input, n_fft, hop_length, win_length, window, opts) end

---The signal of an stft. Options: hop_length = n_fft // 4, win_length, window (ones), center = true, normalized = false, onesided, length,
---return_complex = false.
---example: accel.istft(accel.stft(accel.ones(16), 8, { return_complex = true }), 8).shape --> { 16 }
---@param input accel.Tensor
---@param n_fft integer
---@param hop_length? integer
---@param win_length? integer
---@param window? accel.Tensor
---@param opts? {center: boolean?, normalized: boolean?, onesided: boolean?, length: integer?, return_complex: boolean?}
---@return accel.Tensor
function accel.istft(input, n_fft, hop_length, win_length, window, opts) end

-- ## Comparing

---Whether |x - other| <= atol + rtol * |other| everywhere; rtol = 1e-5, atol = 1e-8, equal_nan = false.
---example: accel.allclose(accel.tensor { 1.0 }, accel.tensor { 1.0000001 }) --> true
---@param x accel.Tensor
---@param other accel.Tensor
---@param ... any rtol, atol, equal_nan, or a table of them
---@return boolean
function accel.allclose(x, other, ...) end

---Whether both have the same shape and equal elements. (a == b asks whether they are the same tensor.)
---example: accel.equal(accel.ones(2), accel.tensor { 1, 1 }) --> true
---@param x accel.Tensor
---@param other accel.Tensor
---@return boolean
function accel.equal(x, other) end

-- ## Random numbers

---Seeds the generator that everything draws from unless it is given one of its own. Under accel-run math.random is
---seeded by it too, and, before any call, by --seed; an interpreter that accel was loaded into keeps its own.
---example: accel.manual_seed(1) local a = accel.rand(2) accel.manual_seed(1) return accel.equal(a, accel.rand(2))
---  --> true
---@param seed integer
function accel.manual_seed(seed) end

---Uniform numbers in [0, 1).
---example: accel.rand(2, 3):lt(1):all() --> true
---@param ... integer|integer[]|accel.RandomOptions
---@return accel.Tensor
function accel.rand(...) end

---Standard normal numbers.
---example: accel.randn(2, 3).shape --> { 2, 3 }
---@param ... integer|integer[]|accel.RandomOptions
---@return accel.Tensor
function accel.randn(...) end

---rand in the shape, dtype and device of x.
---example: accel.rand_like(accel.ones(2, 3)).shape --> { 2, 3 }
---@param x accel.Tensor
---@param opts? accel.RandomOptions
---@return accel.Tensor
function accel.rand_like(x, opts) end

---randn in the shape, dtype and device of x.
---example: accel.randn_like(accel.ones(2, 3)).shape --> { 2, 3 }
---@param x accel.Tensor
---@param opts? accel.RandomOptions
---@return accel.Tensor
function accel.randn_like(x, opts) end

---randint([low = 0,] high, shape): integers from low to high - 1.
---example: accel.randint(5, 6, { 2 }) --> { 5, 5 }
---@param ... integer|integer[]|accel.RandomOptions
---@return accel.Tensor
function accel.randint(...) end

---The numbers 0 .. n - 1 in random order: an index tensor.
---example: accel.randperm(3):sum() --> 3
---@param n integer
---@param opts? accel.RandomOptions
---@return accel.Tensor
function accel.randperm(n, opts) end

---A generator of its own, for `generator =`: Generator(seed) or Generator { seed =, stream = }. Methods:
---manual_seed, initial_seed, get_state, set_state.
---example: local g = accel.Generator(3) accel.rand(2, { generator = g }) return g:initial_seed() --> 3
---@param seed integer|{seed: integer?, stream: integer?}
---@return accel.Generator
function accel.Generator(seed) end

---From here on, row 1 of a batch is row row0 (from 0) of the global batch, and random calls of this step count from the
---first again: dropout in a micro-batch draws what the same rows would get in the whole batch, however that is cut into
---micro-batches and spread over ranks. Numbers that belong to no row (accel.randn and its like) go on: no two calls of a
---step draw the same.
---example: local x, f = accel.ones(4), accel.nn.functional.dropout accel.micro_batch(0) local all = f(x, 0.5)
---  accel.micro_batch(2) return accel.equal(f(x:narrow(1, 3, 2), 0.5), all:narrow(1, 3, 2)) --> true
---@param row0 integer
function accel.micro_batch(row0) end

---The state of the common generator as a plain table of integers, for checkpoints. Under accel-run its list `math` is
---the state of math.random.
---example: accel.manual_seed(7) return accel.get_rng_state().seed --> 7
---@return table<string, integer|integer[]>
function accel.get_rng_state() end

---Takes a state over; what is drawn next is what would have been drawn after get_rng_state.
---example: local s = accel.get_rng_state() local a = accel.rand(2) accel.set_rng_state(s) return accel.equal(a,
---  accel.rand(2)) --> true
---@param state table<string, integer|integer[]>
function accel.set_rng_state(state) end

-- ## Gradients

---Gradients of outputs, added to the `grad` of every leaf. For one output there is t:backward(). Options:
---retain_graph, create_graph, inputs (only these get gradients), grad_tensors.
---example: local x = accel.ones(2, { requires_grad = true }) accel.backward({ x:sum(), (x * 2):sum() }) return
---  x.grad --> { 3, 3 }
---@param outputs accel.Tensor|accel.Tensor[]
---@param gradients? accel.Tensor|accel.Tensor[] of the outputs; ones for numbers
---@param opts? table
function accel.backward(outputs, gradients, opts) end

---The gradients of outputs by inputs, returned instead of stored: one tensor, or a list for a list of inputs.
---Options: grad_outputs, retain_graph, create_graph, allow_unused.
---example: local x = accel.tensor({ 3.0 }, { requires_grad = true }) return accel.grad((x * x):sum(), x) --> { 6 }
---@param outputs accel.Tensor|accel.Tensor[]
---@param inputs accel.Tensor
---@param opts? table
---@return accel.Tensor
---@overload fun(outputs: accel.Tensor|accel.Tensor[], inputs: accel.Tensor[], opts?: table): accel.Tensor[]
function accel.grad(outputs, inputs, opts) end

---x without history, a view of the same bytes.
---example: accel.detach(accel.ones(1, { requires_grad = true })).requires_grad --> false
---@param x accel.Tensor
---@return accel.Tensor
function accel.detach(x) end

---Takes x out of its graph, in place: see Tensor:detach_.
---example: local x = accel.ones(1, { requires_grad = true }) * 2 return accel.detach_(x).requires_grad --> false
---@param x accel.Tensor
---@return accel.Tensor
function accel.detach_(x) end

---Nothing is recorded until the block ends: `local _ <close> = accel.no_grad()`, or accel.no_grad(f, ...) for the
---time of a call, whose results it returns.
---example: accel.no_grad(function() return accel.is_grad_enabled() end) --> false
---@param f? function
---@param ... any
function accel.no_grad(f, ...) end

---Recording is on again until the block ends; used as no_grad.
---example: local _ <close> = accel.no_grad() return accel.enable_grad(accel.is_grad_enabled) --> true
---@param f? function
---@param ... any
function accel.enable_grad(f, ...) end

---no_grad or enable_grad, as `on` says; used as these.
---example: accel.set_grad_enabled(false, accel.is_grad_enabled) --> false
---@param on boolean
---@param f? function
---@param ... any
function accel.set_grad_enabled(on, f, ...) end

---Whether operations are recorded.
---example: accel.is_grad_enabled() --> true
---@return boolean
function accel.is_grad_enabled() end

---For hooks: fn() runs once the backward that is running (the outermost one, where they are nested) has done its work,
---before it returns, without recording; not after one that failed. An error outside of a backward.
---example: local x, log = accel.ones(1, { requires_grad = true }), {} x:register_hook(function() accel.queue_callback(
---  function() log[1] = x.grad:item() end) end) x:backward() return log[1] --> 1
---@param fn function
function accel.queue_callback(fn) end

---fn(...), whose results it returns, without keeping what fn's operations save for their gradients: backward calls fn
---again when it needs that. Random numbers, autocast and the default device are as they were, so that gradients come out
---the same to the last bit; fn must do the same each time. Options stand in a table at the end.
---example: local x = accel.tensor({ 2.0 }, { requires_grad = true })
---  local function f(t) return t:exp():exp() end
---  local a = accel.grad(f(x), x)
---  return accel.equal(a, accel.grad(accel.checkpoint(f, x), x)) --> true
---@param fn function|accel.nn.Module
---@param ... any its arguments, then options
---  preserve_rng_state boolean = true: the second run draws the random numbers of the first
---  determinism_check string = "default": compare shapes and dtypes of what is saved; "none": do not
---  early_stop boolean = true: the second run is left as soon as all that is needed is there
---  use_reentrant boolean = false: only false is taken
---@return any ...
function accel.checkpoint(fn, ...) end

---A function whose chains of elementwise operations become one pass over memory each, or a model, which is changed in place and
---returned. On the CPU, for results of 131072 elements and more in f32, bf16 and f16; everything else runs as it does without. Results,
---gradients and random numbers are equal, bit for bit; nothing is traced.
---
---A tensor that the function stores somewhere without returning it: where its first call does so, all that it makes is computed; one that
---only a later call stores cannot be read, which raises.
---
---example: local f = accel.compile(function(x, y) return ((x + y) * 0.5 - x):abs() end)
---  return f(accel.ones(3), accel.zeros(3)) --> { 0.5, 0.5, 0.5 }
---@param fn function|accel.nn.Module
---@param opts? table
---  backend string = "inductor": "eager" and "aot_eager" run fn as it is; others of PyTorch's are taken as inductor, with a warning
---  mode string: "default", "reduce-overhead", "max-autotune"
---  fullgraph boolean = false: true of every function
---  dynamic boolean: true of every function
---  options table: without effect, which a warning says
---  disable boolean = false: run fn as it is
---@return function|accel.nn.Module
function accel.compile(fn, opts) end

---A training step - forward, backward, optimizer - that a GPU records and replays: called as fn is, with the same results, bit for bit, as long as
---fn does the same every time. The first two calls run fn, the third records it; from then on a call copies its tensors into those that were
---recorded and starts all kernels in one go. Random numbers, learning rates, step counts and loss scales move on as without it. Step schedulers
---outside; values that fn decides by on the host are those of the recorded call.
---
---Where a step cannot be recorded (a CPU device, item() inside, tensors of the CPU copied inside, gradients that accumulate over calls, ranks that
---communicate, offloaded weights), fn runs as it is from then on; one warning, and `reason`, say why.
---
---example: local w = accel.ones(2, { requires_grad = true }) local opt = accel.optim.SGD({ w }, { lr = 0.5 })
---  local step = accel.graph(function(x) local loss = (w * x):sum() loss:backward() opt:step() opt:zero_grad() return loss end)
---  return step(accel.ones(2)) --> 2
---@param fn function
---@param opts? table
---  warmup integer = 2: calls that run fn as it is first, at least 2
---  shapes integer = 8: sets of shapes that are recorded; with more of them fn runs as it is
---@return accel.Graph
function accel.graph(fn, opts) end

---The output of a chain of functions or modules, cut into `segments` pieces of which all but the last are checkpoints.
---Options: those of accel.checkpoint.
---example: local net = accel.nn.Sequential(accel.nn.Linear(3, 3), accel.nn.Tanh(), accel.nn.Linear(3, 2))
---  local x = accel.ones(4, 3)
---  return accel.equal(accel.checkpoint_sequential(net, 2, x), net(x)) --> true
---@param functions accel.nn.Sequential|function[]
---@param segments integer
---@param x any input of the first
---@param opts? table
function accel.checkpoint_sequential(functions, segments, x, opts) end

---@class accel.Function: {name: string, apply: function}
---@overload fun(...: any): any

---A function with a gradient of its own, also accel.autograd.Function. forward(ctx, ...) runs without gradients and may
---ctx:save_for_backward tensors; backward(ctx, ...) gets one gradient per result, reads ctx:saved_tensors(), and returns
---one per argument. With setup_context(ctx, inputs, output) forward gets no ctx, which is filled afterwards. ctx has
---needs_input_grad (a list), fields of the script's own, and ctx:mark_dirty(t, ...) for arguments that forward writes and
---returns, ctx:mark_non_differentiable(t, ...) for results without gradient, ctx:set_materialize_grads(false) for nil
---instead of zeros where no gradient came. Gradients that broadcasting made larger than their argument are summed to its
---shape, and nil after the last is nothing. backward's operations record where a second derivative is wanted; see
---accel.autograd.once_differentiable. What is made is called, or its field apply.
---example: local Square = accel.Function {
---    name = "Square",
---    forward = function(ctx, x)
---      ctx:save_for_backward(x)
---      return x * x
---    end,
---    backward = function(ctx, g) return g * 2 * ctx:saved_tensors() end,
---  }
---  local x = accel.tensor({ 3.0 }, { requires_grad = true })
---  Square(x):backward()
---  return x.grad --> { 6 }
---@param definition {name: string?, forward: function, backward: function, setup_context: function?}
---@return accel.Function
function accel.Function(definition) end

-- ## Precision

---Matrix products and their like run in a 16-bit dtype until the block ends, `local _ <close> = accel.autocast {
---dtype = "bf16" }`, or while f runs: accel.autocast(options, f, ...). The reference of each op says how it behaves.
---Parameters keep their dtype, and so do their gradients. Do not change a parameter in place between forward and backward: on some
---devices backward reads it again, as it does without autocast.
---example: local a = accel.ones(2, 2) return accel.autocast({ dtype = "bf16" }, function() return
---  a:matmul(a).dtype end) --> "bf16"
---@param opts? {dtype: accel.DType?, device: accel.Device?, enabled: boolean?}
---@param f? function
---@param ... any
function accel.autocast(opts, f, ...) end

---Whether autocast is on.
---example: accel.is_autocast_enabled() --> false
---@return boolean
function accel.is_autocast_enabled() end

---The dtype that autocast uses unless it is told another.
---example: accel.get_autocast_dtype() --> "bf16"
---@return accel.DType
function accel.get_autocast_dtype() end
