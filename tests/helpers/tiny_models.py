# pyright: basic, reportMissingImports=false
"""Models of transformers of a few thousand random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def make_t5(folder: Path) -> Path:
    """A sequence-to-sequence model of a few thousand weights, with a token for each byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({word: n for n, word in enumerate(["<pad>", "</s>", *alphabet])}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>", pad_token="<pad>")
    shape: dict[str, Any] = {"d_model": 16, "d_ff": 16, "num_layers": 1, "num_heads": 1, "d_kv": 16}
    shape |= {"decoder_start_token_id": 0, "dropout_rate": 0.0}
    config = T5Config(vocab_size=len(tokenizer), **shape)
    T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
