--- SummaryWriter: TensorBoard's event files, by the names of torch.utils.tensorboard. Nothing that it does waits for a disk: a thread
--- writes twice a second, at flush and at close. Its methods never wait for a disk: a thread writes twice a second, at flush and at
--- close. Used by tensorboard.lua. Scripts may make their own.
---
---   local writer = accel.track.SummaryWriter "runs/a"
---   for step = 1, 100 do writer:add_scalar("loss", 1 / step, step) end
---   writer:close()
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.track.core"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local summary = require "accel.track.summary"
local written = require "accel.track.written"

--- Writes a separate event file into a folder, which is created if missing.
--- example: local dir = accel.mkdtemp "/tmp/x" local w = accel.track.SummaryWriter(dir) w:add_scalar("loss", 1, 1)
---   return (w:close()) --> true
---@class accel.track.SummaryWriter
---@field log_dir string
local SummaryWriter = class "accel.track.SummaryWriter"

local function open(folder)
  local ok, message = accel.makedirs(folder)
  local writer
  if ok then writer, message = core.events(folder) end
  if not writer then raise("SummaryWriter: %s", message) end
  return writer
end

---@param log_dir string
---@param opts? {max_queue: integer?, flush_secs: number?} without effect: logged values are written twice a second
function SummaryWriter:init(log_dir, opts, ...)
  if type(log_dir) ~= "string" then raise("SummaryWriter: log_dir must be a string, got %s", check.shown(log_dir)) end
  no_effect("accel.track.SummaryWriter", options("SummaryWriter", opts, { max_queue = options.none, flush_secs = options.none }, ...))
  self.log_dir, self.writer, self.below = log_dir, open(log_dir), {}
end

--- Step and walltime of a call, which may stand in a table: (tag, value, 3, 1.5e9) or (tag, value, { step = 3 }).
local function place(who, step, walltime, ...)
  check.surplus(who, ...)
  if type(step) ~= "table" and type(walltime) ~= "table" then -- the usual call, without a table of options
    if step ~= nil then step = check.integer(who, "step", step) end
    return step or 0, walltime ~= nil and check.number(who, "walltime", walltime) or nil
  end
  local o
  step, o = written.placed(who, step, walltime, { walltime = options.none })
  return step or 0, o.walltime
end

local function writer_of(self, who)
  return self.writer or raise("SummaryWriter: %s after close", who)
end

--- A number of a step.
---@param tag string
---@param value number|accel.Tensor
---@param step? integer 0
---@param walltime? number seconds since 1970 (default: now)
function SummaryWriter:add_scalar(tag, value, step, walltime, ...)
  step, walltime = place("add_scalar", step, walltime, ...)
  local x = written.number(value) or raise("add_scalar: '%s' must be a number, got %s", tostring(tag), check.shown(value))
  writer_of(self, "add_scalar"):scalar(tag, step, x, walltime)
end

--- Several numbers in one chart: each goes to a separate run, LOG_DIR/MAIN_TAG_NAME, with the same tag.
---@param main_tag string
---@param values table<string, number|accel.Tensor>
---@param step? integer 0
---@param walltime? number
function SummaryWriter:add_scalars(main_tag, values, step, walltime, ...)
  step, walltime = place("add_scalars", step, walltime, ...)
  writer_of(self, "add_scalars")
  for name, value in accel.pairs(values) do
    local x = written.number(value) or raise("add_scalars: '%s' must be a number, got %s", tostring(name), check.shown(value))
    local folder = ("%s/%s_%s"):format(self.log_dir, main_tag:gsub("/", "_"), (tostring(name):gsub("/", "_")))
    self.below[folder] = self.below[folder] or open(folder)
    self.below[folder]:scalar(main_tag, step, x, walltime)
  end
end

--- A text, shown as Markdown. Its tag in the file is TAG/text_summary.
---@param tag string
---@param text string
---@param step? integer 0
---@param walltime? number
function SummaryWriter:add_text(tag, text, step, walltime, ...)
  step, walltime = place("add_text", step, walltime, ...)
  writer_of(self, "add_text"):bytes(step, summary.text(tag .. "/text_summary", text), walltime)
end

--- How the elements of a tensor, or the numbers of a list, are spread.
---@param tag string
---@param values accel.Tensor|number[]
---@param step? integer 0
---@param opts? {bins: integer?, walltime: number?} bins: 30
function SummaryWriter:add_histogram(tag, values, step, opts, ...)
  local o
  step, o = written.placed("add_histogram", step, opts, { bins = 30, walltime = options.none }, ...)
  local bins = check.integer("add_histogram", "bins", o.bins)
  if bins < 1 then raise "add_histogram: bins must be 1 or more" end
  writer_of(self, "add_histogram"):bytes(step or 0, summary.histogram(tag, written.numbers(values), bins), o.walltime)
end

local image_options <const> = { dataformats = options.none, walltime = options.none }

--- One image: a tensor (floats of 0 to 1, or u8), or the bytes of a PNG or JPEG file.
---@param tag string
---@param img accel.Tensor|string
---@param step? integer 0
---@param opts? {dataformats: string?, walltime: number?} dataformats: "CHW" (default), "HWC", "HW"
function SummaryWriter:add_image(tag, img, step, opts, ...) self:add_images(tag, img, step, opts, ...) end

--- Images of one tag: a tensor of several, or a list. More than one are TAG/0, TAG/1, ...
---@param tag string
---@param images accel.Tensor|string|(accel.Tensor|string)[]
---@param step? integer 0
---@param opts? {dataformats: string?, walltime: number?} dataformats: "NCHW" (default), "NHWC", ...
function SummaryWriter:add_images(tag, images, step, opts, ...)
  local o
  step, o = written.placed("add_images", step, opts, image_options, ...)
  local writer = writer_of(self, "add_images")
  local list = require("accel.track.image").images("add_images", images, o.dataformats)
  for _, bytes in ipairs(summary.images(tag, list)) do writer:bytes(step or 0, bytes, o.walltime) end
end

--- A run's hyperparameters and results, for TensorBoard's HParams, as a separate session in this folder.
---@param hparams table<string, number|string|boolean>
---@param metrics? table<string, number>
---@param step? integer 0
function SummaryWriter:add_hparams(hparams, metrics, step, ...)
  check.surplus("add_hparams", ...)
  if step ~= nil then step = check.integer("add_hparams", "step", step) end
  local writer = writer_of(self, "add_hparams")
  local flat, names = written.flatten(hparams)
  local tags = {}
  for name, value in accel.pairs(metrics or {}) do
    local x = written.number(value) or raise("add_hparams: metric '%s' must be a number, got %s", tostring(name), check.shown(value))
    tags[#tags + 1] = name
    writer:scalar(name, step or 0, x)
  end
  writer:bytes(0, summary.experiment(flat, names, tags, os.time()))
  writer:bytes(0, summary.session_start(flat, names, os.time()))
  writer:bytes(0, summary.session_end(true, os.time()))
end

--- Writes all added values to the file. Returns true. On failure returns nil, message, code.
function SummaryWriter:flush()
  local ok, message, code = writer_of(self, "flush"):flush()
  for _, writer in accel.pairs(self.below) do
    if ok then ok, message, code = writer:flush() end
  end
  return ok, message, code
end

--- The folder.
---@return string
function SummaryWriter:get_logdir() return self.log_dir end

--- Ends the files. Returns true. If data could not be written, returns nil, message, code. Once.
function SummaryWriter:close()
  if not self.writer then return true end
  local ok, message, code = self.writer:close()
  self.writer = nil
  for _, writer in accel.pairs(self.below) do
    local one, why, its = writer:close()
    if ok and not one then ok, message, code = one, why, its end
  end
  self.below = {}
  return ok, message, code
end

return SummaryWriter
