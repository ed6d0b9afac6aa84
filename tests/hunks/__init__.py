"""One test file for each hunk, and what they share (tools)."""

import pytest

pytest.register_assert_rewrite("tests.hunks.tools")
