import re

from radiance_patch import cli
from tests import readme


def test_generated_parts_are_up_to_date():
    text = readme.README.read_text()
    assert readme.rendered(text) == text, "next: python -m tests.readme"


def test_every_command_is_shown():
    text = readme.README.read_text()
    shown = set(re.findall(r"radiance-patch (\w+)", text))
    assert set(cli.cli.commands) <= shown
