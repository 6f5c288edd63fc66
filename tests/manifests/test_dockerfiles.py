"""docker/*.Dockerfile as they are read: no image was built of them."""

from __future__ import annotations

import json

import pytest

from tests.manifests.dockerfile import ROOT, dockerfile_problems, steps

NAMES = ("cpu", "gpu")
IGNORED = (ROOT / ".dockerignore").read_text()
every_file = pytest.mark.parametrize("name", NAMES)


def text_of(name: str) -> str:
    return (ROOT / "docker" / f"{name}.Dockerfile").read_text()


@every_file
def test_nothing_is_wrong(name: str) -> None:
    assert list(dockerfile_problems(text_of(name), IGNORED)) == []


@every_file
def test_the_command_is_one_that_specdec_has(name: str) -> None:
    """With what it names: the flags are those of the command line."""
    from typer.testing import CliRunner

    from deployments.cli.main import app

    (command,) = (json.loads(step.value) for step in steps(text_of(name)) if step.name == "CMD")
    assert command[0] == "specdec"
    result = CliRunner().invoke(app, [*command[1:], "--print-config"])
    assert result.exit_code == 0, result.output
    assert "host: 0.0.0.0" in result.output


def test_the_images_differ_in_torch_and_the_model_alone() -> None:
    cpu, gpu = ({(step.name, step.value) for step in steps(text_of(name))} for name in NAMES)
    differing = {name for name, _ in cpu ^ gpu}
    assert differing == {"ARG", "RUN", "COPY", "ENV", "CMD"}
    indexes = [value for name, value in sorted(cpu | gpu) if name == "ARG"]
    assert [index.rpartition("/")[2][:2] for index in indexes] == ["cp", "cu"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("python:3.11-slim-bookworm\n", "python\n", "base python has no version"),
        ("COPY proto proto", "COPY protos protos", "protos is not in the repository"),
        ("COPY proto proto", "COPY tests tests", "tests is kept out by .dockerignore"),
        ("COPY proto proto", "ADD proto proto", "COPY says what it does"),
        ("--from=build /opt/venv", "--from=builder /opt/venv", "no earlier stage"),
        (
            'install --constraint requirements.lock "',
            'install "',
            "not by requirements.lock",
        ),
        ('"$TORCH_INDEX" torch', '"$TORCH_INDEX" ray', "torch is not installed first"),
        (" --no-install-recommends", "", "without --no-install-recommends"),
        (" wget ", " ", "the image has no wget"),
        ("USER 1000:1000", "USER root", "it runs as root"),
        ("USER 1000:1000\n", "", "it runs as root"),
        ('CMD ["specdec", "serve"', "CMD specdec serve", "runs in a shell"),
    ],
)
def test_a_mistake_is_told(old: str, new: str, words: str) -> None:
    text = text_of("cpu")
    assert old in text
    found = list(dockerfile_problems(text.replace(old, new), IGNORED))
    with pytest.raises(AssertionError, match=words):
        assert not found, "\n".join(found)
