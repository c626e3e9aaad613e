--- Configurations of Accelerator: sharding of loaders, folders of a project, accumulation of gradients.
local Settings = require "accel.accelerator.settings"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

local none <const> = options.none

--- How prepared loaders share a data set among ranks.
--- example: accel.accelerator.DataLoaderConfiguration { split_batches = true }.even_batches --> true
---@class accel.accelerator.DataLoaderConfiguration : accel.accelerator.Settings
---@field split_batches boolean false. true: the loader's batch size is the global batch size
---@field dispatch_batches boolean? true: rank 0 reads and sends. nil: only for data sets that are streams
---@field even_batches boolean true: ranks get equally many batches, the last ones filled up from the start
---@field use_seedable_sampler boolean false. Without effect: order is a function of (seed, epoch) in any case
---@field data_seed integer? seed of the order. nil: the seed of accel.manual_seed
---@field non_blocking boolean false. true: the next batch is copied to a GPU during the step on the one before it
---@field use_stateful_dataloader boolean false. Without effect: every loader has state_dict
local DataLoaderConfiguration = Settings:extend("accel.accelerator.DataLoaderConfiguration")
M.DataLoaderConfiguration = DataLoaderConfiguration

DataLoaderConfiguration.defaults = {
  split_batches = false, dispatch_batches = none, even_batches = true, use_seedable_sampler = false, data_seed = none,
  non_blocking = false, use_stateful_dataloader = false,
}
DataLoaderConfiguration.checks = { dispatch_batches = Settings.boolean, data_seed = check.integer }

--- The folders of a project, and the naming of its checkpoints.
--- example: accel.accelerator.ProjectConfiguration("runs").logging_dir --> "runs"
---@class accel.accelerator.ProjectConfiguration : accel.accelerator.Settings
---@field project_dir string?
---@field logging_dir string? project_dir unless it is given
---@field automatic_checkpoint_naming boolean false
---@field total_limit integer? checkpoints of the run that are kept, those that were saved last
---@field on_existing string "raise": under automatic names, checkpoints of another run in the folder are an error. "beside": this run
---  continues the numbering after the newest, and removes none of the others
---@field iteration integer 0: number of the next checkpoint
---@field save_on_each_node boolean false
---@field asynchronous_save boolean false. true: save_state returns while the checkpoint is being written
local ProjectConfiguration = Settings:extend("accel.accelerator.ProjectConfiguration")
M.ProjectConfiguration = ProjectConfiguration

ProjectConfiguration.defaults = {
  project_dir = none, logging_dir = none, automatic_checkpoint_naming = false, total_limit = none, on_existing = "raise", iteration = 0,
  save_on_each_node = false, asynchronous_save = false,
}
ProjectConfiguration.checks = {
  project_dir = Settings.text, logging_dir = Settings.text, total_limit = check.positive, iteration = check.count,
  on_existing = function(who, name, value) return check.word(who, name, value, { "raise", "beside" }) end,
}
ProjectConfiguration.positional = { "project_dir", "logging_dir" }

---@param ... any project_dir, logging_dir, then a table of settings
function ProjectConfiguration:init(...)
  Settings.init(self, ...)
  self:set_directories(self.project_dir)
end

--- Sets project_dir, and logging_dir if it is not set.
--- example: local c = accel.accelerator.ProjectConfiguration { logging_dir = "logs" } c:set_directories("run") return
---   c.project_dir, c.logging_dir --> "run", "logs"
---@param project_dir string?
function ProjectConfiguration:set_directories(project_dir)
  if project_dir ~= nil then Settings.text("ProjectConfiguration", "project_dir", project_dir) end
  self.project_dir = project_dir
  if self.logging_dir == nil then self.logging_dir = project_dir end
end

--- How micro-steps make an update.
--- example: accel.accelerator.GradientAccumulationPlugin(4).sync_with_dataloader --> true
---@class accel.accelerator.GradientAccumulationPlugin : accel.accelerator.Settings
---@field num_steps integer micro-steps of an update
---@field adjust_scheduler boolean true. false has no effect: schedules advance by applied updates
---@field sync_with_dataloader boolean true: the last batch of a loader ends an update
---@field sync_each_batch boolean false. true: gradients are averaged at every micro-step
local GradientAccumulationPlugin = Settings:extend("accel.accelerator.GradientAccumulationPlugin")
M.GradientAccumulationPlugin = GradientAccumulationPlugin

GradientAccumulationPlugin.defaults = {
  num_steps = none, adjust_scheduler = true, sync_with_dataloader = true, sync_each_batch = false,
}
GradientAccumulationPlugin.checks = { num_steps = check.positive }
GradientAccumulationPlugin.positional = { "num_steps" }

---@param ... any num_steps, then a table of settings
function GradientAccumulationPlugin:init(...)
  Settings.init(self, ...)
  if self.num_steps == nil then raise "GradientAccumulationPlugin: num_steps is missing; set { num_steps = 4 }" end
end

return M
