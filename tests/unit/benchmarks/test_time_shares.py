"""A profile becomes shares: own times without those of inner operations, and nothing that is not an operation."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")

from benchmarks.time_shares import PARTS, REST, shares

EVENTS = [  # name, HLO module, begin, duration
    ("KernelAndDeviceFunc::Run", "", 0, 1000),
    ("while/body/step/hid_0/dense/MatMul:_MklMatMul", "", 0, 600),
    ("step/PartitionedCall:XlaLaunch", "", 600, 300),  # 100 of its own
    ("multiply_erf_fusion", "a_inference__gelu_17__.21", 650, 200),
    ("step/hid_0/attention/Softmax:_MklSoftmax", "", 900, 100),
]


def test_own_times_by_part():
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    space = XSpace()
    host = space.planes.add(name="/host:CPU")
    host.stat_metadata[1].name = "hlo_module"
    line = host.lines.add()
    for number, (name, module, begin, duration) in enumerate(EVENTS):
        host.event_metadata[number].name = name
        event = line.events.add(metadata_id=number, offset_ps=begin, duration_ps=duration)
        if module:
            event.stats.add(metadata_id=1, str_value=module)
    result = shares(space.SerializeToString())
    expected = {"matrix products": 0.6, "GeLU": 0.2, "softmax of the attention": 0.1, REST: 0.1}
    assert result == pytest.approx({part: expected.get(part, 0.0) for part in PARTS})
