"""NVIDIA's own Python bindings read from the fake driver what it was told to say.

The fake and the collector were written from the same headers by the same hands, so one mistake could be in
both. The bindings describe the same structures independently of us.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from gpus import ROOT, driver

ASK = """
import json, time
from pynvml import *

nvmlInit()
gpu = nvmlDeviceGetHandleByIndex(0)
older, newer = nvmlGpmSampleAlloc(), nvmlGpmSampleAlloc()
nvmlGpmSampleGet(gpu, older)
nvmlGpmSampleGet(gpu, newer)
question = c_nvmlGpmMetricsGet_t()
question.version, question.numMetrics, question.sample1, question.sample2 = 1, 3, older, newer
for at, metric in enumerate((2, 13, 20)):
    question.metrics[at].metricId = metric
answer = nvmlGpmMetricsGet(question)
fields = nvmlDeviceGetFieldValues(gpu, [74, 269, (138, 0xFFFFFFFF), 230, 1])
print(json.dumps({
    "name": nvmlDeviceGetName(gpu),
    "uuid": nvmlDeviceGetUUID(gpu),
    "bus": nvmlDeviceGetPciInfo(gpu).busId,
    "capability": nvmlDeviceGetCudaComputeCapability(gpu),
    "architecture": nvmlDeviceGetArchitecture(gpu),
    "memory": nvmlDeviceGetMemoryInfo(gpu, version=nvmlMemory_v2).used,
    "margin": nvmlDeviceGetMarginTemperature(gpu),
    "temperature": nvmlDeviceGetTemperatureV(gpu, NVML_TEMPERATURE_GPU),
    "rows": nvmlDeviceGetRemappedRows(gpu),
    "fields": [field.nvmlReturn or field.value.ullVal for field in fields],
    "links": [nvmlDeviceGetNvLinkState(gpu, 17), nvmlDeviceGetNvLinkErrorCounter(gpu, 3, 0)],
    "can_be_profiled": nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice,
    "profile": [answer.metrics[at].value for at in range(3)],
    "computing": [(p.pid, p.usedGpuMemory) for p in nvmlDeviceGetComputeRunningProcesses_v3(gpu)],
    "drawing": [p.pid for p in nvmlDeviceGetGraphicsRunningProcesses_v3(gpu)],
}))
nvmlGpmSampleFree(older)
nvmlGpmSampleFree(newer)
nvmlShutdown()
"""


def test_nvidias_bindings_read_what_the_scenario_says(tmp_path: Path) -> None:
    environment = {**os.environ, **driver(tmp_path, 0)}
    whole = (ROOT / "crates/collect/examples/whole_gpu.toml").read_text()
    named = '[[gpu]]\nuuid = "GPU-1"\nname = "Fake H100"\nbus_id = "00000000:1B:00.0"\n'
    (tmp_path / "scenario.toml").write_text(f'driver_version = "580.95.05"\n{named}{whole}')
    asked = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == {
        "name": "Fake H100",
        "uuid": "GPU-1",
        "bus": "00000000:1B:00.0",
        "capability": [9, 0],
        "architecture": 9,
        "memory": 21474836480,
        "margin": 26,
        "temperature": 61,
        "rows": [2, 1, 1, 0],
        "fields": [1_500_000_000, 250_000_000, 1000, 2, 3],
        "links": [0, 5],
        "can_be_profiled": 1,
        "profile": [81.25, 3.0, 3000 / 1000],
        "computing": [[4711, 21474836480], [4712, None]],
        "drawing": [99],
    }
