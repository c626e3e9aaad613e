--- XLM-RoBERTa: RoBERTa under another name.
--- example: #accel.models.XLMRobertaModel({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 23
return require "accel.models.encoder.bert_like" { model_type = "xlm-roberta", prefix = "XLMRoberta",
  order = { [""] = "lm_head classifier qa_outputs roberta",
    embeddings = "word_embeddings token_type_embeddings LayerNorm position_embeddings" } }
