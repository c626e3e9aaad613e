--- audio.AudioFolder: sounds in one folder for each class.
---
---   local set = accel.audio.AudioFolder("commands", { transform = pad_to_one_second })
---
--- A sample is { samples f32 [channels, frames], number of its class from 0 }, or what `transform` makes of the samples.
local folder = require "accel.data.dataset_folder"
local check = require "accel.util.check"
local io_ = require "accel.audio.io"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local EXTENSIONS <const> = { "wav", "flac", "ogg", "opus", "mp3", "aiff", "aif", "au" }

--- example: local dir = accel.mkdtemp "/tmp/example-" require "lfs".mkdir(dir .. "/a") accel.audio.save(dir .. "/a/1.wav", accel.ones(1, 5), 8000)
---   return accel.audio.AudioFolder(dir):get(1)[1].shape --> {1, 5}
---@class accel.audio.AudioFolder : accel.data.DatasetFolder
local AudioFolder = folder.DatasetFolder:extend("accel.audio.AudioFolder")

--- - transform: a function of the samples
--- - target_transform: a function of the class's number
--- - sample_rate: raise for files with another rate
--- - num_frames: read at most so many frames of each file
--- - allow_empty: accept classes without sounds
---@param root string
---@param opts? {transform: function?, target_transform: function?, sample_rate: integer?, num_frames: integer?, allow_empty: boolean?}
function AudioFolder:init(root, opts)
  local o = options("AudioFolder", opts, { transform = options.none, target_transform = options.none, sample_rate = options.none,
    num_frames = -1, allow_empty = false })
  if type(root) ~= "string" then raise("AudioFolder: root must be a string, got %s", check.shown(root)) end
  self:scan("AudioFolder", root, EXTENSIONS, o.allow_empty)
  self.transform, self.target_transform = o.transform, o.target_transform
  self.sample_rate, self.num_frames = o.sample_rate, o.num_frames
  self.plain = { sample_rate = o.sample_rate, num_frames = o.num_frames, allow_empty = o.allow_empty }
  self.maker = "accel.audio.audio_folder:make"
end

--- The samples in a file.
---@param path string
---@return accel.Tensor f32 [channels, frames]
function AudioFolder:load(path)
  local samples, rate = io_.load(path, { num_frames = self.num_frames })
  if not samples then raise("AudioFolder: %s", rate) end
  if self.sample_rate and rate ~= self.sample_rate then
    raise("AudioFolder: %s has a sample rate of %d, not %d; resample it first", path, rate, self.sample_rate)
  end
  return samples
end

return { AudioFolder = AudioFolder, make = folder.maker(AudioFolder) }
