"""The compiler's output: sums that stay in registers, and the configuration of AMX's tiles."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from specdec_core.kernels import ops as native_kernels
from specdec_core.kernels.build import FLAGS

SOURCE = Path(native_kernels.__file__).parent / "csrc" / "kernels.c"
AVX2 = "-march=x86-64-v3"
"""Sixteen registers, the fewest of all that the kernels are built for."""
AMX = "-march=sapphirerapids"


def assembly(march: str) -> str:
    """Return what GCC makes of the kernels; skip where there is no GCC that knows `march`."""
    try:
        version = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True)
    except OSError:
        pytest.skip("no gcc")
    if "Free Software Foundation" not in version.stdout:
        pytest.skip("gcc is another compiler here")
    if subprocess.run(["gcc", march, "-E", "-"], input=b"", capture_output=True).returncode:
        pytest.skip(f"gcc knows no {march}")
    flags = [march if flag == "-march=native" else flag for flag in FLAGS if flag != "-shared"]
    command = ["gcc", *flags, "-S", "-o", "-", str(SOURCE)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def innermost_loops(lines: list[str]) -> Iterator[list[str]]:
    places: dict[str, int] = {}
    for place, line in enumerate(lines):
        if label := re.match(r"(\.L\d+):", line):
            places[label[1]] = place
        if (jump := re.match(r"\s+j\w+\s+(\.L\d+)", line)) and jump[1] in places:
            body = lines[places[jump[1]] + 1 : place]
            if not any(re.match(r"\.L\d+:", each) for each in body):
                yield body


def test_without_avx512_no_sum_of_many_rows_lies_in_memory() -> None:
    """Their loops multiply each number of a row by two vectors of outputs."""
    num_found = 0
    for body in innermost_loops(assembly(AVX2).splitlines()):
        num_products = sum("vfmadd" in line for line in body)
        num_numbers = sum("vbroadcastss" in line for line in body)
        if num_products >= 16 and num_products == 2 * num_numbers:
            num_found += 1
            in_memory = [line for line in body if "%ymm" in line and "(%rsp)" in line]
            assert not in_memory, f"of {num_products // 4} rows"
    assert num_found >= 2, "of four rows and five"


def test_the_configuration_of_tiles_is_no_local_variable() -> None:
    """GCC 12 left out most of its stores, as its header names only 8 of the 64 bytes."""
    loads = re.findall(r"ldtilecfg\s+(\S+)", assembly(AMX))
    assert loads
    assert all(operand.endswith("(%rip)") for operand in loads)
