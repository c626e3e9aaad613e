-- Features of sounds for data_files.lua: transforms by torchaudio's names in f64, and the feature extractors of models.
local accel = require "accel"
local values = require "data_values"

local F, T = accel.audio.functional, accel.audio.transforms
local M = {}

local function plain(args) -- JSON's null is an option that is not given
  local o = {}
  for k, v in pairs(args) do
    if type(v) == "table" and next(v) ~= nil then v = plain(v) end
    if v ~= accel.json.null then o[k] = v end
  end
  return o
end

local RUN <const> = {
  resample = function(x, a) return F.resample(x, a) end,
  stft = function(x, a)
    a.window, a.return_complex = accel.hann_window(a.win_length or a.n_fft, { dtype = x.dtype }), true
    return x:stft(a)
  end,
  melscale_fbanks = function(_, a) return F.melscale_fbanks(a) end,
  AmplitudeToDB = function(x, a) return T.AmplitudeToDB(a)(x) end,
  mu_law_encoding = function(x, a) return F.mu_law_encoding(x, a.quantization_channels) end,
  preemphasis = function(x, a) return F.preemphasis(x, a.coeff) end,
}
for _, name in ipairs { "Spectrogram", "MelSpectrogram", "MFCC" } do RUN[name] = function(x, a) return T[name](a)(x) end end

function M.left_out(row)
  if row.op and row.op:find "^kaldi" then return "Kaldi's features are not provided" end
  if row.op == "resample_poly" then return "SciPy's resample_poly is not provided; audio.functional.resample is" end
  if row.class == "ASTFeatureExtractor" then return "it is of Kaldi's features" end
end

function M.read(path, row, dir)
  local samples, rate = accel.audio.load(path)
  if not samples then return nil, rate end
  if row.class then
    local extractor = assert(accel.audio.AutoFeatureExtractor.from_pretrained(dir .. "/" .. row.config))
    return extractor(samples, { sampling_rate = rate })
  end
  local a = plain(row.args)
  local x = samples:to "f64"
  return RUN[row.op](x, a)
end

function M.compare(got, row, report, want)
  if want.input_features_first150 then -- of 3000 frames, whose rest is silence
    local y = got.input_features:squeeze(1)
    got = { input_features_first150 = y:narrow(2, 1, 150), rest = y:narrow(2, 151, y.shape[2] - 150):max():reshape(1),
      shape = accel.tensor({ y.shape[1], y.shape[2] }, { dtype = "i64" }) }
  end
  for name, w in pairs(want) do
    local g = accel.is_tensor(got) and got or got[name]
    if not g then return report(name, "missing", "a tensor") end
    if g:is_complex() and not w:is_complex() then g = accel.view_as_real(g) end
    if g:dim() == w:dim() + 1 and g.shape[1] == 1 and w:dim() > 0 then g = g:squeeze(1) end
    values.tensor(report, name, g, w, row.tolerance)
  end
end

return M
