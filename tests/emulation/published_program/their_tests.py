"""Runs Graphcore's own tests, unchanged, on emulated IPUs, and prints a table.

    python -m tests.emulation.published_program.their_tests --sources DIR [--env DIR] [--only TEXT…]

The tests of the published BERT come from the clone of graphcore/examples; those of Keras and of ipu_tensorflow_addons
lie in the environment, beside the code that they test. All files run, each in its own process, except those of
``NOT_RUN``. What does not pass and is not in ``NOT_PASSING`` makes the command fail.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, NamedTuple
from xml.etree import ElementTree

from tests.emulation.published_program.environment import (
    SetupError,
    default_environment,
    extract_program,
    find_clone,
    make_environment,
)

TOOL = Path(__file__).resolve().parents[1] / "run.py"
IPUS = "16"  # that tests may ask for; without a number they skip themselves
SECONDS = 3600  # for one file
ADDONS, KERAS = "ipu_tensorflow_addons/keras", "keras/ipu"
PROFILE = "Poplar's profile or trace of events"
OTHER_MODELS = "models of a kind that neither program has"
LONG = "stock Keras' own tests of whatever it has, on one IPU: hours"
NOT_USED = "neither program uses it"
# Beginnings of files that are not run, and why.
NOT_RUN = {
    "tests/test_glue.py": "36,000 micro batches; the comparison runs this program",
    "tests/test_pretraining.py": "540 samples with 30,400 pieces in float16; the comparison runs this program",
    "tests/test_squad.py": "3,000 micro batches of 512 tokens; the comparison runs this program",
    f"{ADDONS}/experimental/auto_pipeline/": PROFILE,
    f"{ADDONS}/layers/assume_equal_across_replicas": NOT_USED,
    f"{ADDONS}/layers/ctc": NOT_USED,
    f"{ADDONS}/layers/effective_transformer": NOT_USED,
    f"{ADDONS}/layers/f8_convert": NOT_USED,
    f"{ADDONS}/layers/rnn": NOT_USED,
    f"{KERAS}/extensions/model_pipeline_api": OTHER_MODELS,
    f"{KERAS}/extensions/nested_pipeline_api": OTHER_MODELS,
    f"{KERAS}/extensions/sequential_pipeline_api": OTHER_MODELS,
    f"{KERAS}/extensions/single_ipu/callbacks": LONG,
    f"{KERAS}/extensions/single_ipu/deferred_sequential": OTHER_MODELS,
    f"{KERAS}/extensions/single_ipu/functional": LONG,
    f"{KERAS}/extensions/single_ipu/metrics_correctness": LONG,
    f"{KERAS}/extensions/single_ipu/model_subclassing": OTHER_MODELS,
    f"{KERAS}/extensions/single_ipu/sequential": OTHER_MODELS,
    f"{KERAS}/extensions/single_ipu/training": LONG,
    f"{KERAS}/layers/capture_": NOT_USED,
    f"{KERAS}/optimizers/als_": NOT_USED,
    f"{KERAS}/pipeline_sequential": OTHER_MODELS,
    f"{KERAS}/poprun_test.py": "Horovod, which neither program uses",
    f"{KERAS}/prng_stability": "Poplar's random numbers",
    f"{KERAS}/sequential": OTHER_MODELS,
    f"{KERAS}/serving_export": "Poplar's executables",
    f"{KERAS}/synthetic_data": "Poplar's synthetic data",
}
DECAYS = ("ExponentialDecay", "LearningRateDecay", "PiecewiseConstantDecay")
# Why tests cannot pass, and the beginnings of their names.
NOT_PASSING = {
    PROFILE: (
        f"{ADDONS}/layers/recomputation_test.py::KerasPipelineRecomputationTest",
        f"{KERAS}/functional_model_test.py::IPUModelModelTest::testFitTwice",
        *(f"{KERAS}/functional_model_test.py::IPUModelModelTest::testFitWith{decay}" for decay in DECAYS),
        f"{KERAS}/pipeline_test.py::IPUPipelineTest::testFitTwice",
        *(f"{KERAS}/pipeline_test.py::IPUPipelineTest::testFitWith{decay}" for decay in DECAYS),
    ),
    "Poplar's compiler": (
        f"{KERAS}/pipeline_test.py::IPUPipelineTest::testFitFailsWithSameLayerOnDifferentDevices",
        f"{KERAS}/pipeline_test.py::IPUPipelineTest::testFitAccumulateOutfeedSetDtype",  # drops a pair of casts
    ),
    "numbers of eight bits": (f"{ADDONS}/layers/dense_test.py::DenseTest::test_dense_f8",),
    "1,000 random numbers within 5 % of a rate: so with Poplar's, sometimes with others": (
        f"{ADDONS}/layers/dropout_test.py::IPUDropoutTest::test_dropout",
    ),
    "a metric's variables, which differ between replicas": (
        *(
            f"{KERAS}/asynchronous_callbacks_test.py::KerasAsynchronousCallbacksTest::testCounting{kind}"
            for kind in ("functional_", "sequential_")
        ),
        f"{KERAS}/model_replication_test.py::IPUModelReplicatedTest::testMetricReduction",
    ),
    "metrics that are summed on the IPU before they are sent": (
        f"{KERAS}/pipeline_test.py::IPUPipelineTest::testFitAndEvaluateAccumulateOutfeed",
    ),
    "wants wrong moving statistics, which stages at the same time have; here they are right": (
        f"{KERAS}/pipeline_test.py::IPUPipelineTest::testKerasBatchNormalizationLayerWarns",
    ),
}
INSTANCES = {f"{KERAS}/distributed_test.py": 2, f"{KERAS}/poprun_popdist_strategy_test.py": 2}


class File(NamedTuple):
    """A file of tests, the name that the table has for it, and the folder where it runs."""

    name: str
    path: Path
    folder: Path


class Result(NamedTuple):
    """A test's name, what became of it (passed, failed or skipped), and the first line of why."""

    name: str
    outcome: str
    message: str


def files_of(program: Path, site: Path, scratch: Path) -> Iterator[File]:
    """Return all files of tests."""
    for path in sorted([*program.glob("tests*/test_*.py"), *program.glob("tests*/*_test.py")]):
        yield File(str(path.relative_to(program)), path, program)
    for folder in (ADDONS, KERAS):
        for path in sorted((site / folder).rglob("*_test.py")):
            yield File(str(path.relative_to(site)), path, scratch)


def write_python(folder: Path, environment: Path) -> None:
    """Write a ``python`` that runs scripts on the emulation, for tests that start some."""
    folder.mkdir()
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{TOOL}" --env "{environment}" "$@"\n')
    (folder / "python").chmod(0o755)


def run_file(file: File, environment: Path, site: Path, scratch: Path) -> list[Result]:
    """Run the tests of a file in a process, or in as many as they are for."""
    results, log = scratch / "results.xml", scratch / "log.txt"
    results.unlink(missing_ok=True)
    flags = ["--instances", str(INSTANCES[file.name])] if file.name in INSTANCES else []
    functions = "test_*" if file.name.startswith("tests") else "none"  # in Keras' files they are no tests
    options = ["-p", "published_program.stand_ins", "-p", "no:cacheprovider", "-o", f"python_functions={functions}"]
    command = [sys.executable, TOOL, "--env", environment, *flags, site / "pytest/__main__.py", file.path, *options]
    variables = {
        **os.environ,
        "PATH": f"{scratch / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{file.folder}{os.pathsep}{scratch / 'examples/utils'}" if file.folder != scratch else "",
        "TF_IPU_COUNT": IPUS,
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    with open(log, "w") as output:
        words = [str(word) for word in [*command, f"--junitxml={results}"]]
        try:
            subprocess.run(
                words, cwd=file.folder, env=variables, stdout=output, stderr=output, check=False, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return [Result(file.name, "failed", f"longer than {SECONDS} seconds")]
    if not results.exists():
        return [Result(file.name, "failed", log.read_text().strip().rpartition("\n")[2])]
    return list(read_results(file, results))


def read_results(file: File, path: Path) -> Iterator[Result]:
    """Return the results that pytest wrote, without the placeholders that TensorFlow skips."""
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{file.name}::{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        bad = next((part for part in case if part.tag in ("failure", "error", "skipped")), None)
        if bad is None:
            yield Result(name, "passed", "")
        elif bad.get("message") != "Not a test.":
            message = (bad.get("message") or "").strip().partition("\n")[0]
            yield Result(name, "skipped" if bad.tag == "skipped" else "failed", message)


def reason(name: str) -> str:
    """Why a test is known not to pass, or nothing."""
    return next((why for why, names in NOT_PASSING.items() if name.startswith(names)), "")


def left_over(results: list[Result]) -> list[Result]:
    """Failures that nobody knows."""
    return [result for result in results if result.outcome == "failed" and not reason(result.name)]


def row(file: File, results: list[Result]) -> str:
    """A line of the table."""
    failed = [result for result in results if result.outcome == "failed"]
    known = sorted({reason(result.name) for result in failed if reason(result.name)})
    counts = [sum(result.outcome == outcome for result in results) for outcome in ("passed", "failed", "skipped")]
    return f"| `{file.name}` | {counts[0]} | {counts[1]} | {counts[2]} | {'; '.join(known)} |"


def run_all(options: argparse.Namespace, scratch: Path) -> int:
    environment = options.env.absolute()
    make_environment(environment)
    program = extract_program(options.sources.resolve(), scratch / "examples", options.branch)
    find_clone(options.sources.resolve(), "examples", options.branch).unpack(
        scratch / "examples", "utils/examples_tests"
    )
    write_python(scratch / "bin", environment)
    site = environment / "lib/python3.8/site-packages"
    results: list[Result] = []
    print("| file | passed | failed | skipped | why |\n| --- | --- | --- | --- | --- |")
    for file in files_of(program, site, scratch):
        if not any(text in file.name for text in options.only):
            continue
        left_out = next((why for start, why in NOT_RUN.items() if file.name.startswith(start)), "")
        if left_out:
            print(f"| `{file.name}` | | | | not run: {left_out} |", flush=True)
            continue
        found = run_file(file, environment, site, scratch)
        results += found
        print(row(file, found), flush=True)
    unknown = left_over(results)
    passed, failed = (sum(result.outcome == outcome for result in results) for outcome in ("passed", "failed"))
    print(f"\n{passed} passed, {failed - len(unknown)} failed for a known reason, {len(unknown)} for another one")
    print(*(f"{result.name}: {result.message}" for result in unknown), sep="\n")
    return int(bool(unknown))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--sources", type=Path, required=True, metavar="DIR", help="folder of the clone of graphcore/examples"
    )
    parser.add_argument("--branch", default="master", metavar="NAME", help="of that clone; default: %(default)s")
    parser.add_argument("--env", type=Path, default=default_environment(), metavar="DIR", help="default: %(default)s")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="files with one of these in their names"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            return run_all(options, Path(scratch).resolve())
        except SetupError as problem:
            print(f"error: {problem}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
