"""host:port is read as written, or refused with the setting's name."""

import pytest

from probing_cluster.core import errors, network_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9101", "127.0.0.1", 9101), (":9101", "0.0.0.0", 9101), ("[::1]:1", "::1", 1)],
)
def test_what_people_write(text: str, host: str, port: int) -> None:
    """host:port, every address, IPv6."""
    assert network_address.parse(text, "[service] listen") == (host, port)


@pytest.mark.parametrize("text", ["9101", "host", "host:port", "host:0", "host:70000"])
def test_a_typo_is_named_not_guessed(text: str) -> None:
    """The error says which setting is wrong."""
    with pytest.raises(errors.SettingsError, match="metrics_listen"):
        network_address.parse(text, "[service] metrics_listen")
