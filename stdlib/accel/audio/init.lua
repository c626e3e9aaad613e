--- accel.audio: sound files and their transforms, by torchaudio's names, loaded on first use. The guide vision-and-sound has examples.
return require "accel.util.lazy" ("accel.audio", {
  load = "io", info = "io", save = "io", decode = "io", AudioFolder = "audio_folder",
  functional = "functional", transforms = "transforms", AutoFeatureExtractor = "feature_extractor",
  WhisperFeatureExtractor = "feature_extractor" })
