print(os.getenv "RANK", os.getenv "ACCELERATE_MIXED_PRECISION", os.getenv "FSDP_VERSION", os.getenv "WORLD_SIZE", table.concat(arg, " "))
