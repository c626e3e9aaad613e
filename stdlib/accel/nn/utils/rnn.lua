--- accel.nn.utils.rnn: sequences of different lengths in one tensor, padded or packed, loaded on first use.
return require "accel.util.lazy" ("accel.nn.utils.rnn", {
  pad_sequence = "accel.nn.utils.padding", unpad_sequence = "accel.nn.utils.padding",
  PackedSequence = "accel.nn.utils.packed_sequence", pack_padded_sequence = "accel.nn.utils.packed_sequence",
  pad_packed_sequence = "accel.nn.utils.packed_sequence", pack_sequence = "accel.nn.utils.packed_sequence",
  unpack_sequence = "accel.nn.utils.packed_sequence",
})
