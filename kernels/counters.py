"""What the draft controller did, by batch size: counted on the device, read now and then."""

from __future__ import annotations

import logging
import time

import torch

logger = logging.getLogger("vllm.radiance")

# A batch of B requests counts in the bucket of the largest size not above B.
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)

# Columns counted by kernels; their order is the kernels' too (assemble, append).
PROPOSALS, DRAFTS, TAILS, TAIL_TOKENS, STOP_CONFIDENCE, STOP_DEPTH = range(6)
ACCEPTED_DRAFTS, ACCEPTED_TAIL, ACCEPTED_FILLER = range(6, 9)
DEVICE_FIELDS = (
    "proposals",
    "drafts",
    "tails",
    "tail_tokens",
    "stopped_by_confidence",
    "stopped_by_depth",
    "accepted_drafts",
    "accepted_tail_tokens",
    "accepted_fillers",
)
HOST_FIELDS = ("steps", "forwards", "forwards_saved", "copies")


def bucket(batch: int) -> int:
    """Return the index of a batch size's bucket."""
    return max(sum(size <= batch for size in BUCKETS) - 1, 0)


class Counters:
    """The counts of one worker.

    device: [buckets, DEVICE_FIELDS] int64, added to by kernels. A proposal stops for one
    reason: a verbatim tail (tails), confidence, or depth (the schedule or the width).
    accepted_*: what verification took, of the drafter, of a tail, and of the fillers that
    fixed-width rows hold past the drafts. every: seconds between log lines, 0 for none.
    """

    def __init__(self, device: torch.device, every: float) -> None:
        self.device = torch.zeros(len(BUCKETS), len(DEVICE_FIELDS), dtype=torch.int64, device=device)
        self.host = [dict.fromkeys(HOST_FIELDS, 0) for _ in BUCKETS]
        self._every = every
        self._next = time.monotonic() + every

    def count_step(self, batch: int, forwards: int, most: int, copies: int) -> None:
        """Count one step: draft forwards launched, how many stock would have launched, and copies to the host."""
        row = self.host[bucket(batch)]
        row["steps"] += 1
        row["forwards"] += forwards
        row["forwards_saved"] += most - forwards
        row["copies"] += copies

    def read(self) -> dict[int, dict[str, int]]:
        """Return all counts by bucket, those of buckets never used left out; waits for the device."""
        found = {}
        for size, host, row in zip(BUCKETS, self.host, self.device.tolist(), strict=True):
            if host["steps"]:
                found[size] = {**host, **dict(zip(DEVICE_FIELDS, row, strict=True))}
        return found

    def total(self) -> dict[str, int]:
        """Return all counts over all buckets; waits for the device."""
        rows = self.read().values()
        return {name: sum(row[name] for row in rows) for name in (*HOST_FIELDS, *DEVICE_FIELDS)}

    def log_now_and_then(self) -> None:
        """Log one line when the time has come; only then is there a wait for the device."""
        now = time.monotonic()
        if not self._every or now < self._next:
            return
        self._next = now + self._every
        logger.info("radiance-patch: draft controller: %s", " ".join(f"{k}={v}" for k, v in self.total().items()))
