"""What a process group is for: tensor, pipeline or data parallelism …, where DeviceMesh or Megatron has named it."""

import sys

# Words of a description, as DeviceMesh ("mesh_dp_shard") and Megatron ("TENSOR_MODEL_PARALLEL_GROUP") write it.
_WORDS = {
    "tp": "tp", "tensor_model_parallel": "tp", "tensor_parallel": "tp", "tensor": "tp",
    "pp": "pp", "pipeline_model_parallel": "pp", "pipeline_parallel": "pp", "pipeline": "pp", "pipe": "pp",
    "dp": "dp", "ddp": "dp", "data_parallel": "dp", "data": "dp",
    "cp": "cp", "context_parallel": "cp", "context": "cp",
    "ep": "ep", "expert_parallel": "ep", "expert_model_parallel": "ep", "expert": "ep",
    "sp": "sp", "sequence_parallel": "sp",
    "mp": "mp", "model_parallel": "mp", "model": "mp",
    "shard": "shard", "dp_shard": "shard", "fsdp": "shard", "hsdp_shard": "shard",
    "replicate": "replicate", "dp_replicate": "replicate", "hsdp_replicate": "replicate",
    "embedding": "embedding", "position_embedding": "embedding",
    "data_parallel_group_with_cp": "dp", "data_parallel_with_cp": "dp",
}  # fmt: skip
_MEGATRON = {
    "_TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "_PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "_DATA_PARALLEL_GROUP": "dp",
    "_DATA_PARALLEL_GROUP_WITH_CP": "dp",
    "_CONTEXT_PARALLEL_GROUP": "cp",
    "_EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "_MODEL_PARALLEL_GROUP": "mp",
    "_EMBEDDING_GROUP": "embedding",
}
"""Variables of megatron.core.parallel_state, which older releases do not describe to torch."""


def role_of(group):
    """What `group` is for, one of layout.ROLES; empty where nobody has named it. Asked once per group."""
    word = word_of(str(getattr(group, "group_desc", "") or ""))
    if not word:
        state = sys.modules.get("megatron.core.parallel_state") or sys.modules.get("megatron.mpu")
        word = next((w for name, w in _MEGATRON.items() if getattr(state, name, None) is group), "")
    return word


def word_of(description):
    """The role that a description names; empty for none, or for several."""
    text = description.lower()
    for before in ("mesh_", "intra_", "inter_"):
        text = text[len(before) :] if text.startswith(before) else text  # noqa: FURB188 - Python 3.8
    text = text[: -len("_group")] if text.endswith("_group") else text  # noqa: FURB188
    return _WORDS.get(text, "")
