-- Sound files: WAV by hand in every coding, what save writes and load reads, parts of a file, refusals that name the file. With libsndfile
-- also FLAC and Ogg.
local accel = require "accel"
local audio = accel.audio
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"

local function put(name, bytes)
  local f = assert(io.open(tmp .. "/" .. name, "wb"))
  f:write(bytes)
  f:close()
  return tmp .. "/" .. name
end

local function refused(text, f, ...)
  local ok, e = pcall(f, ...)
  assert(not ok and tostring(e):find(text, 1, true), ("%s, not an error with '%s'"):format(tostring(e), text))
end

--- A WAV of one or more channels; frames of bytes.
local function wav(tag, channels, bits, data, size)
  local frame = channels * bits // 8
  return "RIFF" .. string.pack("<I4", 36 + #data) .. "WAVEfmt "
    .. string.pack("<I4I2I2I4I4I2I2", 16, tag, channels, 8000, 8000 * frame, frame, bits) .. "data" .. string.pack("<I4", size or #data) .. data
end

local function values(bytes, ...)
  local t, rate = audio.decode(bytes)
  assert(rate == 8000)
  local flat = t:contiguous():view { -1 }:tolist()
  for i, want in ipairs { ... } do assert(flat[i] == want, ("%d: %s, not %s"):format(i, flat[i], want)) end
  assert(#flat == select("#", ...))
  return t
end

-- codings, by hand
values(wav(1, 1, 8, "\0\128\255"), -1, 0, 127 / 128)
assert(values(wav(1, 2, 16, string.pack("<i2i2i2i2", -32768, 1, 2, 32767)), -1, 2 / 32768, 1 / 32768, 32767 / 32768).shape[1] == 2)
values(wav(1, 1, 24, string.pack("<i3i3", -8388608, 1)), -1, 1 / 8388608)
values(wav(1, 1, 32, string.pack("<i4", -2147483648)), -1)
values(wav(3, 1, 32, string.pack("<f", 1.5)), 1.5)
values(wav(3, 1, 64, string.pack("<d", -0.25)), -0.25)
values(wav(7, 1, 8, "\xff\x00\x80"), 0, -32124 / 32768, 32124 / 32768) -- G.711: the ends and zero
values(wav(6, 1, 8, "\xd5\x2a\xaa"), 8 / 32768, -32256 / 32768, 32256 / 32768)
values(wav(1, 1, 16, "\1\0\2\0", 0xFFFFFFFF):gsub("^RIFF....", "RIFF\xff\xff\xff\xff"), 1 / 32768, 2 / 32768) -- a stream

-- refusals
refused("part.wav: not a valid WAV file: its data has 4 of 6 bytes", audio.load, put("part.wav", wav(1, 1, 16, "\1\0\2\0", 6)))
refused("13 bits a sample are not supported", audio.decode, wav(1, 1, 13, "\1\0"))
refused("it has no data", audio.decode, wav(1, 1, 16, ""):sub(1, 36))
refused("it has 0 channels", audio.decode, wav(1, 0, 16, ""))
refused("it is empty", audio.load, put("none.wav", ""))
local t, message, code = audio.load(tmp .. "/missing.wav")
assert(t == nil and message:find "missing.wav" and code == "not_found")
refused("unknown option 'frames'", audio.load, tmp .. "/part.wav", { frames = 3 })

-- what save writes, load reads
accel.manual_seed(7)
local x = accel.rand(2, 5000) * 1.98 - 0.99
local function written(name, opts, bar, y)
  y = y or x
  assert(audio.save(tmp .. "/" .. name, y, 16000, opts))
  local got, rate = audio.load(tmp .. "/" .. name)
  assert(rate == 16000 and got.shape == x.shape, name)
  local gap = (got - x):abs():max():item()
  assert(gap <= bar, ("%s: off by %g"):format(name, gap))
  return audio.info(tmp .. "/" .. name)
end
local info = written("a.wav", nil, 0)
assert(info.encoding == "PCM_F" and info.bits_per_sample == 32 and info.num_frames == 5000 and info.num_channels == 2)
assert(written("a.wav", { encoding = "PCM_S", bits_per_sample = 16 }, 0.51 / 32768).bits_per_sample == 16)
written("a.wav", { bits_per_sample = 24 }, 0.51 / 8388608)
written("a.wav", { encoding = "PCM_U" }, 0.51 / 128)
written("a.wav", { encoding = "PCM_F", bits_per_sample = 64 }, 0)
written("a.wav", { channels_first = false }, 0, x:transpose(1, 2))
audio.save(tmp .. "/b.wav", (x * 32768):round():to "i16", 16000)
local raw = audio.load(tmp .. "/b.wav", { normalize = false })
assert(raw.dtype == "i16" and raw:eq((x * 32768):round():to "i16"):all():item())
audio.save(tmp .. "/b.wav", accel.tensor { { 2.0, -2.0 } }, 8000, { encoding = "PCM_S", bits_per_sample = 16 })
values(io.open(tmp .. "/b.wav", "rb"):read "a", 32767 / 32768, -1) -- cut

-- a part of a file
local part = audio.load(tmp .. "/a.wav", { frame_offset = 4998, num_frames = 100 })
assert(part.shape[2] == 2 and part:eq(x:narrow(2, 4999, 2)):all():item())
assert(audio.load(tmp .. "/a.wav", { frame_offset = 5001 }).shape[2] == 0)
assert(audio.load(tmp .. "/a.wav", { channels_first = false }).shape[1] == 5000)
refused("is wav, not flac", audio.load, tmp .. "/a.wav", { format = "flac" })
refused("save: encoding must be one of PCM_S", audio.save, tmp .. "/a.wav", x, 16000, { encoding = "PCM16" })
refused("save: sample_rate must be a positive integer, got nil", audio.save, tmp .. "/a.wav", x)
refused("save: format must be one of wav, flac, ogg, mp3, aiff, au, got 'doc'", audio.save, tmp .. "/a.doc", x, 16000)

local has = false
for _, library in ipairs(accel.libraries()) do
  if library.name == "sndfile" then has = library.version ~= nil end
end
if not has then
  print "without libsndfile: FLAC and Ogg are not tested"
  os.exit(0)
end
assert(written("a.flac", nil, 1.01 / 32768).encoding == "FLAC")
written("a.flac", { bits_per_sample = 24 }, 1.01 / 8388608)
local tone = accel.sin(accel.arange(0, 8000) * 0.05):unsqueeze(1)
assert(audio.save(tmp .. "/a.ogg", tone, 16000))
local ogg = audio.load(tmp .. "/a.ogg")
assert(ogg.shape[2] == 8000 and (ogg - tone):abs():max():item() < 0.05)
local f = io.open(tmp .. "/a.flac", "rb"):read "a"
refused("cut.flac: not a valid flac", audio.load, put("cut.flac", f:sub(1, #f // 2)))
print "ok"
