--- The call of Accelerate's pages, save_pretrained { is_main_process, save_function, state_dict }; the format that files name; execution_device
--- by position.
local accel = require "accel"
local tmp = os.getenv "ACCEL_TEST_TMP"
local a = accel.Accelerator {}
local model = accel.models.GPT2(accel.models.tiny.gpt2)
local state = {}
for name, t in accel.pairs(model:state_dict()) do state[name] = t:detach():clone():add_(1) end

assert(model:save_pretrained(tmp .. "/none", { is_main_process = false }))
assert(accel.listdir(tmp .. "/none") == nil, "a rank that is not the main process wrote files")

local function save(...) return a:save(...) end
assert(model:save_pretrained(tmp .. "/m", { is_main_process = a.is_main_process, save_function = save, state_dict = state }))
local saved, metadata = accel.load(tmp .. "/m/model.safetensors"), accel.open_safetensors(tmp .. "/m/model.safetensors"):metadata()
assert(metadata.format == "pt")
local n = 0
for name, t in accel.pairs(saved) do
  assert(accel.equal(t, state[name]), name)
  n = n + 1
end
assert(n > 5, n)

state[next(state)] = nil
local ok, message = pcall(model.save_pretrained, model, tmp .. "/m", { state_dict = state })
assert(not ok and message:find("state_dict has no", 1, true), tostring(message))

-- every file of safetensors names its format, as readers of Hugging Face want
local function format_of(given)
  assert(accel.save(tmp .. "/x.safetensors", { w = accel.ones(2) }, given))
  return accel.open_safetensors(tmp .. "/x.safetensors"):metadata().format
end
assert(format_of(nil) == "pt" and format_of { note = "n" } == "pt" and format_of { format = "np" } == "np")
local linear = accel.nn.Linear(2, 2)
assert(accel.save(tmp .. "/l.safetensors", linear:state_dict()))
assert(linear:load_state_dict(accel.load(tmp .. "/l.safetensors")))

-- positional calls of the pages
local x = accel.ones(1, 2)
local want = linear(x):detach():clone()
for _, offloaded in ipairs { accel.cpu_offload(accel.deepcopy(linear), "cpu"),
  accel.cpu_offload(accel.deepcopy(linear), "cpu", { offload_buffers = true }),
  accel.disk_offload(accel.deepcopy(linear), tmp .. "/disk", "cpu"), (accel.cpu_offload_with_hook(accel.deepcopy(linear), "cpu")) } do
  assert(accel.equal(offloaded(x), want))
end
ok, message = pcall(accel.cpu_offload, linear, "cpu", { execution_device = "cpu" })
assert(not ok and message:find("by position and as an option", 1, true), tostring(message))
