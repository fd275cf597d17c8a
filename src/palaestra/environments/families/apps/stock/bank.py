"""What a bank can do: transfers to people and between one's own accounts."""

from __future__ import annotations

from typing import Literal

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row

ACCOUNT = "bank.account"


def _account(call: Caller, person: int, name: str) -> Row:
    found = call.state.find(ACCOUNT, owner=person, name=name)
    if not found:
        raise ApiError(404, f"There is no {name} account.")
    return found[0]


def _move(call: Caller, source: Row, target: Row, amount: float) -> None:
    """Move money between accounts."""
    if amount <= 0 or round(amount, 2) != amount:
        raise ApiError(422, "An amount is above 0 and has at most two decimals.")
    if source["balance"] < amount:
        raise ApiError(409, f"The balance is {source['balance']:g}, less than {amount:g}.")
    for row, change in ((source, -amount), (target, amount)):
        call.state.update(ACCOUNT, row["id"], {"balance": round(row["balance"] + change, 2)})


@verb
def send_money(
    call: Caller,
    payee: str,
    amount: float,
    note: str = "",
    account: Literal["checking", "savings"] = "checking",
) -> Row:
    """Send money to a person.

    Args:
        payee: an email address

    Returns:
        payment_id: integer
        amount: number

    Raises:
        404: nobody else has that address
        409: the balance is too low
    """
    people = call.state.find("supervisor.person", email=payee)
    if not people or people[0]["id"] == call.person:
        raise ApiError(404, f"Nobody else with an account has the address '{payee}'.")
    if len(note) > 140:
        raise ApiError(422, "A note has at most 140 characters.")
    target = _account(call, people[0]["id"], "checking")
    _move(call, _account(call, call.person, account), target, amount)
    row = {"owner": call.person, "payer": call.email(), "payee": payee, "amount": float(amount)}
    id = call.state.insert("bank.payment", row | {"note": note, "paid": call.now})
    return {"payment_id": id, "amount": amount}


@verb
def move_money(
    call: Caller,
    amount: float,
    source: Literal["checking", "savings"],
    target: Literal["checking", "savings"],
) -> Row:
    """Move money between your own accounts.

    Returns:
        moved: number

    Raises:
        409: the balance is too low
    """
    if source == target:
        raise ApiError(422, "Name two different accounts.")
    accounts = [_account(call, call.person, name) for name in (source, target)]
    _move(call, accounts[0], accounts[1], amount)
    return {"moved": amount}


VERBS = (send_money, move_money)
