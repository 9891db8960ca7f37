import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny networks on many threads are slower, and much slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)
