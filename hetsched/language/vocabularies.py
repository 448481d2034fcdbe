"""The vocabulary of a model file or folder."""

from __future__ import annotations

from pathlib import Path

from hetsched.errors import OptionError
from hetsched.frontends import format_of
from hetsched.language.vocabulary import Vocabulary

#: Formats that hold a vocabulary, or have one beside them.
FORMATS = ("gguf", "huggingface")


def vocabulary_of(path: Path) -> Vocabulary:
    """The vocabulary of the model at ``path``: of a GGUF file its own, of a Hugging Face folder its ``tokenizer.json``.

    Raises:
        ModelError: there is no vocabulary, or a damaged one.
        OptionError: the format has none.
        UnsupportedModelError: it does something that is not read.
    """
    kind = format_of(path)
    if kind not in FORMATS:
        raise OptionError(
            f"text is generated from GGUF files and Hugging Face folders, which have a vocabulary, and {path} is of the format {kind}"
        )
    if kind == "gguf":
        from hetsched.language.gguf_vocabulary import read_vocabulary

        return read_vocabulary(path)
    from hetsched.language.folder_vocabulary import read_folder_vocabulary

    return read_folder_vocabulary(path if path.is_dir() else path.parent)
