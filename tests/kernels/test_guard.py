import inspect
import logging

import pytest
from radiance_patch.kernels import guard


@pytest.fixture(autouse=True)
def nothing_broken(monkeypatch):
    monkeypatch.setattr(guard, "broken", set())


class Hook:
    """Counts its calls and fails from the second on."""

    def __init__(self, feature, on=True):
        self.on, self.calls = on, []
        self.call = guard.guarded(feature, lambda: self.on)(self.run)

    def run(self, item, *, more=0):
        self.calls.append((item, more))
        if len(self.calls) > 1:
            raise ValueError(f"cannot take {item}")


def test_arguments_are_handed_on():
    hook = Hook("example")
    hook.call("a", more=1)
    assert hook.calls == [("a", 1)]


def test_a_failure_is_logged_once_with_its_traceback_and_ends_the_feature(caplog):
    first, second, other = Hook("example"), Hook("example"), Hook("other")
    for item in "abcd":
        first.call(item)
    second.call("e")
    other.call("f")
    assert first.calls == [("a", 0), ("b", 0)]
    assert second.calls == []
    assert other.calls == [("f", 0)]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("vllm.radiance", logging.ERROR)
    assert record.getMessage() == "radiance-patch: example failed and is off in this process; requests go on"
    assert record.exc_info[0] is ValueError
    assert "cannot take b" in caplog.text
    assert "Traceback" in caplog.text


def test_two_features_fail_by_themselves(caplog):
    for name in ("example", "other"):
        hook = Hook(name)
        for item in "abc":
            hook.call(item)
    assert len(caplog.records) == 2
    assert guard.broken == {"example", "other"}


def test_nothing_is_called_while_the_feature_is_off():
    hook = Hook("example", on=False)
    hook.call("a")
    assert hook.calls == []
    hook.on = True
    hook.call("b")
    assert hook.calls == [("b", 0)]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_shutdown_is_no_failure(kind):
    @guard.guarded("example", lambda: True)
    def hook():
        raise kind

    with pytest.raises(kind):
        hook()
    assert guard.broken == set()


def test_the_hook_keeps_its_name_and_signature():
    @guard.guarded("example", lambda: True)
    def hook(scheduler: object, count: int) -> None:
        """Do it."""

    assert (hook.__name__, hook.__doc__) == ("hook", "Do it.")
    assert list(inspect.signature(hook).parameters) == ["scheduler", "count"]


def test_where_a_hook_that_answers_fails_the_default_answers(caplog):
    @guard.safe("example", lambda item, more=0: item + more)
    def hook(item, more=0):
        if more:
            raise ValueError
        return 7

    assert (hook(1), hook(1, more=2)) == (7, 3)
    assert guard.broken == {"example"}
    assert len(caplog.records) == 1
    assert list(inspect.signature(hook).parameters) == ["item", "more"]
