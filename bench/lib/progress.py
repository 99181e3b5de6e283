"""Says on stderr what is being measured and how long the rest will take."""

import sys
import time


class Progress:
    """Counts down planned seconds, corrected by how long the planned ones have really taken."""

    def __init__(self, planned_s):
        self.planned_s = planned_s
        self.done_s = 0.0
        self.started = time.monotonic()

    def add(self, seconds):
        """More rounds than planned."""
        self.planned_s += seconds

    def done(self, seconds):
        self.done_s += seconds

    def left_s(self):
        elapsed = time.monotonic() - self.started
        pace = elapsed / self.done_s if self.done_s > 5 else 1.0
        return max(0.0, self.planned_s - self.done_s) * pace

    def say(self, text):
        left = round(self.left_s())
        print(f"[{left // 60:2d}:{left % 60:02d} left] {text}", file=sys.stderr, flush=True)
