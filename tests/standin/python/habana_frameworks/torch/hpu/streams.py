# SPDX-License-Identifier: Apache-2.0
"""Streams and events of a device that has finished every operator before the next one starts."""

import contextlib
import time


class Stream:
    def __init__(self, device=None, priority=0):
        pass

    def synchronize(self):
        pass

    def query(self):
        return True

    def wait_stream(self, stream):
        pass

    def wait_event(self, event):
        pass

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event


_default = Stream()
_current = _default


def default_stream(device=None):
    return _default


def current_stream(device=None):
    return _current


def set_stream(stream):
    global _current
    if stream is not None:
        _current = stream


@contextlib.contextmanager
def stream(stream):
    before = current_stream()
    set_stream(stream)
    try:
        yield
    finally:
        set_stream(before)


class Event:
    def __init__(self, enable_timing=False):
        self._timed = enable_timing
        self._at = None

    def record(self, stream=None):
        self._at = time.perf_counter()

    def wait(self, stream=None):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass

    def elapsed_time(self, end_event):
        """Milliseconds from this event to the other one."""
        for event in (self, end_event):
            if not event._timed or event._at is None:
                raise RuntimeError("elapsed_time: both events must be recorded and made with enable_timing=True")
        return (end_event._at - self._at) * 1e3
