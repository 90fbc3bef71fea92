"""The types of units for type checkers and editors are those of the units."""

from tools import stubs


def test_the_stub_is_what_the_program_writes():
    written = stubs.STUB.read_text(encoding="utf-8")
    assert written == stubs.text(), "a unit has changed: run python -m tools.stubs"
