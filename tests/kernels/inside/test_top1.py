import pytest
import torch

from kernels import top1


def logits(rows, vocab, dtype, device, scale=4.0):
    return (torch.randn(rows, vocab) * scale).to(dtype).to(device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 4096), (3, 4097), (5, 12289), (64, 257)], ids=str)
def test_equals_softmax_and_max(shape, dtype, device):
    values = logits(*shape, dtype, device)
    token, probability = top1.top1(values)
    wanted = torch.softmax(values.double(), dim=-1).amax(dim=-1)
    torch.testing.assert_close(probability.double(), wanted, rtol=1e-5, atol=0)
    assert torch.equal(values.gather(1, token[:, None])[:, 0], values.amax(dim=-1))


@pytest.mark.parametrize("vocab", [5, 5000, 9000])
def test_a_tie_goes_to_the_lowest_id(vocab, device):
    values = torch.zeros(3, vocab, device=device)
    values[1, [vocab - 1, vocab // 2]] = 3.0
    token, _ = top1.top1(values)
    assert token.tolist() == [0, vocab // 2, 0]
    assert top1.top1_reference(values)[0].tolist() == token.tolist()


def test_banned_tokens_count_for_nothing(device):
    values = torch.full((2, 6000), float("-inf"), device=device)
    values[0, 4500] = -3.0
    values[1, [0, 5999]] = torch.tensor([1.0, 1.0], device=device)
    token, probability = top1.top1(values)
    assert token.tolist() == [4500, 0]
    assert probability.tolist() == [1.0, 0.5]


@pytest.mark.parametrize("vocab", [7, 5000])
@pytest.mark.parametrize("top1_of", [top1.top1, top1.top1_reference])
def test_a_row_without_a_maximum_has_no_probability_and_a_token_all_the_same(vocab, top1_of, device):
    values = torch.zeros(4, vocab, device=device)
    values[0] = float("-inf")
    values[1] = float("nan")
    values[2, vocab // 2] = float("nan")
    token, probability = top1_of(values)
    assert ((token >= 0) & (token < vocab)).all()
    assert probability.isnan().tolist() == [True, True, True, False]  # so that drafting stops


def test_large_logits_do_not_overflow(device):
    values = torch.tensor([[3e38, 3e38, -3e38], [-3e38, -3e38, -3e38]], device=device)
    token, probability = top1.top1(values)
    assert token.tolist() == [0, 0]
    torch.testing.assert_close(probability.cpu(), torch.tensor([0.5, 1 / 3]))


def test_a_row_is_read_only_within_itself(device):
    wide = torch.full((4, 6000), 100.0, device=device)
    wide[:, :5000] = logits(4, 5000, torch.float32, device)
    inside = wide[:, :5000]  # its rows are 6000 apart; what lies between would win
    token, probability = top1.top1(inside)
    wanted_token, wanted = top1.top1_reference(inside.contiguous())
    assert torch.equal(token, wanted_token)
    torch.testing.assert_close(probability, wanted, rtol=1e-5, atol=0)


@pytest.mark.parametrize("shards", [1, 2, 3, 8])
def test_shards_finish_to_the_whole(shards, device):
    values = logits(4, 8192 * 3, torch.float32, device)
    size = values.shape[1] // shards
    parts = [top1.partial_reference(values[:, i * size : (i + 1) * size]) for i in range(shards)]
    largest, total, token = (torch.stack(column) for column in zip(*parts, strict=True))
    token += torch.arange(shards, device=device)[:, None] * size
    got_token, got = top1.finish(largest, total, token)
    wanted_token, wanted = top1.top1_reference(values[:, : shards * size])
    assert torch.equal(got_token, wanted_token)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=0)


@pytest.mark.parametrize("padding", [1, 100, 4096, 4999])
def test_padding_columns_never_win(padding, device):
    values = logits(3, 5000, torch.float32, device)
    values[:, -padding:] = 50.0
    largest, total, token = top1.partial(values, padding)
    got_token, got = top1.finish(largest.T, total.T, token.T.long())
    wanted_token, wanted = top1.top1_reference(values[:, :-padding])
    assert torch.equal(got_token, wanted_token)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=0)


def test_one_scratch_serves_calls_of_any_shape(device):
    scratch = top1.Scratch(device)
    for rows, vocab in [(2, 9000), (64, 257), (1, 3), (9, 20000), (2, 9000)]:
        values = logits(rows, vocab, torch.float32, device)
        token, probability = top1.top1(values, scratch)
        wanted_token, wanted = top1.top1_reference(values)
        assert torch.equal(token, wanted_token)
        torch.testing.assert_close(probability, wanted, rtol=1e-5, atol=0)
        assert not scratch.arrived.any()
