-- examples/sentence_search.lua with a model made here: sentences, pooling, answers, and what it refuses. With a real model:
-- sentence_model_test.lua.
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")
local accel = require "accel"
local src, tmp = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_TMP"
local folder = tmp .. "/model"

local function write(name, text) assert(accel.write_file(tmp .. "/" .. name, text)) end

accel.manual_seed(5)
local tok = assert(accel.text.Tokenizer.from_file(src .. "/tests/reference/tokenizers/wordpiece.json"))
tok.pad_token, tok.model_max_length = "[PAD]", 24
local model = accel.models.BertModel {
  vocab_size = tok:id_limit(), hidden_size = 16, num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 32,
  max_position_embeddings = 32,
}
assert(model:save_pretrained(folder))
assert(tok:save_pretrained(folder))
write("model/modules.json", [[[{"type": "sentence_transformers.models.Transformer", "path": ""},
  {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}, {"type": "x.Normalize", "path": "2"}]
]])
assert(accel.makedirs(folder .. "/1_Pooling"))
write("model/1_Pooling/config.json", [[{"pooling_mode_mean_tokens": true}]])
write("text.txt", "To be, or not to be. That is the question!\n\nWhether 'tis nobler (in the mind?) to suffer\nthe slings.\n  \n...\n")

-- the sentence itself is the nearest one, whatever the weights
local out = examples.run "@sentence_search.lua ~model ~text.txt --top 2 --query 'That is the question!' --save ~v.safetensors"
assert(out:match "^1%.000  That is the question!\n%d%.%d%d%d  [^\n]+\n$", out)
local vectors = assert(accel.load(tmp .. "/v.safetensors")).vectors
assert(vectors.shape[1] == 4 and vectors.shape[2] == 16)
local _ <close> = accel.no_grad()
model:eval()
for i, sentence in ipairs { "To be, or not to be.", "That is the question!", "Whether 'tis nobler (in the mind?)", "to suffer the slings." } do
  local x = model(tok(sentence, { return_tensors = true }).input_ids)
  local want = accel.nn.functional.normalize(x:mean(2))
  assert((want - vectors[i]):abs():max():item() < 1e-5, sentence)
end
-- lines, and questions from standard input
local p = assert(io.popen(("printf 'the question\\n\\nthe slings.\\n' | '%s/bin/accel-run' '%s/examples/sentence_search.lua' "
  .. "--lines --top 1 '%s' '%s/text.txt' 2>/dev/null"):format(os.getenv "ACCEL_TEST_BUILD", src, folder, tmp)))
local text = p:read "a"
assert(p:close() and text:match "^%? the question\n%-?%d%.%d+  [^\n]+\n\n%? the slings%.\n1%.000  the slings%.\n$", text)
-- a sentence that is wider than the terminal goes on below itself
write("long.txt", ("to be or not to be "):rep(30))
out = examples.run "@sentence_search.lua ~model ~long.txt --top 1 --query 'to be'"
assert(out:find "\n       %l" and not out:find "\n  ? ? ? ? ?%S", out)
for line in out:gmatch "[^\n]+" do assert(#line <= accel.util.terminal.width(), line) end
for _, mode in ipairs { "cls", "max" } do
  write("model/1_Pooling/config.json", ([[{"pooling_mode_%s_token%s": true}]]):format(mode, mode == "max" and "s" or ""))
  out = examples.run "@sentence_search.lua ~model ~text.txt --top 1 --query 'to be' --save ~w.safetensors"
  local other = assert(accel.load(tmp .. "/w.safetensors")).vectors
  assert((other - vectors):abs():max():item() > 1e-3, mode .. " gives the mean")
end

write("model/modules.json", [[[{"type": "sentence_transformers.models.Dense", "path": "3"}]
]])
examples.refused("@sentence_search.lua ~model ~text.txt", "asks for sentence_transformers.models.Dense", nil, 1)
examples.refused("@sentence_search.lua ~model", "at least one file")
examples.refused("@sentence_search.lua ~nowhere ~text.txt", "nowhere: no such folder, and nothing is downloaded", nil, 1)
examples.refused("@sentence_search.lua ~model ~text.txt --top 0", "'--top' must be positive")
write("model/modules.json", "[]\n")
write("empty.txt", "...\n")
examples.refused("@sentence_search.lua ~model ~empty.txt", "no sentence", nil, 1)
