"""Numbers in environment variables."""

from __future__ import annotations

import pytest

from aclnn.support.env import SettingError, integer


@pytest.mark.parametrize(("text", "value"), [(None, 7), ("", 7), ("3", 3), (" 12 ", 12)])
def test_valid_integers(monkeypatch: pytest.MonkeyPatch, text: str | None, value: int) -> None:
    monkeypatch.delenv("ACLNN_N", raising=False)
    if text is not None:
        monkeypatch.setenv("ACLNN_N", text)
    assert integer("ACLNN_N", 7) == value


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1_0", "x", "9" * 5000])
def test_invalid_integers_are_rejected(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ACLNN_N", text)
    with pytest.raises(SettingError, match=r"^ACLNN_N: expected an integer from 1 to 9, got '.{1,80}'$"):
        integer("ACLNN_N", 7, most=9)
