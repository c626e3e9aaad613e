--- Sound files, by torchaudio's names: accel.audio.load, info and save.
---
---   local wave, rate = accel.audio.load "speech.flac"                 -- f32 [channels, frames], 16000
---   accel.audio.save("half.wav", wave * 0.5, rate, { encoding = "PCM_S", bits_per_sample = 16 })
---
--- The content decides the format. WAV needs no library. FLAC, Ogg (Vorbis, Opus), MP3, AIFF and AU need libsndfile.
local check = require "accel.util.check"
local core = require "accel.audio.core"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local writer = require "accel.util.writer"

local M = {}

local FORMATS <const> = { "wav", "flac", "ogg", "mp3", "aiff", "au", "caf" }
local ENCODINGS <const> = { "PCM_S", "PCM_U", "PCM_F", "ULAW", "ALAW", "FLAC", "VORBIS", "OPUS", "MP3" }

local function request(who, opts, ...)
  local o = options(who, opts, { frame_offset = 0, num_frames = -1, normalize = true, channels_first = true, format = options.none }, ...)
  check.count(who, "frame_offset", o.frame_offset)
  check.integer(who, "num_frames", o.num_frames, -1)
  if o.format ~= nil then check.word(who, "format", o.format, FORMATS) end
  return o
end

--- The samples of a file and the sample rate. Returns nil, message, code for a file that cannot be
--- opened. Raises for one that is damaged.
--- - frame_offset: number of frames that are skipped
--- - num_frames: number of frames to read, -1 for all
--- - normalize: false keeps the integers of a WAV file (u8, i16, i32). The default is f32 from -1 to 1
--- - channels_first: false for shape [frames, channels]
--- - format: raise if the content has another format
---@param path string
---@param opts? {frame_offset: integer?, num_frames: integer?, normalize: boolean?, channels_first: boolean?, format: string?}
---@return accel.Tensor? samples
---@return integer|string rate the sample rate, or a message
---@return string? code
function M.load(path, opts, ...)
  local o = request("load", opts, ...)
  local info, message, code = M.info(path)
  if not info then return nil, message, code end
  if o.format ~= nil and info.format ~= o.format then raise("load: %s is %s, not %s", path, info.format, o.format) end
  local native = not o.normalize
  if native and not (info.format == "wav" and (info.encoding == "PCM_S" or info.encoding == "PCM_U")) then
    raise("load: %s has no integers of a WAV file; leave out normalize = false", path)
  end
  local t, rate, why = core.load(path, { frame_offset = o.frame_offset, num_frames = o.num_frames, native = native })
  if not t then return nil, rate, why end
  return o.channels_first and t or t:transpose(1, 2), rate
end

--- The samples in a string that holds a whole sound file, and the sample rate.
--- example: accel.audio.decode("RIFF" .. string.pack("<I4", 37) .. "WAVEfmt " .. string.pack("<I4I2I2I4I4I2I2", 16, 1, 1, 8000, 8000, 1, 8)
---   .. "data" .. string.pack("<I4", 1) .. "\192") --> { { 0.5 } }, 8000
---@param bytes string
---@param opts? {frame_offset: integer?, num_frames: integer?, channels_first: boolean?}
---@return accel.Tensor samples
---@return integer rate
function M.decode(bytes, opts, ...)
  local o = options("decode", opts, { frame_offset = 0, num_frames = -1, channels_first = true }, ...)
  local t, rate = core.decode(bytes, { frame_offset = check.count("decode", "frame_offset", o.frame_offset),
    num_frames = check.integer("decode", "num_frames", o.num_frames, -1) })
  return o.channels_first and t or t:transpose(1, 2), rate
end

--- The header of a sound file. encoding is torchaudio's word (PCM_S, PCM_U, PCM_F, ULAW, ALAW, FLAC, VORBIS, OPUS, MP3), and
--- bits_per_sample is 0 where it has no meaning. Returns nil, message, code for a file that cannot be opened.
---@param path string
---@return {sample_rate: integer, num_frames: integer, num_channels: integer, bits_per_sample: integer, encoding: string, format: string}? info
---@return string? message
---@return string? code
function M.info(path) return core.load(path, { info = true }) end

--- Writes samples to a file, which is replaced whole. Values of f32 beyond -1 and 1 are cut in integer encodings. Returns true, or nil,
--- message, code for a file that cannot be written.
--- - channels_first: false for samples of shape [frames, channels]
--- - format: "wav", "flac", "ogg", "mp3", "aiff" or "au". The default is the extension of the path
--- - encoding: "PCM_S", "PCM_U", "PCM_F", "ULAW", "ALAW", "VORBIS" or "OPUS"
--- - bits_per_sample: 8, 16, 24, 32 or 64. WAV writes f32 samples as PCM_F of 32 bits by default, other formats 16 bits
---@param path string
---@param src accel.Tensor f32, i16, i32 or u8 of shape [channels, frames]
---@param sample_rate integer
---@param opts? {channels_first: boolean?, format: string?, encoding: string?, bits_per_sample: integer?}
---@return boolean? ok
---@return string? message
---@return string? code
function M.save(path, src, sample_rate, opts, ...)
  local o = options("save", opts, { channels_first = true, format = options.none, encoding = options.none,
    bits_per_sample = options.none }, ...)
  if not tensors.is_tensor(src) or #src.shape ~= 2 then
    raise("save: samples must be a tensor of shape [channels, frames], got %s", check.shown(src))
  end
  local format = o.format or tostring(path):match "%.(%w+)$"
  if not format then raise("save: %s has no extension; give format, e.g. 'wav'", tostring(path)) end
  format = check.word("save", "format", format:lower(), { "wav", "flac", "ogg", "mp3", "aiff", "au" })
  if o.encoding ~= nil then check.word("save", "encoding", o.encoding, ENCODINGS) end
  check.positive("save", "sample_rate", sample_rate)
  local t = o.channels_first and src or src:transpose(1, 2)
  if t.dtype == "f64" or t.dtype == "f16" or t.dtype == "bf16" then t = t:to "f32" end
  local bytes = core.encode(t:detach():to "cpu":contiguous(), sample_rate, format, o.encoding, o.bits_per_sample)
  return writer.file(path, bytes)
end

return M
