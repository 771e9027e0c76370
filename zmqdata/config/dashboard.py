"""Settings of the page that shows a cluster in a browser."""

from __future__ import annotations

from dataclasses import dataclass

from zmqdata.config.checks import MOST_PORT
from zmqdata.config.endpoints import check_names
from zmqdata.config.settings import Settings, setting
from zmqdata.config.worker import dispatcher_setting


@dataclass(frozen=True)
class DashboardSettings(Settings):
    """Settings of ``zmqdata dashboard``."""

    dispatcher_address: str = dispatcher_setting()
    """Address of the dispatcher."""
    host: str = setting(
        "127.0.0.1",
        "address to listen on; on any other than a loopback address, viewers need a token",
        metavar="HOST",
        variable="ZMQDATA_DASHBOARD_HOST",
    )
    """Address to listen on."""
    port: int = setting(
        8470,
        "TCP port of the page; 0: any free port",
        least=0,
        most=MOST_PORT,
        variable="ZMQDATA_DASHBOARD_PORT",
    )
    """Port of the page."""
    token: str | None = setting(
        None,
        "token that viewers have to show; without it, a new one is drawn at each start if the "
        "address is not a loopback address",
        metavar="TOKEN",
        variable="ZMQDATA_DASHBOARD_TOKEN",
    )
    """Token that viewers have to show."""
    names: tuple[str, ...] = setting(
        (),
        "host name under which viewers reach the page, such as that of a proxy, in addition to "
        "its addresses and the name of this machine",
        flag="--name",
        metavar="NAME",
        variable="ZMQDATA_DASHBOARD_NAMES",
    )
    """Further names of this host."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names(self.names, "names")
