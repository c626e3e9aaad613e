-- util/sizes: one grammar for sizes wherever one is given, and one function that prints them.
local accel = require "accel"
local model_files = require "accel.ckpt.model_files"
local sizes = require "accel.util.sizes"

local G <const>, GiB <const> = 10 ^ 9, 2 ^ 30
local good = { ["8G"] = 8 * GiB, ["8GiB"] = 8 * GiB, ["8giB"] = 8 * GiB, ["8g"] = 8 * GiB, ["8GB"] = 8 * G,
  ["1.5GB"] = 1.5 * G, [" 2 TiB "] = 2 ^ 41, ["3T"] = 3 * 2 ^ 40, ["1TB"] = 1e12, ["512K"] = 2 ^ 19, ["2.5KB"] = 2500, ["1_000MB"] = G,
  ["1e3KB"] = 1e6, ["4096"] = 4096, ["100B"] = 100, ["0MB"] = 0 }
for text, bytes in accel.pairs(good) do
  assert(sizes.parse(text) == bytes and math.type(sizes.parse(text)) == "integer", text)
  -- every place that takes a size takes the same ones
  assert(accel.accelerator.convert_file_size_to_int(text) == bytes and model_files.parse_size(text) == bytes, text)
end
for text in ("8gb 8Gb"):gmatch "%S+" do -- bits for Accelerate alone
  assert(sizes.parse(text) == 8 * G and model_files.parse_size(text) == 8 * G and accel.accelerator.convert_file_size_to_int(text) == G)
end
assert(sizes.parse(500) == 500 and sizes.parse(1.5) == 1 and sizes.check("f", "x", "1K") == 1024)
for _, bad in ipairs { "", "GB", "B", "-1GB", "5MBB", "5k0MB", "5I", "5GI", "5iB", "0x10", "nan", "inf", "1e99GB", "5 G B", -1, 0 / 0, {}, true } do
  assert(sizes.parse(bad) == nil, tostring(bad))
end
local ok, why = pcall(sizes.check, "f", "window", "8Q")
assert(not ok and tostring(why):find("f: window must be a number of bytes or a size such as 512M, 8GiB or 5GB", 1, true), why)

local net = accel.nn.Linear(4, 4)
for _, size in ipairs { "8G", "8GB", "8GiB", "1.5GB" } do
  assert(accel.infer_auto_device_map(net, { max_memory = { cpu = size } }))
end

for bytes, text in accel.pairs { [0] = "0 B", [1023] = "1023 B", [1024] = "1.00 KiB", [1.5 * GiB] = "1.50 GiB", [2 ^ 41] = "2.00 TiB" } do
  assert(sizes.text(bytes) == text, sizes.text(bytes))
end
