"""A phone: switches that its owner can set, and what it shows.

Data works if airplane mode is off, mobile data on, and the phone registered with the network, which
a restart does; and if the line is active, has data left and no fault.
"""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import Caller
from palaestra.environments.families.apps.compiler.verbs import reading, verb
from palaestra.environments.families.apps.state import Row

SETTING, LINE = "phone.setting", "telephone.line"


def _settings(caller: Caller) -> dict[str, Row]:
    return {row["name"]: row for row in caller.state.find(SETTING, person=caller.person)}


def _set(caller: Caller, name: str, on: bool) -> Row:
    caller.state.update(SETTING, _settings(caller)[name]["id"], {"on": on})
    return {name: "on" if on else "off"}


@reading
def show_status(caller: Caller) -> Row:
    """Show what the phone says of itself: its switches, the signal, and whether data works.

    Returns:
        airplane_mode: string
        mobile_data: string
        signal: string
        internet: string
    """
    on = {name: bool(row["on"]) for name, row in _settings(caller).items()}
    line = caller.state.find(LINE, customer=caller.person)[0]
    signal = not on["airplane_mode"] and line["status"] == "active" and on["registered"]
    data = signal and on["mobile_data"] and line["gigabytes_left"] > 0 and not line["fault"]
    return {
        "airplane_mode": "on" if on["airplane_mode"] else "off",
        "mobile_data": "on" if on["mobile_data"] else "off",
        "signal": "good" if signal else "none",
        "internet": "works" if data else "does not work",
    }


@verb
def set_airplane_mode(caller: Caller, on: bool) -> Row:
    """Turn airplane mode on or off.

    Returns:
        airplane_mode: string
    """
    return _set(caller, "airplane_mode", on)


@verb
def set_mobile_data(caller: Caller, on: bool) -> Row:
    """Turn mobile data on or off.

    Returns:
        mobile_data: string
    """
    return _set(caller, "mobile_data", on)


@verb
def restart(caller: Caller) -> Row:
    """Restart the phone, which registers it with the network again.

    Returns:
        restarted: boolean
    """
    _set(caller, "registered", True)
    return {"restarted": True}


VERBS = (show_status, set_airplane_mode, set_mobile_data, restart)
