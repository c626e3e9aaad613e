--- Reads checkpoint-N folders of Transformers' Trainer: the weights of a model or of an adapter, optimizer.pt, scheduler.pt, scaler.pt and
--- trainer_state.json. training_args.bin is a pickled class and stays unread. accel.accelerator.checkpoint_foreign loads the result, whose
--- form accelerate.lua describes.
local accelerate = require "accel.ckpt.accelerate"
local class = require "accel.util.class"
local raise = require "accel.util.raise"
local read_json = require "accel.util.read_json"

local M = {}

local STATE <const> = "trainer_state.json"
local INDEXES <const> = { "model.safetensors.index.json", "pytorch_model.bin.index.json" }

--- Whether Trainer wrote a folder.
---@param dir string
---@return boolean
function M.is(dir)
  local names = {}
  for _, name in ipairs(require "accel".listdir(dir) or {}) do names[name] = true end
  return names[STATE] and (names["optimizer.pt"] or names["scheduler.pt"] or names["training_args.bin"]) or false
end

local Folder = class("accel.ckpt.TrainerFolder", accelerate.Folder)

--- Weights in several files, by their index.
local function of_index(self, index)
  local map = (read_json(self.dir .. "/" .. index) or {}).weight_map
  if type(map) ~= "table" then raise("%s/%s has no weight_map", self.dir, index) end
  self.read[index] = true
  local state, files = require "accel.util.ordered"(), {}
  for name, file in require "accel.util.ordered".iterate(map) do
    if type(file) ~= "string" or not self.names[file] then raise("%s/%s: '%s' is in no file of the folder", self.dir, index, name) end
    files[file] = files[file] or self:load(file)
    state[name] = files[file][name]
  end
  return state
end

function Folder:model(i)
  if i > 0 then raise("%s: a checkpoint of Trainer holds one model", self.dir) end
  local index = self:first(table.unpack(INDEXES))
  if index then return of_index(self, index), index end
  local name = self.adapter or self:first("model.safetensors", "pytorch_model.bin")
  if not name then return nil, "model.safetensors" end
  return self:load(name), name, self.adapter ~= nil
end

function Folder:optimizer(i)
  if i > 0 then raise("%s: a checkpoint of Trainer holds one optimizer", self.dir) end
  local name = self:first("optimizer.pt", "optimizer.bin")
  if not name then return nil, "optimizer.pt" end
  local state = self:load(name)
  if type(state) ~= "table" or type(state.state) ~= "table" or type(state.param_groups) ~= "table" then
    raise("%s/%s is not the state of an optimizer", self.dir, name)
  end
  return state, name
end

function Folder:schedule(i)
  if i > 0 or not self.names["scheduler.pt"] then return nil, "scheduler.pt" end
  return self:load "scheduler.pt", "scheduler.pt"
end

--- Batches of the pass: Trainer skips as many as its steps took.
function Folder:loader(i, loader)
  if i > 0 then return nil end
  local position, length = self:step(0), loader:len()
  if length == 0 then return nil end
  return { epoch = position // length, batches = position % length, finished = false }
end

--- Micro-batches: each step of Trainer is an update.
function Folder:step() return self.global_step * self.accumulation end

---@param dir string
---@param accumulation? integer micro-batches of an update [1]
---@return accel.ckpt.Foreign
function M.open(dir, accumulation)
  local self = Folder(dir, "Transformers' Trainer")
  local state = read_json(dir .. "/" .. STATE)
  if not state or math.tointeger(state.global_step) == nil then raise("%s/%s has no global_step", dir, STATE) end
  self.read[STATE], self.global_step, self.accumulation = true, math.tointeger(state.global_step), accumulation or 1
  self.custom, self.adapter = nil, self:first("adapter_model.safetensors", "adapter_model.bin")
  for _, name in ipairs { "config.json", "generation_config.json", "adapter_config.json", "README.md" } do self.read[name] = true end
  for name in next, self.names do self.read[name] = self.read[name] or name:find "^rng_state_?%d*%.pth$" ~= nil end
  return self
end

return M
