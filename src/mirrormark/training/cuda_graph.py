"""Work that is the same at every control step, replayed from a CUDA graph. A GPU is asked for some three
hundred small kernels to see and act once; asking takes longer than doing."""

from collections.abc import Callable

import torch
from torch import Tensor

_WARM_UP_CALLS = 3


class CudaGraph:
    """A function of tensors of fixed shapes, captured at once. It may change tensors of its own in place, and
    has done so a few times when it is captured."""

    def __init__(self, function: Callable[..., Tensor], *examples: Tensor) -> None:
        self._given = tuple(example.clone() for example in examples)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(_WARM_UP_CALLS):
                function(*self._given)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self._graph, stream=side):
            self._result = function(*self._given)

    def __call__(self, *given: Tensor) -> Tensor:
        for kept, new in zip(self._given, given, strict=True):
            kept.copy_(new)
        self._graph.replay()
        return self._result.clone()
