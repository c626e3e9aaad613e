/* The point sets of IQ1, IQ2 and IQ3, shared by gguf_iq_points.c, which makes them, and gguf_iq.c. */
#ifndef ACI_FILE_GGUF_IQ_H
#define ACI_FILE_GGUF_IQ_H

/* Where each set begins: 8 values a point, of IQ3 4. */
enum {
  ACI_GGUF_IQ2_XXS = 0,
  ACI_GGUF_IQ2_XS = ACI_GGUF_IQ2_XXS + 256 * 8,
  ACI_GGUF_IQ2_S = ACI_GGUF_IQ2_XS + 512 * 8,
  ACI_GGUF_IQ3_XXS = ACI_GGUF_IQ2_S + 1024 * 8,
  ACI_GGUF_IQ3_S = ACI_GGUF_IQ3_XXS + 256 * 4,
  ACI_GGUF_IQ1 = ACI_GGUF_IQ3_S + 512 * 4,
  ACI_GGUF_IQ_BYTES = ACI_GGUF_IQ1 + 2048 * 8
};

/* The values of a set, point by point. Any thread may call it. */
const signed char *aci_gguf_iq_points(int at);

#endif
