"""What the end-to-end tests and the demo serve, and the settings they serve it under."""

from dataclasses import replace

from tests.real.engine import Job
from tests.real.prompts import mixed

# Issue 2: at least 24 mixed prompts of at least 96 tokens, eight in flight.
JOB = Job(mixed())
SHORT = replace(JOB, prompts=mixed()[:8], max_tokens=48)

OFF = {"RADIANCE_DYNAMIC_WIDTH": "0"}
ON = {"RADIANCE_DYNAMIC_WIDTH": "1"}
# As narrow as it gets, from the first request on.
NARROW = {
    **ON,
    "RADIANCE_DYNW_MIN": "1",
    "RADIANCE_DYNW_MARGIN": "0",
    "RADIANCE_DYNW_MIN_BATCH": "1",
}
DRAFT = {"RADIANCE_DYNAMIC_DRAFT": "1"}
# vLLM's default: the engine core in a process of its own.
PROCESSES = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
