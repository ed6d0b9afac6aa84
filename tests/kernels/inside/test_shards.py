import pytest
import torch

from kernels import shards, top1
from tests.kernels.inside import gloo

INF = float("inf")
# Rows a rank gets of a vocabulary padded to a multiple of 64: 30 leave the second of two nothing but padding.
VOCABULARIES = (1, 30, 33, 63, 64, 65, 130, 1000, 4097)


def both_ways(model, hidden):
    """Return token and probability from the shards, and from vLLM's gathered logits."""
    head = shards.Head(model, torch.distributed.get_world_size(gloo.group()))
    logits, first = head.logits(hidden)
    found = shards.finish(shards.exchange(shards.reduce(logits, first), gloo.group()))
    assert "forward" not in vars(model.logits_processor)
    return [part.tolist() for part in (*found, *top1.top1_reference(model.compute_logits(hidden)))]


def adversarial(vocab):
    """Return rows of logits [B, V] that are hard to reduce in parts."""
    rows = torch.randn(8, vocab)
    rows[0] = 0.0
    rows[1, [vocab // 2, vocab - 1]] = 9.0
    rows[2, [0, vocab - 1]] = 9.0
    rows[3] = -INF
    rows[4, : (vocab + 1) // 2] = -INF
    rows[5, vocab // 2 :] = -INF
    rows[6] = -3e38  # far below a padding column's zero
    rows[7, :] = torch.arange(vocab) % 2 * 3e38
    return rows


def layers(rank):
    """Real heads: random ones, hidden states that are the logits themselves, a cap and a scale."""
    found = {}
    for vocab in VOCABULARIES:
        torch.manual_seed(vocab)
        weight, hidden = torch.randn(vocab, 16), torch.randn(5, 16) * 2
        found[f"random {vocab}"] = both_ways(gloo.Model(weight), hidden)
        found[f"capped {vocab}"] = both_ways(gloo.Model(weight, soft_cap=3.0, scale=-0.5), hidden)
        for dtype in (torch.bfloat16, torch.float16):
            found[f"{dtype} {vocab}"] = both_ways(gloo.Model(weight.to(dtype)), hidden.to(dtype))
        rows = adversarial(vocab)
        # The rows are the columns of the head, so that the one-hot hidden states give them exactly.
        finite = rows.clamp(min=-3e38)
        found[f"adversarial {vocab}"] = both_ways(gloo.Model(finite.T.contiguous()), torch.eye(len(rows)))
    return found


@pytest.fixture(scope="module")
def facts():
    return gloo.run(layers)


def test_the_exchange_equals_the_gathered_path(facts):
    for rank in facts:
        for name, (token, probability, wanted_token, wanted) in rank.items():
            assert token == wanted_token, name
            torch.testing.assert_close(torch.tensor(probability), torch.tensor(wanted), rtol=1e-5, atol=0, msg=name)


def test_every_rank_has_the_same_bits(facts):
    for rank in facts[1:]:
        assert {name: found[:2] for name, found in rank.items()} == {
            name: found[:2] for name, found in facts[0].items()
        }


def cut(rows, sizes):
    """Split rows [B, V] into shards of the given sizes, whatever vLLM would make of them, and finish from those."""
    parts, first = [], 0
    for size in sizes:
        parts.append(shards.reduce(rows[:, first : first + size], first))
        first += size
    return shards.finish(torch.stack(parts))


@pytest.fixture
def way(request, monkeypatch):
    if request.param == "reference":
        for module in ("shards", "top1"):
            monkeypatch.setattr(f"kernels.{module}.runs_on", lambda device: False)


@pytest.mark.parametrize("way", ["kernel", "reference"], indirect=True)
@pytest.mark.parametrize("sizes", [(40,), (20, 20), (40, 0), (0, 40), (1, 38, 1), (13, 0, 27), (2500, 2500)], ids=str)
def test_hard_rows_cut_anywhere(sizes, way, device):
    rows = adversarial(sum(sizes)).to(device)
    token, probability = cut(rows, sizes)
    wanted_token, wanted = top1.top1_reference(rows)
    assert token.tolist() == wanted_token.tolist()
    torch.testing.assert_close(probability, wanted, rtol=1e-5, atol=0, equal_nan=True)


@pytest.mark.parametrize("way", ["kernel", "reference"], indirect=True)
def test_a_row_that_is_not_a_number_gives_a_token_of_the_vocabulary_and_no_probability(way, device):
    for column in (0, 19, 20, 39):
        rows = torch.zeros(2, 40, device=device)
        rows[0] = float("nan")
        rows[1, column] = float("nan")
        token, probability = cut(rows, (20, 20))
        assert ((token >= 0) & (token < 40)).all()
        assert probability.isnan().all()


@pytest.mark.parametrize("first", [2**24 + 1, 2**31 - 3])
def test_a_token_beyond_what_a_float_counts_is_exact(first, device):
    rows = torch.tensor([[1.0, 2.0], [2.0, 1.0]], device=device)
    low = shards.reduce(torch.zeros(2, 5, device=device), 0)
    token, _ = shards.finish(torch.stack([low, shards.reduce(rows, first)]))
    assert token.tolist() == [first + 1, first]


def test_a_shard_that_was_not_reduced_wins_nothing_and_says_so(device):
    rows = torch.full((2, 5), -7.0, device=device)
    numbers = torch.stack([shards.unreduced(2, device), shards.reduce(rows, 3)])
    token, probability = shards.finish(numbers)
    assert token.tolist() == [3, 3]
    torch.testing.assert_close(probability.cpu(), torch.full((2,), 0.2))
    assert numbers[..., shards.REDUCED].tolist() == [[0, 0], [1, 1]]
