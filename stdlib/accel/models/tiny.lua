--- models.tiny.FAMILY: the smallest configurations that have everything, to try things with: a few thousand
--- parameters, a vocabulary of 9.
return {
  gpt2 = { vocab_size = 9, n_positions = 16, n_embd = 8, n_layer = 2, n_head = 2 },
  llama = {
    vocab_size = 9, hidden_size = 8, intermediate_size = 12, num_hidden_layers = 2, num_attention_heads = 2,
    num_key_value_heads = 1, max_position_embeddings = 16,
  },
  mixtral = {
    vocab_size = 9, hidden_size = 8, intermediate_size = 12, num_hidden_layers = 2, num_attention_heads = 2,
    num_key_value_heads = 1, max_position_embeddings = 16, num_local_experts = 3, num_experts_per_tok = 2,
  },
  bert = {
    vocab_size = 9, hidden_size = 8, intermediate_size = 12, num_hidden_layers = 2, num_attention_heads = 2,
    max_position_embeddings = 16,
  },
  t5 = { vocab_size = 9, d_model = 8, d_kv = 4, d_ff = 12, num_layers = 2, num_heads = 2 },
  vit = {
    image_size = 8, patch_size = 4, hidden_size = 8, intermediate_size = 12, num_hidden_layers = 2,
    num_attention_heads = 2,
  },
  resnet = { embedding_size = 4, hidden_sizes = { 4, 8 }, depths = { 1, 1 }, layer_type = "basic" },
}
