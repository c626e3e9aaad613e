---@meta
-- Functions of accel around files, memory, devices and steps: the second part of core.lua, for editors and for
-- the reference page core.md. A line "-- ## TITLE" begins a section of the page.

---@class accel
local accel = {}

-- ## Files

---Writes tensors into a safetensors file, which is there whole or as it was before. Names are strings: a state
---dict, or any flat table of tensors; metadata are strings by name. Nested tables have to be flattened first.
---
---Under a name that ends with .pt, .pth, .bin, .ckpt or .pkl, or with { format = "torch" } for the metadata, the file has PyTorch's
---format: any tree of plain data and tensors, which torch.load reads with weights_only = True. { format = "dcp" } writes a folder that
---torch.distributed.checkpoint.load reads, { format = "safetensors" } safetensors under any name.
---Misuse raises. A file that fails is nil, message, code, as io.open's: scripts write assert(accel.save(...)), or the failure goes
---unseen; accelerator:save and save_model raise.
---example: accel.save("/nowhere/x.safetensors", { w = accel.ones(2) }) == nil --> true
---@param path string
---@param tensors table<string, accel.Tensor>|any any plain data and tensors in PyTorch's formats
---@param metadata? table<string, string>
---@param set? accel.util.writer.Set the file belongs to this set of files, and path is its name there
---@return boolean? ok
---@return string? message
---@return string? code
function accel.save(path, tensors, metadata, set) end

---The tensors of a safetensors file by name, in the order of the file; or nil, message, code.
---
---Tensors of a safetensors file whose type accel has no dtype for are widened if all their values fit: U64 becomes i64, F8_E8M0 and F4
---become f32. Other types (C64, F6) are left out, and one warning names those tensors.
---
---A file of PyTorch's torch.save (.pt, .pth, .bin) is read as data: nothing in it is run, and one that needs more than tensors
---and plain values is refused by name. It gives what was saved: dicts as tables in the file's order, lists, tuples and sets as
---arrays, None as accel.json.null in them and as nothing in a dict, integers beyond 64 bits as strings of digits; tensors that
---share memory in the file share it here.
---
---A folder is read when it is a checkpoint of torch.distributed.checkpoint: with .metadata and .distcp files it gives what was
---saved, with sharded or whole safetensors the tensors by name; tensors that several ranks saved in parts are whole.
---example: select(3, accel.load "/nowhere/x.safetensors") --> "not_found"
---@param path string
---@param opts? accel.Device|{device: accel.Device?, map_location: accel.Device?} map_location is PyTorch's name of device
---@return table<string, accel.Tensor>? tensors the file's metadata: accel.open_safetensors(path):metadata()
---@return string? message
---@return string? code
function accel.load(path, opts) end

---A safetensors file of which tensors are read one at a time: file:keys(), file:get(name), file:info(name) (dtype
---and shape, without reading the bytes), file:read(name, tensor) (into a contiguous tensor of the host with the same
---dtype and number of elements), file:verify() (every checksum that the file has), file:metadata(), file:close(). Or nil,
---message, code.
---example: accel.open_safetensors "/nowhere/x.safetensors" == nil --> true
---@param path string
---@return table? file
---@return string? message
---@return string? code
function accel.open_safetensors(path) end

---The tensors of several safetensors files that hold parts of them, as torch's HuggingFaceStorageWriter saves them; where is a
---folder or a list of paths. files:keys(), files:info(name) (dtype, shape, chunks), files:get(name), files:get(name, start, size)
---(the box of size elements from position start on, of which only the bytes are read), files:close(). Or nil, message, code.
---example: accel.open_sharded "/nowhere" == nil --> true
---@param where string|string[]
---@return table? files
---@return string? message
---@return string? code
function accel.open_sharded(where) end

---A file of bare token ids: file:len(), file:batch(offsets, length) -> i64 [#offsets, length], offsets in tokens
---from 0. accel.data.TokenFile makes a data set of one. Or nil, message, code.
---example: accel.open_tokens "/nowhere/train.bin" == nil --> true
---@param path string
---@param opts? {dtype: accel.DType?, header: integer?} "u16"; bytes to skip at the start
---@return table? file
---@return string? message
---@return string? code
function accel.open_tokens(path, opts) end

---Writes a file that is there whole, or as it was before. true; or nil, message, code.
---example: accel.write_file("/nowhere/x", "bytes") == nil --> true
---@param path string
---@param bytes string
---@param opts? {private: boolean?} private: only this user may read the file (mode 0600)
---@return boolean? ok
---@return string? message
---@return string? code
function accel.write_file(path, bytes, opts) end

---Makes a folder and those above it; one that exists is fine. true; or nil, message, code.
---example: accel.makedirs "/" --> true
---@param path string
---@return boolean? ok
---@return string? message
---@return string? code
function accel.makedirs(path) end

---Makes a new folder that only this user can read, named prefix and six characters. Its path; or nil, message, code.
---example: select(3, accel.mkdtemp "/nowhere/x") --> "not_found"
---@param prefix string
---@return string? path
---@return string? message
---@return string? code
function accel.mkdtemp(prefix) end

---The names of what is in a folder, sorted, without "." and ".."; or nil, message, code.
---example: accel.listdir "/nowhere" == nil --> true
---@param path string
---@return string[]? names
---@return string? message
---@return string? code
function accel.listdir(path) end

accel.json = {}

---The value of a JSON text: objects as tables by name, without their nulls, arrays as lists, with accel.json.null
---in place of null; nulls = true keeps them in objects too. ordered = true makes tables of accel.util.ordered: pairs,
---accel.json.encode and chat templates visit their members in the order of the text. records = true applies the rules of data
---sets: integers of more than 64 bits are text, and numbers beyond a double infinity. A malformed text is nil, message, code.
---example: accel.json.decode '{"a": [1, 2.5]}'.a --> { 1, 2.5 }
---@param text string
---@param opts? {wide_integers: boolean?, nulls: boolean?, ordered: boolean?, records: boolean?}
---@return any value
---@return string? message
---@return string? code
function accel.json.decode(text, opts) end

---A value as JSON, keys sorted; {} is an object, accel.json.array {} an array. NaN and infinities raise. Tables of
---accel.util.ordered keep their order.
---example: accel.json.encode { b = { 1, 2 }, a = true } --> '{"a":true,"b":[1,2]}'
---@param value any
---@param opts? {pretty: boolean?}
---@return string
function accel.json.encode(value, opts) end

---Marks a table as an array.
---example: accel.json.encode(accel.json.array {}) --> "[]"
---@param list table
---@return table list
function accel.json.array(list) end

accel.yaml = {}

---The document of a YAML text, in tables that keep what was written: { kind = "scalar", text =, style = "plain", "quoted" or
---"block" }, { kind = "list", ... } or { kind = "map", { key =, line =, column =, value = }, ... }, each with line and column.
---What is malformed, over the bounds (1 MiB, 64 levels, 100000 nodes) or has keys twice is nil, message, "parse".
---example: accel.yaml.decode("a: 010")[1].value.text --> "010"
---@param text string
---@param opts? {max_nodes: integer?}
---@return table? node
---@return string? message
---@return string? code
function accel.yaml.decode(text, opts) end

---Whether YAML can be read here: the build and the machine have libyaml.
---example: type(accel.yaml.available()) --> "boolean"
---@return boolean
---@return string? message
function accel.yaml.available() end

---A value as bytes, for other processes and machines: nil, booleans, integers and floats (kept apart, every bit),
---strings, tables with what they share and cycles, tensors (dtype, shape and values), ordered tables, arrays and
---null of accel.json. Equal data gives equal bytes. Anything else raises and is named by its way, `.a.b[3]`. With
---tensor the bytes are a u8 tensor, not a string. Tables nest up to 200 deep; max_bytes is 2^30 if not given.
---example: accel.decode(accel.encode { 1, 2.5, x = accel.ones(2) }) --> { 1, 2.5, x = { 1, 1 } }
---@param value any
---@param opts? {tensor: boolean?, max_bytes: integer?}
---@return string|accel.Tensor bytes
function accel.encode(value, opts) end

---The value of a string, or u8 tensor, that accel.encode made, its tensors on the device given. The bytes may come from
---anybody: what was not made so is nil, message, "parse".
---example: select(3, accel.decode "hello") --> "parse"
---@param bytes string|accel.Tensor
---@param opts? {device: accel.Device?, max_bytes: integer?}
---@return any value
---@return string? message
---@return string? code
function accel.decode(bytes, opts) end

-- ## Memory

---What is born inside is released when the block ends, `local s <close> = accel.scope()`, save what s:keep(t, ...)
---was given; or accel.scope(f, ...), which runs f(s, ...) and keeps its results. For loops over big temporaries.
---example: accel.scope(function(s) return accel.ones(2) + 1 end) --> { 2, 2 }
---@param f? function
---@param ... any
function accel.scope(f, ...) end

---Runs f(...) as if no scope were open: for what has to outlive the caller's.
---example: accel.unscoped(function() return accel.ones(1) end) --> { 1 }
---@param f function
---@param ... any
function accel.unscoped(f, ...) end

---The number of tensors that Lua holds.
---example: accel.live() >= 0 --> true
---@return integer
function accel.live() end

---Memory of a device, in bytes and counts: live_bytes, peak_bytes, reserved_bytes, limit_bytes, largest_free_bytes, ...;
---fragmentation is 0 where what is free is one piece and comes near 1 where it is dust.
---example: accel.mem_stats().live_bytes >= 0 --> true
---@param device? accel.Device
---@return table<string, number>
function accel.mem_stats(device) end

---Lets peak_bytes start again from what is live.
---example: accel.reset_peak_memory() return accel.mem_stats().peak_bytes == accel.mem_stats().live_bytes --> true
---@param device? accel.Device
function accel.reset_peak_memory(device) end

---Returns memory that is kept for reuse to the system.
---example: accel.empty_cache() -->
---@param device? accel.Device
function accel.empty_cache(device) end

---Collects what Lua no longer holds, tensors included, now.
---example: accel.collect() -->
function accel.collect() end

---How the collector is run: mode, generational, full collections so far.
---example: type(accel.gc_stats().full) --> "number"
---@return table
function accel.gc_stats() end

-- ## Devices

---Names of the devices there are. "meta" has shapes but no bytes.
---example: accel.devices() --> { "cpu", "meta" }
---@return accel.Device[]
function accel.devices() end

---New tensors go to this device until the block ends, `local _ <close> = accel.device "meta"`, or while f runs.
---example: accel.device("meta", function() return accel.ones(2).device end) --> "meta"
---@param device accel.Device
---@param f? function
---@param ... any
function accel.device(device, f, ...) end

---The device that new tensors go to.
---example: accel.get_default_device() --> "cpu"
---@return accel.Device
function accel.get_default_device() end

---Makes a device the one that new tensors go to, for good.
---example: accel.set_default_device "cpu" -->
---@param device accel.Device
function accel.set_default_device(device) end

---Waits until a device has done what it was given.
---example: accel.synchronize() -->
---@param device? accel.Device
function accel.synchronize(device) end

---Flags of a kind of device, as this host has them; others in the process have their own. With a table some of them change, for what is
---called from now on, and the result is what they were. They begin as ACCEL_<DEVICE>_<FLAG> says (`accel-run env` lists them).
---example: local was = accel.device_flags("cuda", { tf32 = true }) accel.device_flags("cuda", was) return was.tf32 --> false
---@param device accel.Device
---@param flags? table<string, boolean|integer>
---@return table<string, boolean|integer>
function accel.device_flags(device, flags) end

---Threads that work on one op: --num-threads or ACCEL_NUM_THREADS.
---example: accel.num_threads() >= 1 --> true
---@return integer
function accel.num_threads() end

---What this build and this machine are: isa, cpu, cpus, memory, onednn, mpi, and of each kind of device how many there are and
---their state, or what is missing.
---example: accel.features().devices.cpu.count --> 1
---example: accel.features().cpus >= 1 --> true
---@return table
function accel.features() end

---The libraries that accel loads on first use, and the version of each, or why it is absent. This call loads all of them.
---example: #accel.libraries() > 0 --> true
---@return { name: string, version: string?, absent: string? }[]
function accel.libraries() end

---Every parameter of the environment (ACCEL_*): name, type, default, allowed, help, value, set.
---example: #accel.params() > 0 --> true
---@return table[]
function accel.params() end

---Seconds of a clock that only goes forward, for timing.
---example: local t = accel.clock() return accel.clock() >= t --> true
---@return number
function accel.clock() end

---Whether a file descriptor (1: standard output) is a terminal.
---example: type(accel.isatty(1)) --> "boolean"
---@param fd? integer
---@return boolean
function accel.isatty(fd) end

---Columns and lines of the terminal, nil where there is none.
---example: (accel.term_width() or 80) > 0 --> true
---@return integer? columns
---@return integer? lines
function accel.term_width() end

-- ## Steps and Ctrl-C

---The step boundary, where generators advance, memory is collected and Ctrl-C is served. optimizer:step() ends with
---it; a loop without an optimizer may call it.
---example: local n = accel.step_count() accel.step() return accel.step_count() - n --> 1
function accel.step() end

---Step boundaries passed so far.
---example: accel.step_count() >= 0 --> true
---@return integer
function accel.step_count() end

---What the first Ctrl-C, SIGTERM or SIGHUP does: "raise" (an error at the next step, so that pcall and <close> may save),
---"flag" (only accel.interrupted() becomes true) or "requeue" ("flag" for SIGTERM and SIGUSR1, upon which an Accelerator
---saves its state and ends, else "raise"). The second ends at once. Returns the mode of before.
---example: accel.on_interrupt "raise" --> "raise"
---@param mode "raise"|"flag"|"requeue"
---@return "raise"|"flag"|"requeue"
function accel.on_interrupt(mode) end

---Whether Ctrl-C was pressed, and then the signal's number.
---example: accel.interrupted() --> false
---@return boolean
---@return integer?
function accel.interrupted() end

-- ## Ranks

---Runs a function on several ranks of this machine, new processes under accel-run's launcher, and returns what each
---gave back: result[rank + 1], several values as a list with n. The function is what a module ("my.trainer", found
---by package.path) or a file ("trainer.lua") returns, or its field main; arguments and results travel by
---accel.encode. Or it is a function of Lua: its upvalues and the globals that it names are sent, tables and tensors as copies, modules by
---name. One that cannot be sent (an open file, an object of a class, a coroutine) is an error that names it. A rank that fails raises here, with its message and the field rank. After time_limit seconds the ranks
---are ended. The options after env are those of accel-run: `accel-run --help` describes them. What ranks print goes to
---this stdout. Ctrl-C is passed on; nothing stays behind.
---example: select(2, pcall(accel.launch, print)):match "cannot receive this function" --> "cannot receive this function"
---@param module string|function
---@param args? any[] a list; with a field n it may hold nils
---@param opts? table
---  num_processes integer|"auto": ranks, one for each core if not given
---  time_limit number: seconds, after which the ranks are ended
---  env table<string, string|number|false>: variables of the ranks. false: without this one
---  timeout number: seconds of each wait for another rank
---  backend string: as of accel.dist.init_process_group
---  num_threads integer: threads of each rank
---  seed integer: of accel.manual_seed
---  memory_limit string: "6GiB", for each rank
---  cpu_affinity "auto"|"none": CPUs of its own for each rank, if there are enough
---  log_dir string: a folder for what each rank prints
---  tee boolean: with log_dir, prints it, too
---  max_restarts integer: new starts of all ranks after one fails
---  resume string: what the ranks continue, "auto" or a folder of a checkpoint
---  monitor_interval number: with max_restarts, seconds before each new start
---@return any[] results
function accel.launch(module, args, opts) end

-- ## At a prompt

---Stops the script here with a prompt: names are the caller's locals, upvalues and globals, read and written. Ctrl-D or
---:c lets the script go on, :quit ends it, :help lists the rest; Ctrl-C stops what runs, not the script. On several
---ranks all have to come here, and one prompt serves them (see accel-run --num-processes N repl). Without a terminal
---the inputs are read from standard input. text is shown first.
---example: type(accel.repl) --> "function"
---@param text? string
function accel.repl(text) end

---Stops the script here with a prompt, on the ranks where the condition holds; without one on all that come here. On a terminal the prompt
---opens at once: of one rank in its process, of several in a client that stays until the job ends. Without a terminal the script waits, and
---prints how accel-run attach opens the prompt. Ranks that continue wait at their next collective, with their timeouts suspended. :help lists
---the commands of the prompt.
---example: type(accel.breakpoint) --> "function"
---@param condition? any false or nil: go on
function accel.breakpoint(condition) end

---@class accel.pdb the debugger by the names of Python's pdb
accel.pdb = {}

---Stops the script here as accel.breakpoint() does. Its prompt has pdb's commands with a colon: :n :s :c :r :unt :w :u :d :l :p :b :q.
---example: type(accel.pdb.set_trace) --> "function"
---@param header? string|{header: string?} a text to print first
function accel.pdb.set_trace(header) end

-- ## Ops by name

---The function of an op.
---example: accel.op "relu" (accel.tensor { -1.0, 1 }) --> { 0, 1 }
---@param name string
---@return function
function accel.op(name) end

---All ops. alias: other names, separated by blanks. hidden: reached by accel.op alone. method: of tensors as well.
---example: #accel.ops() > 100 --> true
---@return { name: string, signature: string, alias: string, hidden: boolean, method: boolean, inplace: boolean, differentiable: boolean }[]
function accel.ops() end
