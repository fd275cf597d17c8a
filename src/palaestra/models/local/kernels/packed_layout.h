/* The layout of packed weights: blocks of COLUMNS outputs, padded with zeros. Within a block, for all
   outputs side by side, lie the weights of one input (fp32), or those of two inputs (bf16), which
   stay side by side: [blocks, inputs, COLUMNS], or [blocks, (inputs + 1) / 2, COLUMNS, 2]. */

#define COLUMNS 48
