"""Two rows of work on one GPU."""

from contextlib import nullcontext

import torch


class SideStream:
    """A second stream of a GPU, for work that the first need not wait for; while it is off, all is done in
    order. What one stream made and the other reads must be held until the first has waited for the second:
    memory let go of is used again by the stream that it was made on."""

    def __init__(self, device: torch.device) -> None:
        self.on = False
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def work(self) -> torch.cuda.StreamContext | nullcontext:
        """With this, what is asked for is done beside."""
        return torch.cuda.stream(self._stream) if self.on and self._stream else nullcontext()

    def mark(self) -> torch.cuda.Event | None:
        """All that was asked for until now, here or, within `work`, beside."""
        if not self.on:
            return None
        mark = torch.cuda.Event()
        mark.record()
        return mark

    def wait(self, mark: torch.cuda.Event | None) -> None:
        """What is asked for from now on, here or beside, is done when the mark is reached."""
        if mark is not None:
            torch.cuda.current_stream().wait_event(mark)
