"""The rule by which two engines' texts count as the same."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tests.real.engine import Engine, Job, serve

# In float32, two orders of summation move a logit by some 1e-5; a real change of the text by far more than this.
TIE = 1e-3

Tokens = Sequence[int]
TopTwo = dict[int, float]


@dataclass(frozen=True)
class Difference:
    """Where the two outputs of one prompt part; a token is None where that output has ended."""

    prompt: int
    position: int
    stock: int | None
    patched: int | None


def first_differences(stock: Sequence[Tokens], patched: Sequence[Tokens]) -> list[Difference]:
    """Return where each pair of outputs parts first; none for a pair that is equal throughout."""
    if len(stock) != len(patched):
        raise ValueError(f"{len(stock)} stock outputs and {len(patched)} patched ones are not pairs")
    found = []
    for prompt, pair in enumerate(zip(stock, patched, strict=True)):
        for position, (left, right) in enumerate(zip_longest(*pair)):
            if left != right:
                found.append(Difference(prompt, position, left, right))
                break
    return found


def text_changes(
    stock: Sequence[Tokens],
    patched: Sequence[Tokens],
    top_two: Callable[[Sequence[Difference]], Sequence[TopTwo]],
) -> list[str]:
    """Return one line for each pair whose texts differ for any other reason than a tie.

    ``top_two`` gives, for the differences handed to it, the target's two likeliest tokens at that
    place with their log probabilities. A difference is a tie, and passes, only if the two outputs
    chose just those two tokens and they lie less than ``TIE`` apart. An output that ends early
    never passes.
    """
    differences = first_differences(stock, patched)
    if not differences:
        return []
    lines = []
    for difference, top in zip(differences, top_two(differences), strict=True):
        low, high = sorted(top.values())
        chosen = {difference.stock, difference.patched}
        if chosen != set(top) or not high - low < TIE:
            lines.append(f"{difference}: the target's top two are {top}, {high - low:.6f} apart")
    return lines


def target_top_two(
    engine: Engine, prompts: Sequence[Tokens], stock: Sequence[Tokens]
) -> Callable[[Sequence[Difference]], list[TopTwo]]:
    """Return the ``top_two`` of ``text_changes`` that asks the stock target itself, without speculation."""

    def ask(differences: Sequence[Difference]) -> list[TopTwo]:
        contexts = [[*prompts[d.prompt], *stock[d.prompt][: d.position]] for d in differences]
        job = Job(contexts, num_speculative_tokens=0, max_num_seqs=1, max_tokens=1, logprobs=2)
        answers = serve(engine, job).logprobs
        return [_best_two(steps[0]) for steps in answers]

    return ask


def _best_two(logprobs: dict[str, float]) -> TopTwo:
    best = sorted(logprobs.items(), key=lambda item: item[1], reverse=True)[:2]
    return {int(token): value for token, value in best}
