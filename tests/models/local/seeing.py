"""Small models that see, of several families, with random weights and their own processors."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import torch

from palaestra.core.message import Image
from palaestra.models.local.image_reader import without_videos
from palaestra.models.local.tiny import learn_vocabulary

TEXT = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
TOWER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,  # as many as the language model has, so that they can be mistaken
    "num_attention_heads": 2,
}
SMOLVLM = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""The chat template of SmolVLM."""

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}"
    "{{ m.content }}{% else %}{% for part in m.content %}{% if part.type == 'image' %}PLACE"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def picture(seed: int, width: int = 48, height: int = 48) -> Image:
    """Return a picture of random pixels."""
    from PIL import Image as Picture

    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (height, width, 3), generator=generator, dtype=torch.uint8)
    file = io.BytesIO()
    Picture.frombytes("RGB", (width, height), pixels.numpy().tobytes()).save(file, "PNG")
    return Image.of(file.getvalue())


def tokenizer(*special: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    words = learn_vocabulary(["hello world go left right forward mission image look"] * 3, 400)
    return PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<|im_end|>", additional_special_tokens=list(special)
    )


def idefics3(kind: str, *, split: bool = False) -> tuple[Any, Any]:
    """Return a processor and a configuration of SmolVLM or Idefics3."""
    from transformers import AutoConfig, Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    cells = [f"<row_{i}_col_{j}>" for i in (1, 2) for j in (1, 2)]
    words = tokenizer("<fake_token_around_image>", "<image>", "<global-img>", *cells)
    edge = {"longest_edge": 56}
    reads = Idefics3ImageProcessorPil(
        do_image_splitting=split,
        size={"longest_edge": 112} if split else edge,
        max_image_size=edge,
    )
    processor = Idefics3Processor(reads, words, image_seq_len=4, chat_template=SMOLVLM)
    config = AutoConfig.for_model(
        kind,
        image_token_id=processor.image_token_id,
        scale_factor=2,
        text_config={"model_type": "llama", "vocab_size": len(words), **TEXT},
        vision_config={**TOWER, "image_size": 56, "patch_size": 14},
    )
    return processor, config


def qwen_vl(kind: str) -> tuple[Any, Any]:
    """Return a processor and a configuration of Qwen2-VL or Qwen2.5-VL."""
    import transformers
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    named = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    words = tokenizer("<|im_start|>", *named.values())
    reads = Qwen2VLImageProcessorPil(
        patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=16 * 16, max_pixels=32 * 32
    )
    newer = kind == "qwen2_5_vl"
    own = transformers.Qwen2_5_VLProcessor if newer else transformers.Qwen2VLProcessor
    template = CHATML.replace("PLACE", "<|vision_start|><|image_pad|><|vision_end|>")
    processor = without_videos(own)(reads, words, chat_template=template)
    tower = {"depth": 3, "num_heads": 2, "patch_size": 4}
    if newer:
        tower |= {"hidden_size": 32, "intermediate_size": 64, "out_hidden_size": 48}
        tower |= {"window_size": 16, "fullatt_block_indexes": [1]}
    else:
        tower |= {"embed_dim": 32, "hidden_size": 48, "mlp_ratio": 2}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2, 2]}
    end = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), words.eos_token_id)
    config = transformers.AutoConfig.for_model(
        kind,
        **{name: words.convert_tokens_to_ids(token) for name, token in named.items()},
        **end,
        text_config={"vocab_size": len(words), "rope_parameters": rope, **end, **TEXT},
        vision_config=tower,
    )
    return processor, config


def llava() -> tuple[Any, Any]:
    """Return a processor and a configuration of LLaVA."""
    from transformers import AutoConfig, LlavaProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    words = tokenizer("<|im_start|>", "<image>")
    reads = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor = LlavaProcessor(
        reads,
        words,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHATML.replace("PLACE", "<image>"),
    )
    config = AutoConfig.for_model(
        "llava",
        image_token_index=words.convert_tokens_to_ids("<image>"),
        text_config={"model_type": "llama", "vocab_size": len(words), **TEXT},
        vision_config={
            "model_type": "clip_vision_model",
            **TOWER,
            "image_size": 32,
            "patch_size": 8,
        },
        vision_feature_layer=-2,
    )
    return processor, config


def gemma3() -> tuple[Any, Any]:
    """Return a processor and a configuration of Gemma 3."""
    from transformers import AutoConfig, Gemma3Processor
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    named = {"boi_token": "<start>", "eoi_token": "<end>", "image_token": "<soft>"}
    words = tokenizer("<|im_start|>", *named.values())
    words = type(words)(
        tokenizer_object=words.backend_tokenizer,
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        extra_special_tokens=named,
    )
    reads = Gemma3ImageProcessorPil(size={"height": 32, "width": 32})
    template = CHATML.replace("PLACE", "<start>")
    processor = Gemma3Processor(reads, words, image_seq_length=4, chat_template=template)
    config = AutoConfig.for_model(
        "gemma3",
        image_token_index=words.convert_tokens_to_ids("<soft>"),
        boi_token_index=words.convert_tokens_to_ids("<start>"),
        eoi_token_index=words.convert_tokens_to_ids("<end>"),
        mm_tokens_per_image=4,
        text_config={"vocab_size": len(words), "head_dim": 12, "sliding_window": 64, **TEXT},
        vision_config={
            "model_type": "siglip_vision_model",
            **TOWER,
            "image_size": 32,
            "patch_size": 8,
        },
    )
    return processor, config


def parts_of(kind: str) -> tuple[Any, Any]:
    """Return a processor and a configuration by the name of a family."""
    match kind:
        case "llava":
            return llava()
        case "qwen2_vl" | "qwen2_5_vl":
            return qwen_vl(kind)
        case "gemma3":
            return gemma3()
        case "idefics3":
            return idefics3(kind, split=True)
    return idefics3(kind)


def write(kind: str, folder: Path) -> Any:
    """Write a small checkpoint with random weights; return transformers' model of it."""
    from transformers import AutoModelForImageTextToText

    processor, config = parts_of(kind)
    torch.manual_seed(0)
    build: Any = AutoModelForImageTextToText.from_config
    model = build(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    if kind == "smolvlm":  # as it is published: its own processor, with a part for videos
        file = folder / "processor_config.json"
        data = json.loads(file.read_text())
        videos = {"video_processor_type": "SmolVLMVideoProcessor", "do_resize": True}
        named = {"processor_class": "SmolVLMProcessor", "video_processor": videos}
        file.write_text(json.dumps(data | named))
    return model
