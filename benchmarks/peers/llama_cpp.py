"""A folder of llama.cpp's sources in which cmake has built its programs, and GGUF files from it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.made_whole import made_whole
from specdec_core.errors import InvalidRequestError, SpecdecError

_CONVERTER = "convert_hf_to_gguf.py"
_SENTENCEPIECE = "sentencepiece==0.2.3"
_BF16, _Q4 = "bf16", "Q4_0"


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """Programs are looked for in `build/bin` and in `../build/bin`, where cmake leaves them."""

    folder: Path

    def program(self, name: str) -> Path:
        """Raises InvalidRequestError where it is not built."""
        places = [self.folder / "build/bin" / name, self.folder.parent / "build/bin" / name]
        for place in places:
            if place.is_file():
                return place
        raise InvalidRequestError(f"no {name} in {places[0].parent}: build llama.cpp with cmake")

    @property
    def server(self) -> Path:
        return self.program("llama-server")

    def bfloat16(self, model: Path, cache: Path) -> Path:
        """The folder of a model as GGUF, by llama.cpp's own converter. Made once."""
        converter = self.folder / _CONVERTER
        if not converter.is_file():
            raise InvalidRequestError(f"no {_CONVERTER} in {self.folder}: name llama.cpp's sources")
        file = cache / f"{model.name}-llama-{_BF16}" / "model.gguf"
        if not file.is_file():
            with made_whole(file.parent) as made:
                how = ["--outtype", _BF16, "--outfile", str(made / file.name)]
                packages = str(_converter_packages(cache))
                _call([sys.executable, str(converter), str(model), *how], PYTHONPATH=packages)
        return file

    def q4(self, model: Path, cache: Path) -> Path:
        """The bfloat16 file, quantized to Q4_0 by llama-quantize. Made once."""
        source = self.bfloat16(model, cache)
        file = cache / f"{model.name}-llama-{_Q4}" / "model.gguf"
        if not file.is_file():
            with made_whole(file.parent) as made:
                output = str(made / file.name)
                _call([str(self.program("llama-quantize")), str(source), output, _Q4])
        return file


def _converter_packages(cache: Path) -> Path:
    """What the converter imports besides this Python's torch and transformers. Made once."""
    folder = cache / "llama-converter"
    if not folder.is_dir():
        with made_whole(folder) as made:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            _call([*pip, "--target", str(made), _SENTENCEPIECE])
    return folder


def _call(command: Sequence[str], **variables: str) -> None:
    everything = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=everything)
    if done.returncode:
        raise SpecdecError(f"{' '.join(command)} failed: {(done.stderr or done.stdout)[-2000:]}")
