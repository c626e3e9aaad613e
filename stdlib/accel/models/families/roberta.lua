--- RoBERTa: BERT with positions that count from the padding id + 1, and different heads.
--- example: #accel.models.RobertaModel({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 23
return require "accel.models.encoder.bert_like" { model_type = "roberta", prefix = "Roberta",
  order = { embeddings = "word_embeddings token_type_embeddings LayerNorm position_embeddings" } }
