--- accel.text: tokenizers, simple vocabularies and a baseline, loaded on first use.
return require "accel.util.lazy" ("accel.text", {
  CharVocab = "char_vocab", ByteVocab = "byte_vocab", Trigram = "trigram",
  WordVocab = "word_vocab", Tokenizer = "tokenizer", Encoding = "encoding", DecodeStream = "decode_stream",
  Template = "template", TextStreamer = "text_streamer", train_bpe = "train_bpe",
  sentences = "sentences",
})
