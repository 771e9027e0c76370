"""Test the settings that select the key of a process."""

from __future__ import annotations

import pytest

from zmqdata.config.keys import KeySettings


def test_a_process_has_a_key_or_none() -> None:
    """The defaults select the key of the user; a key file excludes operation without a
    key.
    """
    assert KeySettings() == KeySettings(key_file=None, insecure=False)
    assert KeySettings(key_file="cluster.key").key_file == "cluster.key"
    with pytest.raises(ValueError, match="insecure"):
        KeySettings(key_file="cluster.key", insecure=True)
