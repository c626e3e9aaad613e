-- The bench of decoding: one text, a token at a time, by GPT-2 of 124M and a Llama of about 1B, beside Transformers on torch. A
-- step reads every weight once, so that reading is its limit: the share of what a C program reads is shown. The ids of both sides
-- must be the same in f32.
return function(h, suites)
  local MODELS <const> = { -- name, what, options of the sides, dtypes, new tokens
    { "generate_124m", "GPT-2 124M", "--family gpt2 --layers 12 --width 768 --heads 12 --vocab 50257 --inner 3072", { "f32", "bf16" }, 48 },
    { "generate_1b", "Llama 1.1B", "--family llama --layers 22 --width 2048 --heads 32 --vocab 32000 --inner 5632", { "bf16" }, 16 },
  }
  local QUICK <const> = "--family gpt2 --layers 2 --width 64 --heads 2 --vocab 300 --inner 256"
  local PROMPT <const> = 64

  -- Transformers' interpreter, or nil where it is not wanted or not there.
  local function peer()
    if not h.wants_peers() then return nil end
    local python = h.quote(h.options.python or "python3")
    local version = h.capture(python .. " -c 'import torch, transformers; print(transformers.__version__)' 2>/dev/null")
    if not version then
      h.skip("transformers", "pip install transformers torch")
      return nil
    end
    h.note("  peer: transformers %s", version:gsub("%s+$", ""))
    return python
  end

  local function one(model, dtype)
    return function()
      local _, what, sizes, _, tokens = table.unpack(model)
      if h.quick then sizes, tokens = QUICK, 6 end
      local args = ("%s --dtype %s --prompt %d --tokens %d --data %s"):format(sizes, dtype, h.quick and 8 or PROMPT, tokens,
        h.quote(h.shared("generate_" .. dtype, "generate.lua", sizes .. " --dtype " .. dtype)))
      local sides, python = { h.accel("generate.lua", args) }, peer()
      if python then
        sides[2] = { name = "transformers", peer = true,
          command = ("%senv OMP_NUM_THREADS=%d %s %s %s%s"):format(h.pin, h.options.threads, python, h.quote(h.here .. "/sides/generate.py"),
            args, h.quick and " --quick" or "") }
      end
      local tool, why = h.compile("memory.c", "cc", "-march=native -pthread")
      if tool then
        sides[#sides + 1] = { name = "memory", peer = true,
          command = ("%s%s %d %d"):format(h.pin, h.quote(tool), h.options.threads, h.quick and 4 or 64) }
      else
        h.skip("memory", why)
      end
      local got = h.alternate(sides)
      local limits = got.memory
      got.memory = nil
      local differs
      if got.transformers and dtype == "f32" and got.accel.ids[1] ~= got.transformers.ids[1] then
        differs = { transformers = "the ids are not the same" }
      end
      h.row { what = ("token of %s %s"):format(what, dtype), unit = "ms", ours = got.accel.ms, peers = h.peers(got, "ms"), differs = differs,
        goal = python and { ratio = 3 } or nil }
      h.row { what = ("  prompt of %d"):format(h.quick and 8 or PROMPT), unit = "ms", ours = got.accel.prompt_ms,
        peers = h.peers(got, "prompt_ms"), differs = differs }
      local share = limits and ("%.0f %% of read"):format(100 * h.median(got.accel.gb) / h.median(limits.read))
      h.row { what = "  weights read", unit = "GB/s", ours = got.accel.gb, peers = h.peers(got, "gb"), higher = true, share = share }
      if limits then h.row { what = "  read by a C program", unit = "GB/s", ours = limits.read, higher = true } end
    end
  end
  for _, model in ipairs(MODELS) do
    for _, dtype in ipairs(model[4]) do
      suites[model[1] .. "_" .. dtype] = { group = "generate", run = one(model, dtype),
        about = ("decoding of one text by a %s, %s"):format(model[2], dtype) }
    end
  end
end
