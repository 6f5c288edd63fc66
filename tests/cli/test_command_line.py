"""What the command accepts and refuses before anything is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import Specdec


def test_help_of_every_command_needs_neither_torch_nor_ray() -> None:
    script = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from deployments.cli.main import app\n"
        "names = ['generate'], ['verify'], ['serve'], ['models'], ['models', 'pull']\n"
        "names += (['train-draft'], ['eval-draft'], ['top'])\n"
        "names += (['bench'], ['bench', 'serve'], ['bench', 'offline'])\n"
        "for command in ([], *names):\n"
        "    result = CliRunner().invoke(app, [*command, '--help'])\n"
        "    assert result.exit_code == 0, result.output\n"
        "heavy = {'torch', 'ray', 'transformers', 'grpc', 'aiohttp'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("command", ["nonsense", "simulated"])
def test_a_command_that_does_not_exist_is_refused(specdec: Specdec, command: str) -> None:
    assert specdec(command).status == 2


@pytest.mark.parametrize("command", ["generate", "verify", "serve", "models", "bench", "simulate"])
def test_an_unknown_flag_is_refused(specdec: Specdec, command: str) -> None:
    outcome = specdec(command, "--no-such-flag", "1")
    assert outcome.status == 2
    assert "--no-such-flag" in outcome.err


@pytest.mark.parametrize("command", ["generate", "verify", "serve"])
@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (["--tensor-parallel-size", "2"], "target_replicas"),
        (["--quantization=awq"], "bfloat16"),
        (["--enable-lora"], "merge"),
    ],
)
def test_a_flag_of_another_server_is_refused_with_what_to_use_instead(
    specdec: Specdec, command: str, arguments: list[str], instead: str
) -> None:
    outcome = specdec(command, *arguments)
    assert outcome.status == 2
    assert "not supported yet" in outcome.err
    assert instead in outcome.err


@pytest.mark.parametrize(
    ("flag", "value", "instead"),
    [
        ("--numerics", "bitwise", "exact"),
        ("--algorithm", "medusa", "autoregressive, eqspec, exspec-padded"),
        ("--dtype", "int8", "bfloat16"),
        ("--turns", "second", "first"),
        ("--turns", "", "first"),
        ("--spec-method", "eagle", "draft_model"),
        ("--batch-size", "0", "equal to 1"),
    ],
)
def test_a_value_that_does_not_work_is_refused_with_what_does(
    specdec: Specdec, flag: str, value: str, instead: str
) -> None:
    outcome = specdec("generate", "--input", __file__, "--output", "/dev/null", flag, value)
    assert outcome.status == 2
    assert instead in outcome.err
