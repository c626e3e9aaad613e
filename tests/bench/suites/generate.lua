-- The bench of decoding: one text, a token at a time, by GPT-2 of 124M and a Llama of about 1B, in f32, bf16, int8 and NF4, beside
-- Transformers on torch and llama.cpp. A step reads every weight once, so that reading is its limit: the share of what a C program reads
-- in the same rounds is shown. The ids of f32 must be the same on all sides.
return function(h, suites)
  local MODELS <const> = { -- name, what, options of the sides, new tokens
    { "generate_124m", "GPT-2 124M", "--family gpt2 --layers 12 --width 768 --heads 12 --vocab 50257 --inner 3072", 48 },
    { "generate_1b", "Llama 1.1B", "--family llama --layers 22 --width 2048 --heads 32 --vocab 32000 --inner 5632", 16 },
  }
  -- What the folder holds, and the type of llama.cpp's file. torch runs the folder as it is: unquantised.
  local FORMS <const> = {
    { "f32", dtype = "f32", gguf = "F32" }, { "bf16", dtype = "bf16", gguf = "BF16" },
    { "int8", dtype = "bf16", gguf = "Q8_0" }, { "nf4", dtype = "bf16", gguf = "Q4_0" },
  }
  local QUICK <const> = "--family gpt2 --layers 2 --width 64 --heads 2 --vocab 320 --inner 256"
  local PROMPT <const> = 64

  -- A peer's interpreter and version, or nil where it is not wanted or not there.
  local function peer(name, package, version, install)
    if not h.wants_peers() then return nil end
    local python = h.quote(h.options.python or "python3")
    local found = h.capture(("%s -c 'import %s; print(%s)' 2>/dev/null"):format(python, package, version))
    if not found then
      h.skip(name, install)
      return nil
    end
    h.note("  peer: %s %s", name, found:gsub("%s+$", ""))
    return ("%senv OMP_NUM_THREADS=%d %s %s/sides/"):format(h.pin, h.options.threads, python, h.quote(h.here))
  end

  local function one(model, form)
    return function()
      local key, what, sizes, tokens = table.unpack(model)
      local kind, quick = form[1], h.quick and " --quick" or ""
      if h.quick then sizes, tokens = QUICK, 6 end
      local transformers = peer("transformers", "torch, transformers", "transformers.__version__", "pip install transformers torch")
      local llama_cpp = peer("llama_cpp", "llama_cpp", "llama_cpp.__version__", "pip install llama-cpp-python")
      local made = h.shared(("%s_%s"):format(key, form.dtype), "generate.lua", sizes .. " --dtype " .. form.dtype)
      local args = ("%s --dtype %s --prompt %d --tokens %d --data %s"):format(sizes, form.dtype, h.quick and 8 or PROMPT, tokens, h.quote(made))
      local sides = { h.accel("generate.lua", args .. (form.dtype ~= kind and " --quant " .. kind or "")) }
      if transformers then
        sides[#sides + 1] = { name = "transformers", peer = true, command = transformers .. "generate.py " .. args .. quick }
      end
      if llama_cpp then
        local file = h.shared(("%s_%s"):format(key, form.gguf), "generate.lua",
          ("%s --dtype %s --data %s --gguf %s"):format(sizes, form.dtype, h.quote(made), form.gguf))
        sides[#sides + 1] = { name = "llama_cpp", peer = true, command = ("%sgenerate_llama_cpp.py --file %s/model.gguf --vocab %d %s --threads %d")
          :format(llama_cpp, h.quote(file), sizes:match "%-%-vocab (%d+)", args:match "(%-%-prompt.*) %-%-data", h.options.threads) }
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
      local differs = {}
      for _, name in ipairs { "transformers", "llama_cpp" } do
        if got[name] and kind == "f32" and got.accel.ids[1] ~= got[name].ids[1] then differs[name] = "the ids are not the same" end
      end
      if not next(differs) then differs = nil end
      local title = ("token of %s %s"):format(what, kind) .. (form.dtype ~= kind and ", head too" or "") -- as llama.cpp's file has it
      local function of(name, field) return got[name] and { [name] = got[name][field] } or {} end
      h.row { what = title, unit = "ms", ours = got.accel.ms, peers = of("transformers", "ms"), differs = differs,
        goal = transformers and { ratio = 3 } or nil }
      if llama_cpp then
        h.row { what = ("  beside %s"):format(form.gguf), unit = "ms", ours = got.accel.ms, peers = of("llama_cpp", "ms"), differs = differs,
          goal = { ratio = 1.05 } }
      end
      h.row { what = ("  prompt of %d"):format(h.quick and 8 or PROMPT), unit = "ms", ours = got.accel.prompt_ms,
        peers = h.peers(got, "prompt_ms"), differs = differs }
      h.row { what = "  weights read", unit = "GB/s", ours = got.accel.gb, peers = h.peers(got, "gb"), higher = true }
      if limits then
        h.row { what = "  read by a C program", unit = "GB/s", ours = limits.read, higher = true }
        local read = h.median(limits.read)
        h.row { what = "  share of reading", unit = "%", higher = true, goal = { least = 80 },
          ours = h.map(got.accel.gb, function(r) return 100 * r / read end) }
      end
    end
  end
  for _, model in ipairs(MODELS) do
    for _, form in ipairs(FORMS) do
      suites[model[1] .. "_" .. form[1]] = { group = "generate", run = one(model, form),
        about = ("decoding of one text by a %s, %s"):format(model[2], form[1]) }
    end
  end
end
