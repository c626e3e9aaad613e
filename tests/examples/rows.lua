-- What the tests of all examples share: short arguments for each, the files that some of them read, and their names.
local accel = require "accel"
local src, tmp = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_TMP"

local M = {}

-- Arguments that make an example short; each runs in a folder of its own, ~ is the test's. {"...", ranks, more}: on so many as well,
-- with more arguments.
M.arguments = {
  ["01_tensors"] = "", ["02_mlp"] = "--epochs 1", ["03_digits_cnn"] = "--epochs 1", ["04_text_classifier"] = "--epochs 1",
  ["05_ranks"] = { "--steps 3", 2 }, ["06_accelerator"] = { "--epochs 1", 2 }, ["07_gradient_accumulation"] = { "--epochs 1", 2 },
  ["08_automatic_gradient_accumulation"] = "--epochs 1", ["09_memory"] = "--epochs 1", ["10_multi_process_metrics"] = { "--epochs 1", 2 },
  ["11_cross_validation"] = "--epochs 1", ["12_early_stopping"] = "--epochs 2", ["13_local_sgd"] = { "--steps 8", 2 },
  ["14_ddp_comm_hook"] = { "--epochs 1", 2 }, ["15_schedule_free"] = "--epochs 1", ["16_tracking"] = "--epochs 1",
  ["17_nlp"] = "--epochs 1", ["18_cv"] = { "--epochs 1", 2 }, ["19_distributed_inference"] = "--tokens 2 --steps 4",
  ["20_variable_length"] = "--epochs 1", ["21_data_workers"] = "--work 1", ["22_custom_function"] = "",
  ["23_recompute"] = "--layers 2 --width 16 --steps 2", ["24_checkpointing"] = "--epochs 1 --output-dir out",
  ["25_big_model_inference"] = "--layers 2 --width 64 --tokens 2", ["26_train_in_less_memory"] = "--small --steps 2 --offload none",
  ["27_deepspeed"] = { "--epochs 1", 2 }, ["28_zero3"] = { "--layers 2 --width 64 --steps 3", 2 },
  ["29_fsdp_with_peak_mem_tracking"] = { "--width 32 --epochs 1", 2 }, ["30_run_store"] = "--steps 5 --out store",
  ["31_model_parallel"] = { "--steps 2", 2, " --dp 2" }, ["32_profiler"] = "--traces traces", ["33_qlora"] = "--steps 3", ["34_fp8"] = "--steps 5",
  ["35_diffusion"] = "--steps 4 --width 64", ["36_ulysses"] = { "--steps 2", 2 }, ["37_pipeline_inference"] = "",
  ["38_nd_parallel"] = { "--num-steps 2", 2 }, ["39_photographs"] = { "--epochs 1 --pictures 8", 2 },
  ["40_compressed_shards"] = { "--steps 3", 2 }, ["41_parquet_text"] = { "--epochs 1", 2 },
  ["42_keyword_spotting"] = { "--epochs 1 --sounds 8", 2 }, ["43_lose_a_rank"] = { "--updates 6 --kill-at 0", 2 },
  sweep = "--steps 5 --out store",
  train_gpt = "--steps 2 --layers 1 --width 32 --out gpt '~text.txt'", chat = "~model <~said.txt",
  sentence_search = "~bert ~text.txt --query 'to be'", augmented_digits = false, -- a module of 21_data_workers
  loss_picture = false, -- needs a trained model: train_gpt_test.lua
}

local function write(name, text) assert(accel.write_file(tmp .. "/" .. name, text)) end

-- What some of them read.
write("text.txt", ("To be, or not to be. That is the question!\n"):rep(200))
write("said.txt", "hello there\n")
accel.manual_seed(6)
local tok = accel.text.train_bpe({ "hello there how are you today" }, { vocab_size = 270, special_tokens = { "<end>", "<user>", "<assistant>" } })
tok.eos_token = "<end>"
tok.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
local function size(more)
  local c = { vocab_size = tok:id_limit(), hidden_size = 16, intermediate_size = 24, num_hidden_layers = 1, num_attention_heads = 2,
    max_position_embeddings = 400 }
  for key, value in next, more do c[key] = value end
  return c
end
assert(accel.models.Llama(size { eos_token_id = 0 }):save_pretrained(tmp .. "/model") and tok:save_pretrained(tmp .. "/model"))
local words = assert(accel.text.Tokenizer.from_file(src .. "/tests/reference/tokenizers/wordpiece.json"))
words.pad_token, words.model_max_length = "[PAD]", 24
assert(accel.models.BertModel(size { vocab_size = words:id_limit() }):save_pretrained(tmp .. "/bert") and words:save_pretrained(tmp .. "/bert"))

M.names = {}
for name in require "lfs".dir(src .. "/examples") do
  name = name:match "^([%w_]+)%.lua$"
  if name then
    assert(M.arguments[name] ~= nil, "tests/examples/rows.lua has no row for examples/" .. name .. ".lua")
    if M.arguments[name] then M.names[#M.names + 1] = name end
  end
end
table.sort(M.names)
assert(#M.names >= 40)

-- Arguments with which examples write states.
M.saving = {
  ["17_nlp"] = "--checkpointing-steps epoch --output-dir out", ["18_cv"] = "--checkpointing-steps epoch --output-dir out",
  ["28_zero3"] = "--output-dir out", ["38_nd_parallel"] = "--save-dir out --checkpoint-frequency 1",
}

return M
