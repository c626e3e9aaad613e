-- The bench of memory-bound ops: maps, reductions and norms of 16M elements, beside PyTorch's and beside what threads
-- of a C program reach, in the same rounds.
return function(h, suites)
  -- what is only read has reading as its limit
  local reads = { sum = 1, sum_dim1 = 1, sum_dim2 = 1, amax = 1, argmax = 1, norm = 1, var_dim2 = 1, mse_loss = 1 }

  local function one(dtype)
    return function()
      local sides = h.both("bandwidth.lua", "bandwidth", "--dtype " .. dtype, { "tuned" })
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
      local function limit(name, key)
        if limits then h.row { what = name, unit = "GB/s", ours = limits[key], higher = true } end
      end
      limit("copy, read + write counted", "copy")
      limit("copy past the caches", "copy_nt")
      limit("read", "read")
      limit("write", "write")
      for name, v in pairs(got.accel) do
        local share
        if limits then
          local copy = math.max(h.median(limits.copy), h.median(limits.copy_nt))
          local most = reads[name] and h.median(limits.read) or copy
          share = ("%.0f %% of %s"):format(100 * h.median(v) / most, reads[name] and "read" or "copy")
        end
        h.row { what = name, unit = "GB/s", ours = v, peers = h.peers(got, name), higher = true, share = share }
      end
    end
  end
  for _, dtype in ipairs { "f32", "bf16" } do
    suites["bandwidth_" .. dtype] = { group = "bandwidth", run = one(dtype),
      about = ("maps, reductions, norms of 16M elements, %s, in GB/s"):format(dtype) }
  end
end
