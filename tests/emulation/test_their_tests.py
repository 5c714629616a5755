"""What the command for Graphcore's own tests makes of pytest's results."""

from __future__ import annotations

from pathlib import Path

from tests.emulation.published_program.their_tests import File, left_over, read_results, reason, row

RESULTS = """<testsuites><testsuite>
<testcase classname="keras.ipu.pipeline_test.IPUPipelineTest" name="testFitTwice0">
  <failure message="AssertionError: [] has length of 0&#10;more">long</failure></testcase>
<testcase classname="pipeline_test.IPUPipelineTest" name="testNew"><error message="KeyError: 3">long</error></testcase>
<testcase classname="pipeline_test.IPUPipelineTest" name="testPredict" time="1.2"><system-out>x</system-out></testcase>
<testcase classname="pipeline_test.IPUPipelineTest" name="testHardware"><skipped message="no IPU">x</skipped></testcase>
<testcase classname="pipeline_test.IPUPipelineTest" name="test_session"><skipped message="Not a test."/></testcase>
</testsuite></testsuites>"""


def test_results_of_pytest_become_a_row_and_only_unknown_failures_are_left_over(tmp_path: Path) -> None:
    (tmp_path / "results.xml").write_text(RESULTS)
    file = File("keras/ipu/pipeline_test.py", tmp_path / "pipeline_test.py", tmp_path)
    results = list(read_results(file, tmp_path / "results.xml"))
    known = reason("keras/ipu/pipeline_test.py::IPUPipelineTest::testFitTwice0")
    assert known == "Poplar's profile or trace of events"
    assert row(file, results) == f"| `keras/ipu/pipeline_test.py` | 1 | 2 | 1 | {known} |"
    name = "keras/ipu/pipeline_test.py::IPUPipelineTest::testNew"
    assert [(result.name, result.message) for result in left_over(results)] == [(name, "KeyError: 3")]
