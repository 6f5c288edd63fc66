"""The command line of the report."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu_report.environment import environment, has_gpu
from benchmarks.gpu_report.goals import Verdict, judge
from benchmarks.gpu_report.page import page, summary
from benchmarks.gpu_report.results import Result, Status, load, path_of
from benchmarks.gpu_report.runner import Runner, mismatch
from benchmarks.gpu_report.settings import REHEARSED, Settings, Sizes
from benchmarks.gpu_report.steps import STEPS, TOTAL_S, Step

_EPILOG = """examples:
  python -m benchmarks.gpu_report                       all steps on the GPU, at most 26 minutes
  python -m benchmarks.gpu_report --minutes 9           what fits; start it again for the rest
  python -m benchmarks.gpu_report --only checks,roofline
  python -m benchmarks.gpu_report --again speed         once more, the other results stay
  python -m benchmarks.gpu_report --model Qwen/Qwen3-8B --draft Qwen/Qwen3-0.6B
  python -m benchmarks.gpu_report --model Qwen/Qwen3-8B --peer http://localhost:8000
  python -m benchmarks.gpu_report --rehearse            tiny shapes on a CPU: does all of it run?

steps, in their order:
""" + "".join(f"  {step.name:<11} {step.what} (at most {step.limit_s:.0f} s)\n" for step in STEPS)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every step that was asked for is done or skipped and no goal is missed."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    settings = _settings(asked, parser)
    chosen = _steps(asked.only, parser) or STEPS
    again = {step.name for step in _steps(asked.again, parser)}
    if settings.is_rehearsal:
        os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded: tiny tensors gain by none
    Runner(settings=settings, again=again, budget_s=60 * asked.minutes, say=_say).run(chosen)
    command = " ".join(["python -m benchmarks.gpu_report", *(arguments or sys.argv[1:])])
    return _close(settings, chosen, command)


def _close(settings: Settings, chosen: Sequence[Step], command: str) -> int:
    results = known_results(settings)
    is_rehearsal = settings.is_rehearsal
    judged = judge(results, is_rehearsal=is_rehearsal)
    text = page(results, judged, environment(), command, is_rehearsal=is_rehearsal)
    (settings.output / "report.md").write_text(text)
    for item in judged:
        note = f"  ({item.note})" if item.note else ""
        _say(f"{item.verdict:<12}  {item.goal.what}: {item.shown}, {item.goal.bound}{note}")
    told = summary(judged, is_rehearsal=is_rehearsal)
    _say(f"{told} The page: {settings.output / 'report.md'}")
    is_missed = any(item.verdict is Verdict.FAIL for item in judged)
    well = (Status.DONE, Status.SKIPPED)
    is_open = any(
        step.name not in results or results[step.name].status not in well for step in chosen
    )
    return int(is_missed or is_open)


def known_results(settings: Settings) -> dict[str, Result]:
    """Those that belong on one page: of this environment, and not interrupted."""
    found = {}
    for step in STEPS:
        known = load(path_of(settings.output, step.name))
        if known is None or known.status is Status.RUNNING:
            continue
        if why := mismatch(known, step, settings):
            _say(f"{step.name}: left out of the page, {why}")
        else:
            found[step.name] = known
    return found


def _say(line: str) -> None:
    print(line, flush=True)


def _settings(asked: argparse.Namespace, parser: argparse.ArgumentParser) -> Settings:
    if not asked.rehearse and not has_gpu():
        parser.error("no GPU is here; --rehearse runs every step on a CPU with tiny shapes")
    if asked.peer and not (asked.model or asked.rehearse):
        parser.error("--peer needs --model: its tokenizer makes the prompts")
    if asked.draft and not asked.model:
        parser.error("--draft needs --model: the two share a tokenizer")
    name = "gpu_report_rehearsal" if asked.rehearse else "gpu_report"
    return Settings(
        device="cpu" if asked.rehearse else "cuda",
        output=(asked.output or Path("build") / name).resolve(),
        is_rehearsal=asked.rehearse,
        model=asked.model,
        has_random_model=asked.random_model,
        draft=asked.draft,
        peer=asked.peer,
        sizes=REHEARSED if asked.rehearse else Sizes(),
    )


def _steps(names: str, parser: argparse.ArgumentParser) -> list[Step]:
    wanted = [name for name in names.split(",") if name]
    known = {step.name: step for step in STEPS}
    for name in wanted:
        if name not in known:
            parser.error(f"there is no step {name}: choose from {', '.join(known)}")
    return [step for step in STEPS if step.name in wanted]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_report",
        description="Measure what one GPU proves, step by step, and write report.md.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--output", type=Path, help="folder of results and page; default: build/gpu_report"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=TOTAL_S / 60,
        help=f"no step is started that might end later; default: {TOTAL_S / 60:.0f}",
    )
    parser.add_argument("--only", default="", metavar="STEPS", help="names, separated by commas")
    parser.add_argument(
        "--again", default="", metavar="STEPS", help="steps whose results are not kept"
    )
    parser.add_argument("--model", help="folder or hub ID; default: the demo model, if pulled")
    parser.add_argument(
        "--random-model",
        action="store_true",
        help="without --model: random weights of Qwen3-0.6B's shape, for a machine without a hub",
    )
    parser.add_argument("--draft", help="folder or hub ID of a draft for --model")
    parser.add_argument("--peer", metavar="URL", help="a running vLLM or SGLang with --model")
    parser.add_argument("--rehearse", action="store_true", help="tiny shapes on a CPU")
    return parser
